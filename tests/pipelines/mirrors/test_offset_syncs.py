"""Does a group that moves to the target miss nothing, and get little again?"""

from hypothesis import given, strategies as st

from bradbury.pipelines.mirrors.offset_syncs import PIECES, OffsetSync, OffsetSyncs

TRANSACTIONS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=120)
"""Of each its records, each by the offsets that are missing before it in the source."""


@given(TRANSACTIONS, st.integers(0, 50), st.integers(1, 3))
def test_what_was_not_read_is_read_after_the_move(
    transactions: list[list[int]], start: int, marker: int
) -> None:
    twin: dict[int, int] = {}  # source offset of a record -> its offset in the target
    syncs = OffsetSyncs()
    source, target = start, 7
    for gaps in transactions:
        begin, first = source, target
        for gap in gaps:
            source += gap
            twin[source] = target
            source, target = source + 1, target + 1
        syncs = syncs.after(OffsetSync(begin, source, first, target, not any(gaps)))
        target += marker
    assert len(syncs.pieces) <= PIECES
    for committed in range(start, source + 1):
        translated = syncs.translate(committed)
        unread = [twin[offset] for offset in twin if offset >= committed]
        if translated is None:
            assert not twin
        else:
            assert all(offset >= translated for offset in unread)


def test_without_gaps_the_newest_are_exact() -> None:
    syncs = OffsetSyncs()
    for number in range(1_000):
        syncs = syncs.after(
            OffsetSync(number * 10, number * 10 + 10, number * 11, number * 11 + 10, True)
        )
    assert syncs.translate(9_995) == 999 * 11 + 5
    assert syncs.translate(10_000) == 999 * 11 + 10
    assert syncs.translate(10_007) == 999 * 11 + 10
    old = syncs.translate(100)
    assert old is not None
    assert old <= 110


def test_what_is_before_everything_that_is_remembered_is_not_known() -> None:
    assert OffsetSyncs().translate(5) is None
    assert OffsetSyncs().after(OffsetSync(10, 20, 0, 10, True)).translate(5) is None

"""Does the quota let a copy go at its limit, on average, and never much faster?"""

from hypothesis import given, strategies as st

from bradbury.cluster.partition.replication_quota import ReplicationQuota
from bradbury.protocol.config_key import LONG_MAX

SAMPLES, SAMPLE_MS = 11, 1000


def quota() -> ReplicationQuota:
    return ReplicationQuota(samples=SAMPLES, sample_ms=SAMPLE_MS)


def copy(limit: int, pieces: list[int]) -> list[tuple[float, int]]:
    """(time, size) of each piece, sent as soon as the quota allows it."""
    one, now, sent = quota(), 0.0, []
    for size in pieces:
        while (wait_ms := one.wait_ms(limit, now)) > 0:
            now += wait_ms
        one.record(size, now)
        sent.append((now, size))
    return sent


def test_nothing_waits_before_anything_was_sent_or_without_a_limit() -> None:
    one = quota()
    assert one.wait_ms(1, 0) == 0
    one.record(10**12, 0)
    assert one.wait_ms(LONG_MAX, 0) == 0
    assert one.wait_ms(10**6, 0) > 0


def test_a_second_of_bytes_waits_for_a_second() -> None:
    one = quota()
    one.record(3_000, 500)
    assert one.wait_ms(1_000, 500) == 3_000
    assert one.wait_ms(1_000, 3_400) == 100
    assert one.wait_ms(1_000, 3_500) == 0


def test_another_limit_is_felt_at_once() -> None:
    one = quota()
    one.record(5_000, 0)
    assert one.wait_ms(1_000, 100) > one.wait_ms(2_000, 100) > one.wait_ms(4_000, 100) > 0
    assert one.wait_ms(5_000, 1_000) == 0


def test_what_is_older_than_the_window_counts_no_more() -> None:
    one = quota()
    one.record(10**9, 0)
    wait_ms = one.wait_ms(1, 10)
    assert wait_ms == SAMPLES * SAMPLE_MS - 10
    assert one.wait_ms(1, 10 + wait_ms) == 0


@given(
    st.integers(1_000, 10**7),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=300),
)
def test_no_window_has_more_than_the_limit_and_one_piece(limit: int, pieces: list[int]) -> None:
    sent = copy(limit, pieces)
    for index, (began, _) in enumerate(sent):
        total = 0
        for now, size in sent[index:]:
            if now - began >= SAMPLES * SAMPLE_MS:
                break
            total += size
        # A slice that had begun before may be forgotten, and one slice's worth comes at once.
        allowed = limit * (SAMPLES + 2) * SAMPLE_MS / 1000 + 2 * max(pieces)
        assert total <= allowed


@given(st.integers(10_000, 10**6), st.lists(st.integers(1, 1_000), min_size=1, max_size=300))
def test_a_copy_of_small_pieces_is_not_slower_than_the_limit(limit: int, pieces: list[int]) -> None:
    end, _ = copy(limit, pieces)[-1]
    assert end <= sum(pieces) * 1000 / limit + SAMPLE_MS

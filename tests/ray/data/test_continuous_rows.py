"""Is nothing handed out twice, left out, or committed before it was seen?"""

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from bradbury.pipelines.ray_data.row_positions import RowPositions
from bradbury.pipelines.ray_data.unread_ranges import UnreadRanges
from bradbury.protocol.topic_partition import TopicPartition

growth = st.lists(
    st.tuples(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.integers(1, 40)), max_size=30
)


@given(growth)
def test_pieces_are_the_logs_without_gap_or_overlap(steps: list[tuple[list[int], int]]) -> None:
    keys = [TopicPartition("t", partition) for partition in range(3)]
    unread = UnreadRanges(dict.fromkeys(keys, 7))
    ends = dict.fromkeys(keys, 7)
    seen = dict.fromkeys(keys, 7)
    for grown, most in [*steps, ([0, 0, 0], 10**6)]:
        for key, more in zip(keys, grown, strict=True):
            ends[key] += more
            assert unread.reach(key, ends[key]) == 0
        piece = unread.take(most)
        assert sum(one.size for one in piece) <= most
        for one in piece:
            assert one.start == seen[one.topic_partition]
            assert one.size > 0
            seen[one.topic_partition] = one.end
    assert seen == ends


def test_a_long_log_does_not_keep_the_others_waiting() -> None:
    long, short = TopicPartition("t", 0), TopicPartition("t", 1)
    unread = UnreadRanges({long: 0, short: 0})
    unread.reach(long, 1_000_000)
    unread.reach(short, 5)
    assert any(one.partition == 1 for _ in range(2) for one in unread.take(10))


def test_a_log_that_was_cut_is_told() -> None:
    key = TopicPartition("t", 0)
    unread = UnreadRanges({key: 100})
    assert unread.reach(key, 40) == 60
    assert unread.take(1_000) == []
    unread.go_back(key, 40)
    unread.reach(key, 45)
    assert [(one.start, one.end) for one in unread.take(1_000)] == [(40, 45)]


def rows(*places: tuple[int, int], topic: str | None = None) -> pa.Table:
    columns = {
        "partition": pa.array([partition for partition, _ in places], pa.int32()),
        "offset": pa.array([offset for _, offset in places], pa.int64()),
    }
    if topic is not None:
        columns["topic"] = pa.array([topic] * len(places))
    return pa.table(columns)


def test_rows_may_be_missing_and_the_last_one_of_each_partition_counts() -> None:
    positions = RowPositions(["t"])
    assert positions.advance(rows((0, 3), (1, 0), (0, 9))) == {("t", 0): 10, ("t", 1): 1}
    assert positions.advance(rows((0, 10))) == {("t", 0): 11}
    assert positions.advance(rows()) == {}


def test_several_topics_need_their_column() -> None:
    positions = RowPositions(["a", "b"])
    both = pa.concat_tables([rows((0, 3), topic="b"), rows((0, 5), topic="a")])
    assert positions.advance(both) == {("a", 0): 6, ("b", 0): 4}
    with pytest.raises(ValueError, match="there is no column 'topic'"):
        positions.advance(rows((0, 7)))
    with pytest.raises(ValueError, match="topics that are not read"):
        positions.advance(rows((0, 7), topic="c"))


@pytest.mark.parametrize("second", [rows((0, 3)), rows((0, 2), (0, 9)), rows((0, 5), (0, 5))])
def test_rows_out_of_order_and_doubled_ones_are_refused(second: pa.Table) -> None:
    positions = RowPositions(["t"])
    positions.advance(rows((0, 3)))
    with pytest.raises(ValueError, match="offset . of t-0 comes after .: the rows of a continuous"):
        positions.advance(second)

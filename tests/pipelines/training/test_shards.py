"""Do ranks and workers share the records, whatever each of them knows of the log?"""

import logging
from collections import Counter

import pytest
from hypothesis import given, strategies as st

import bradbury
from bradbury.pipelines.ranges.partition_range import PartitionRange
from bradbury.pipelines.training.shards import ReadShard, blocks_of

BLOCK = 10
logs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), min_size=1, max_size=4
)


def records(ranges: list[PartitionRange], shard: ReadShard) -> Counter[tuple[str, int, int]]:
    return Counter(
        (one.topic, one.partition, offset)
        for one in blocks_of(ranges, shard, BLOCK)
        for offset in range(one.start, one.end)
    )


@given(logs, st.integers(1, 5))
def test_each_record_has_one_shard(bounds: list[list[int]], total: int) -> None:
    ranges = [PartitionRange("t", number, *each) for number, each in enumerate(bounds)]
    shares = [records(ranges, ReadShard(number, total)) for number in range(total)]
    expected = {("t", one.partition, at) for one in ranges for at in range(one.start, one.end)}
    assert sum(shares, Counter()) == Counter(expected)


@given(logs, st.data())
def test_shards_that_saw_other_starts_and_ends_have_no_record_twice(
    bounds: list[list[int]], data: st.DataObject
) -> None:
    """Retention goes on, and records come, between the looks of two ranks; and those that all of
    them have seen are somebody's.
    """
    total = data.draw(st.integers(2, 4))
    seen: Counter[tuple[str, int, int]] = Counter()
    by_all: list[set[tuple[str, int, int]]] = []
    for number in range(total):
        ranges = [
            PartitionRange("t", place, start + data.draw(st.integers(0, 5)), end)
            for place, (start, end) in enumerate(
                (start, end + data.draw(st.integers(5, 30))) for start, end in bounds
            )
        ]
        seen += records(ranges, ReadShard(number, total))
        by_all.append(
            {("t", one.partition, at) for one in ranges for at in range(one.start, one.end)}
        )
    assert not seen or max(seen.values()) == 1
    assert set.intersection(*by_all) <= set(seen)


def test_shards_are_about_equal() -> None:
    ranges = [PartitionRange("t", number, 0, 1_000) for number in range(3)]
    sizes = [sum(records(ranges, ReadShard(number, 4)).values()) for number in range(4)]
    assert max(sizes) - min(sizes) <= 2 * BLOCK


def test_ranks_without_an_end_are_told(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic("ranked", 1)
    servers = cluster.bootstrap_servers
    with caplog.at_level(logging.WARNING):
        for options in ({}, {"rank": 0, "world_size": 2, "end_offset": 0}):
            bradbury.TopicDataset("ranked", bootstrap_servers=servers, **options)
        assert caplog.records == []
        bradbury.TopicDataset("ranked", bootstrap_servers=servers, rank=1, world_size=2)
    assert "each of 2 ranks looks up the end by itself" in caplog.text

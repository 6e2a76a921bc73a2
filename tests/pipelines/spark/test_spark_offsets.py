"""How are a query's offsets written down, limited, and shared among tasks?"""

import json

import pytest
from hypothesis import given, strategies as st

from bradbury.pipelines.ranges.partition_range import PartitionRange
from bradbury.pipelines.spark.reading.offsets import (
    Offsets,
    backlog,
    from_json,
    initial_of,
    must_wait,
    plan_tasks,
    ranges_between,
    rate_limit,
    to_json,
)
from bradbury.protocol.topic_partition import TopicPartition

partitions = st.builds(
    TopicPartition, st.sampled_from(["a", "b", "a-b"]), st.integers(min_value=0, max_value=12)
)
offsets = st.dictionaries(partitions, st.integers(min_value=0, max_value=10_000), max_size=8)


@given(offsets, st.randoms())
def test_equal_offsets_are_equal_text_in_whatever_order_they_came(given_offsets, random) -> None:
    shuffled = list(given_offsets.items())
    random.shuffle(shuffled)
    text = json.dumps(to_json(given_offsets))
    assert json.dumps(to_json(dict(shuffled))) == text
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_partitions_are_in_order_of_number_not_of_text() -> None:
    nested = to_json({TopicPartition("t", 10): 1, TopicPartition("t", 9): 2})
    assert json.dumps(nested) == '{"t": {"9": 2, "10": 1}}'


def test_an_end_can_carry_where_the_query_began() -> None:
    key = TopicPartition("t", 0)
    nested = json.loads(json.dumps(to_json({key: 30}, initial={key: 20})))
    assert nested == {"t": {"0": 30}, "@initial": {"t": {"0": 20}}}
    assert from_json(nested) == {key: 30}
    assert initial_of(nested) == {key: 20}
    assert initial_of({"t": {"0": 30}}) is None


@pytest.mark.parametrize("nested", [{"t": 5}, {"t": {"x": 1}}, {"t": {"0": None}}])
def test_what_are_no_offsets_is_said(nested) -> None:
    with pytest.raises(ValueError, match="offsets are invalid"):
        from_json(nested)


@given(offsets, offsets, st.integers(min_value=1, max_value=20_000))
def test_a_limited_end_keeps_its_promises(start: Offsets, more: Offsets, limit: int) -> None:
    end = {key: start.get(key, 0) + count for key, count in more.items()}
    limited = rate_limit(start, end, limit)
    assert limited.keys() == end.keys()
    assert all(limited[key] <= end[key] for key in end)
    assert all(limited[key] > start.get(key, 0) for key in end if end[key] > start.get(key, 0))
    assert backlog(start, limited) <= limit + len(end)
    if backlog(start, end) <= limit:
        assert limited == end


def test_a_limit_is_shared_in_proportion_to_the_backlogs() -> None:
    big, small, tiny = (TopicPartition("t", number) for number in range(3))
    end = {big: 900, small: 99, tiny: 1}
    assert rate_limit({}, end, 100) == {big: 90, small: 9, tiny: 1}


def test_a_batch_waits_for_enough_records_but_not_forever() -> None:
    def waits(count: int, since: int | None) -> bool:
        return must_wait(count, 10, since_last_trigger_ms=since, max_delay_ms=1000)

    assert waits(9, 999)
    assert not waits(10, 0)
    assert not waits(9, 1000)
    assert not waits(0, None)
    assert not must_wait(0, None, since_last_trigger_ms=0, max_delay_ms=1000)


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    assert ranges_between({old: 5}, {new: 3, old: 7}) == [
        PartitionRange("t", 0, 5, 7),
        PartitionRange("t", 1, 0, 3),
    ]


def test_an_end_that_went_back_is_no_range() -> None:
    key = TopicPartition("t", 0)
    assert ranges_between({key: 5}, {key: 3}) == []


ranges = st.lists(
    st.tuples(st.integers(min_value=0, max_value=100), st.integers(min_value=1, max_value=5_000)),
    max_size=12,
).map(
    lambda pairs: [
        PartitionRange("t", number, start, start + size)
        for number, (start, size) in enumerate(pairs)
    ]
)
counts = st.none() | st.integers(min_value=1, max_value=40)


@given(ranges, counts, st.none() | st.integers(min_value=1, max_value=3_000))
def test_tasks_read_every_record_once_and_in_order(given_ranges, least, most) -> None:
    tasks = plan_tasks(given_ranges, min_partitions=least, max_records=most, pack_rows=1_000)
    assert all(tasks)
    read = [one for task in tasks for one in task]
    assert all(one.size > 0 for one in read)
    for whole in given_ranges:
        pieces = [one for one in read if one.partition == whole.partition]
        assert [pieces[0].start, *[one.end for one in pieces]] == [
            *[one.start for one in pieces],
            whole.end,
        ]
    if most is not None:
        assert all(sum(one.size for one in task) <= most for task in tasks)


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [PartitionRange("t", number, 0, 10) for number in range(64)]
    large = PartitionRange("t", 64, 0, 50_000)
    tasks = plan_tasks([*small, large], min_partitions=None, max_records=None, pack_rows=20_000)
    assert tasks == [tuple(small), (large,)]


def test_a_wanted_number_of_tasks_is_reached_by_splitting_in_proportion() -> None:
    big, small = PartitionRange("t", 0, 0, 900), PartitionRange("t", 1, 100, 200)
    tasks = plan_tasks([big, small], min_partitions=10, max_records=None, pack_rows=20_000)
    assert len(tasks) == 10
    assert {one.size for (one,) in tasks} == {100}

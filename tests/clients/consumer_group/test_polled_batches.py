"""Which rows does a member without a function hand out, when partitions go and come back?"""

import pyarrow as pa
import pytest

from bradbury.clients.consumer_group.processing.member_config import Guarantee, MemberConfig
from bradbury.clients.consumer_group.processing.work import MemberWork
from bradbury.protocol.topic_partition import TopicPartition

STAYS, GOES = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = [(0, 0), (0, 1), (1, 0), (1, 1)]


def polled(guarantee: Guarantee = "at_least_once") -> MemberWork:
    """A member of two partitions that has read two records of each in one poll."""
    config = MemberConfig(topics=("t",), group="g", instance_id="m", guarantee=guarantee)
    work = MemberWork(config, "life", lambda: None)
    work.on_assigned({STAYS: 0, GOES: 0})
    table = pa.table(
        {
            "topic": ["t"] * 4,
            "partition": pa.array([0, 0, 1, 1], pa.int32()),
            "offset": pa.array([0, 1, 0, 1], pa.int64()),
        }
    )
    batches = work.cut(table)
    work.give(batches, {STAYS: 2, GOES: 2} if guarantee == "at_most_once" else None)
    return work


def taken(work: MemberWork) -> list[tuple[int, int]] | None:
    entry = work.processed.take_one(0)
    if entry is None:
        return None
    assert entry.rows == entry.result.num_rows
    columns = (entry.result.column(name).to_pylist() for name in ("partition", "offset"))
    return list(zip(*columns, strict=True))


def test_rows_of_a_partition_that_another_member_has_got_are_left_out_and_not_committed() -> None:
    work = polled()
    work.suspend([GOES])
    work.resume()
    assert taken(work) == [(0, 0), (0, 1)]
    work.processed.acknowledge(None)
    assert work.to_commit() == {STAYS: 2}
    assert taken(work) is None


def test_nothing_is_handed_out_before_it_is_known_whose_it_is() -> None:
    work = polled()
    work.suspend([GOES])
    assert taken(work) is None
    work.on_assigned({GOES: 0})
    work.resume()
    assert taken(work) == ALL
    work.processed.acknowledge(None)
    assert work.to_commit() == {STAYS: 2, GOES: 2}


@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_is_committed_before_it_is_handed_out_is_nobody_elses(is_resumed: bool) -> None:
    work = polled("at_most_once")
    work.suspend([GOES])
    if is_resumed:
        work.resume()
    assert taken(work) == ALL

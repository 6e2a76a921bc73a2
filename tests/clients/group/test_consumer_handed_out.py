"""Is what a member commits before it gives partitions up all that it has handed out of them?

The coordinator is scripted, since its answer to the commit is wanted at one moment.
"""

import threading

import pyarrow as pa
import pytest

import bradbury
from bradbury.clients.consumer.consumer import Wakeup
from bradbury.protocol.columns.columns import encode_batch
from bradbury.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from bradbury.protocol.records.record_batch import stamp
from bradbury.tests.support.groups.group_members import RecordingListener
from bradbury.tests.support.groups.scripted_group import ScriptedGroup

FIRST = 5
"""The scripted group's committed offset."""
SECONDS = 60.0


def ten_records(request: FetchRequest) -> FetchResponse:
    batch = bytearray(encode_batch(None, pa.array([b"%d" % row for row in range(10)]), 0))
    stamp(batch, base_offset=FIRST, leader_epoch=1)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        part.partition,
                        0,
                        FIRST + 10,
                        FIRST + 10,
                        0,
                        records=bytes(batch) if part.fetch_offset < FIRST + 10 else b"",
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_iterator_that_goes_on_hands_out_nothing_that_is_being_given_up(strategy: str) -> None:
    may_answer = threading.Event()

    def commit_later(request: OffsetCommitRequest) -> OffsetCommitResponse:
        may_answer.wait(SECONDS)
        return group.commit(request)

    reported = RecordingListener()
    with ScriptedGroup() as group:
        group.topics["other"] = 1
        group.on(FetchRequest, ten_records)
        group.on(OffsetCommitRequest, commit_later)
        with bradbury.Consumer(
            bootstrap=group.address,
            group="g",
            heartbeat_interval_ms=20,
            retry_backoff_ms=1,
            auto_commit_interval_ms=1_000_000,
            partition_assignment_strategy=strategy,
        ) as consumer:
            consumer.subscribe(["t"], listener=reported)
            records = consumer.records(SECONDS * 1000)
            handed_out = [next(records) for _ in range(3)]
            if strategy == "range":
                consumer.enforce_rebalance()
            else:  # such a member keeps what it reads, unless it no longer wants it
                consumer.subscribe(["other"], listener=reported)
            while not [one for one in group.requests if isinstance(one, OffsetCommitRequest)]:
                read_nothing(consumer)
            assert reported.events == [("assigned", [0, 1])], "they are this member's until then"
            consumer.wakeup()
            try:
                with pytest.raises(Wakeup):
                    handed_out.append(next(records))
            finally:
                may_answer.set()
            while len(reported.events) == 1:
                consumer.poll(10)
        committed = group.wait_for(OffsetCommitRequest)[0].topics[0].partitions
    assert reported.events[1] == ("revoked", [0, 1])
    position = {part.partition_index: part.committed_offset for part in committed}
    partition = handed_out[0].partition
    assert position == {partition: FIRST + 3, 1 - partition: FIRST}


def read_nothing(consumer: bradbury.Consumer) -> None:
    """What a connector's thread does while the stream's owner is busy."""
    consumer.pause(*consumer.assignment())
    assert consumer.poll(10).num_rows == 0
    consumer.resume(*consumer.assignment())

"""Partitions in transactions, request by request: do Kafka's leader and ours answer alike?

Without verification (transaction.partition.verification.enable) a leader takes the batches of any
transaction before Produce 12, so producers can be made up: no coordinator has a part in this.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.records.records import (
    ControlType,
    encode_control_batch,
    encode_records,
)
from bradbury.protocol.schema import Message
from bradbury.tests.compatibility.raw.raw_comparison import Server, api_name, differences
from bradbury.tests.compatibility.support.kafka_jars import require_kafka
from bradbury.tests.support.wire.sample_requests import NOW, Sample, make

pytestmark = [pytest.mark.slow, pytest.mark.java]
CONFIG = {"transaction.partition.verification.enable": "false"}
LEFT_OUT = (
    "error_message",
    "partitions.0.timestamp",  # of a marker: when it was written
    "log_append_time_ms",  # of a retry: docs/deviations
)
Step = tuple[str, Message, int]


class Scene:
    """Requests about one partition."""

    def __init__(self, sample: Sample) -> None:
        self._topic = sample.topic

    def produce(
        self,
        what: str,
        *batches: tuple[int, int, int],
        transactional: bool = True,
        transactional_id: str | None = "made-up",
        version: int = 11,
        count: int = 1,
    ) -> Step:
        """Each of (producer id, epoch, sequence), for partitions 0, 1, ..."""
        parts = [
            make(
                "produce",
                "PartitionProduceData",
                index=index,
                records=bytes(
                    encode_records(
                        [(NOW, b"key", b"value", ())] * count,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=sequence,
                        transactional=transactional,
                    )
                ),
            )
            for index, (producer_id, epoch, sequence) in enumerate(batches)
        ]
        return what, self._request(parts, transactional_id), version

    def produce_marker(self) -> Step:
        batch = encode_control_batch(
            ControlType.COMMIT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=NOW
        )
        part = make("produce", "PartitionProduceData", index=0, records=bytes(batch))
        return "a client's marker", self._request([part], "made-up"), 11

    def _request(self, parts: list[Any], transactional_id: str | None) -> Message:
        topic = make("produce", "TopicProduceData", name=self._topic, partition_data=parts)
        request: Message = make(
            "produce",
            "ProduceRequest",
            acks=-1,
            timeout_ms=9_000,
            transactional_id=transactional_id,
            topic_data=[topic],
        )
        return request

    def mark(
        self,
        what: str,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool = True,
        coordinator_epoch: int = 0,
        partitions: tuple[int, ...] = (0,),
    ) -> Step:
        kind = "write_txn_markers"
        marker = make(
            kind,
            "WritableTxnMarker",
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=is_commit,
            topics=[
                make(
                    kind,
                    "WritableTxnMarkerTopic",
                    name=self._topic,
                    partition_indexes=list(partitions),
                )
            ],
            coordinator_epoch=coordinator_epoch,
        )
        return what, make(kind, "WriteTxnMarkersRequest", markers=[marker]), 1

    def look(self, what: str) -> Iterator[Step]:
        """Producers, offsets and records, as either kind of reader sees them."""
        kind = "describe_producers"
        topic = make(kind, "TopicRequest", name=self._topic, partition_indexes=[0])
        yield f"producers {what}", make(kind, "DescribeProducersRequest", topics=[topic]), 0
        for isolation in (0, 1):
            for timestamp in (-1, NOW):
                wanted = make(
                    "list_offsets",
                    "ListOffsetsPartition",
                    partition_index=0,
                    timestamp=timestamp,
                    current_leader_epoch=-1,
                )
                asked = make(
                    "list_offsets", "ListOffsetsTopic", name=self._topic, partitions=[wanted]
                )
                request = make(
                    "list_offsets",
                    "ListOffsetsRequest",
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[asked],
                )
                yield f"offset of {timestamp} for {isolation} {what}", request, 7
            for offset in (0, 3):
                part = make(
                    "fetch",
                    "FetchPartition",
                    partition=0,
                    fetch_offset=offset,
                    partition_max_bytes=1 << 20,
                )
                topic = make("fetch", "FetchTopic", topic=self._topic, partitions=[part])
                request = make(
                    "fetch",
                    "FetchRequest",
                    max_wait_ms=0,
                    min_bytes=0,
                    isolation_level=isolation,
                    topics=[topic],
                )
                yield f"records from {offset} for {isolation} {what}", request, 11


def steps(sample: Sample) -> Iterator[Step]:
    s = Scene(sample)
    yield s.mark("of an unknown producer", 1, 3, coordinator_epoch=5, partitions=(0, 7))
    yield s.mark("of a former coordinator", 1, 3, coordinator_epoch=4)
    yield s.mark("of a former epoch", 1, 2, coordinator_epoch=6)
    yield s.produce("a former epoch", (1, 2, 0))
    yield s.produce("a gap after a marker", (1, 3, 4))
    yield s.produce("the first one after a marker", (1, 3, 0), count=2)
    yield from s.look("with an open transaction")
    yield s.produce("again", (1, 3, 0), count=2)
    yield s.produce("no transaction within one", (1, 3, 2), transactional=False)
    yield s.produce("without its id", (1, 3, 2), transactional_id=None)
    yield s.produce("two producers", (1, 3, 2), (2, 0, 0))
    yield s.produce_marker()
    yield s.produce("another one begins", (2, 0, 7))
    yield s.mark("an abort", 1, 3, is_commit=False, coordinator_epoch=6)
    yield from s.look("with one aborted and one open")
    yield s.mark("a commit of a higher epoch", 2, 1)
    yield s.mark("an abort again", 1, 3, is_commit=False, coordinator_epoch=6)
    yield s.produce("a retry from before the marker", (2, 0, 7))
    yield s.produce("a new epoch in the middle", (2, 1, 3))
    yield s.produce("a new epoch", (2, 1, 0))
    yield s.produce("a newer epoch while one is open", (2, 2, 0))
    yield from s.look("in a newer epoch")
    yield s.mark("of the epoch before", 2, 1)
    yield s.mark("of its epoch", 2, 2)
    yield from s.look("at the end")


def answers(address: str) -> dict[str, Any]:
    server = Server(address)
    server.open()
    try:
        sample = server.sample("t-99-0")
        return {
            f"{api_name(request)} {version}: {what}": _without_bytes(server.ask(request, version))
            for what, request, version in steps(sample)
        }
    finally:
        server.close()


def _without_bytes(answer: Any) -> Any:
    """Records by their sizes alone: markers have the time at which they were written."""
    if isinstance(answer, dict):
        return {key: _without_bytes(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_without_bytes(each) for each in answer]
    return len(answer) if isinstance(answer, bytes) else answer


@pytest.mark.long  # a broker of Kafka to compare with
def test_a_leader_answers_as_kafkas_does(tmp_path: Path) -> None:
    require_kafka()
    with KafkaBroker(tmp_path, heap="512m", config=CONFIG) as broker:
        kafka = answers(broker.bootstrap_servers)
    with bradbury.local(config=CONFIG) as cluster:
        ours = answers(cluster.bootstrap_servers)
    assert kafka.keys() == ours.keys()
    found = [
        str(each)
        for label in kafka
        for each in differences(label, kafka[label], ours[label])
        if not each.path.endswith(LEFT_OUT)
    ]
    assert not found, "\n".join(found)

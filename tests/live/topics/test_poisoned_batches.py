"""What becomes of a batch with a right CRC and nonsense inside: refused, skipped, taken out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ForeignConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import CorruptMessage, InvalidConfig
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.record_batch import HEADER_SIZE, build_batch
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient

GOOD = [b"first", b"second", b"third", b"fourth"]


def good(*values: bytes) -> bytes:
    return bytes(encode_records([(1_700_000_000_000, None, value, ()) for value in values]))


def poisoned(codec: int = 0) -> bytes:
    return bytes(
        build_batch(
            b"\xff" * 40,
            record_count=2,
            base_timestamp=1_700_000_000_000,
            max_timestamp=1_700_000_000_000,
            attributes=codec,
        )
    )


def produce(client: RawClient, topic: str, batch: bytes) -> int:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    return client.call(request, ProduceResponse, 9).responses[0].partition_responses[0].error_code


def create(servers: str, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result(60)


def poison(servers: str, topic: str) -> None:
    """Offsets 0 and 1, the nonsense at 2 and 3, then 4 and 5."""
    create(servers, topic, bradbury_validate_records="none")
    with RawClient(servers) as client:
        assert produce(client, topic, good(*GOOD[:2])) == 0
        assert produce(client, topic, poisoned()) == 0
        assert produce(client, topic, good(*GOOD[2:])) == 0


@pytest.mark.parametrize("codec", range(5))
def test_it_is_refused(servers: str, codec: int) -> None:
    topic = f"refusing-{codec}"
    create(servers, topic)
    with RawClient(servers) as client:
        code = produce(client, topic, poisoned(codec))
        assert code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
        assert produce(client, topic, good(b"after")) == 0


def test_a_topic_may_have_compressed_batches_opened_alone(servers: str) -> None:
    create(servers, "half-open", bradbury_validate_records="compressed")
    with RawClient(servers) as client:
        assert produce(client, "half-open", poisoned(4)) == ErrorCode.CORRUPT_MESSAGE
        assert produce(client, "half-open", poisoned()) == 0


def test_a_large_batch_that_decompresses_to_more_is_opened_elsewhere(servers: str) -> None:
    create(servers, "large")
    zeros = encode_records([(1_700_000_000_000, None, bytes(900_000), ())], codec=4)
    assert len(zeros) < 8192 - HEADER_SIZE, "small on the wire, large in memory"
    with RawClient(servers) as client:
        assert produce(client, "large", bytes(zeros)) == 0
    with bradbury.Consumer("large", bootstrap=servers, auto_offset_reset="earliest") as consumer:
        assert consumer.poll(10_000).column("value").to_pylist() == [bytes(900_000)]


def test_our_consumer_raises_or_skips_and_counts(servers: str) -> None:
    poison(servers, "stored")
    with bradbury.Consumer("stored", bootstrap=servers, auto_offset_reset="earliest") as consumer:
        assert consumer.poll(10_000).column("value").to_pylist() == GOOD[:2]
        with pytest.raises(CorruptMessage):
            consumer.poll(10_000)
    with bradbury.Consumer(
        "stored", bootstrap=servers, auto_offset_reset="earliest", on_corrupt_record="skip"
    ) as consumer:
        values: list[bytes | None] = []
        while len(values) < len(GOOD):
            values += consumer.poll(10_000).column("value").to_pylist()
        assert values == GOOD
        figures = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert figures["records-corrupt-total"] == 2


def test_only_the_two_words_are_taken(servers: str) -> None:
    with pytest.raises(InvalidConfig, match="use 'raise' or 'skip'"):
        bradbury.Consumer("any", bootstrap=servers, on_corrupt_record="ignore")


def test_it_is_taken_out_of_a_stopped_node_and_everybody_goes_on(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with bradbury.local(str(data_dir)) as cluster:
        poison(cluster.bootstrap_servers, "stored")
        partition = next(data_dir.glob("partitions-*/stored-0"))
        assert "in use by a running node" in quarantine(partition, expected=1)
    before = sorted(path.read_bytes() for path in partition.glob("*.log"))
    [named] = json.loads(quarantine(partition, "--dry-run", "--json"))
    assert (named["offset"], named["next_offset"]) == (2, 4)
    assert sorted(path.read_bytes() for path in partition.glob("*.log")) == before
    quarantine(partition)
    assert Path(named["kept"]).read_bytes()[HEADER_SIZE:] == b"\xff" * 40
    assert json.loads(quarantine(partition, "--json")) == []
    with bradbury.local(str(data_dir)) as cluster:
        assert read_by_librdkafka(cluster.bootstrap_servers, "stored") == GOOD


def quarantine(partition: Path, *options: str, expected: int = 0) -> str:
    command = [sys.executable, "-m", "bradbury.cli", "log", "quarantine", str(partition), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == expected, done.stderr
    return done.stdout if expected == 0 else done.stderr


def read_by_librdkafka(servers: str, topic: str) -> list[bytes | None]:
    consumer = ForeignConsumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(len(GOOD), 20)]
    finally:
        consumer.close()

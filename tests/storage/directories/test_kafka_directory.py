"""Do we open a directory that a real Kafka broker has written, cleanly stopped and killed?

slow: starts a Kafka broker. Needs java and mvn; see kafka_jars. What is expected is what Kafka itself
told a consumer before it ended, and what confluent-kafka's producers were answered.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.records.record_batch import check_batch, read_header, read_size
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.directories.partition_directory import encode_id
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.tests.compatibility.support.kafka_jars import require_kafka
from bradbury.tests.support.storage.logs import read_all
from bradbury.tests.support.storage.transactions import read_committed

pytestmark = [pytest.mark.slow, pytest.mark.long]  # long: Apache Kafka writes the directories first

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MEBIBYTE = 1024**2


class Seen(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int


class Written(NamedTuple):
    """A directory as Kafka left it, and what Kafka had in it."""

    path: Path
    records: dict[str, list[Seen]]
    topic_ids: dict[str, str]


def produce(servers: str, topic: str, count: int, *, size: int = 200, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **config})
    for number in range(count):
        key = b"key %d" % (number % 50)
        producer.produce(topic, b"%08d" % number * (size // 8), key, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def consume(servers: str, topic: str) -> list[Seen]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "oracle", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    seen: list[Seen] = []
    while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None
            seen.append(_seen(message))
        if not seen and end == 0:
            break
    consumer.close()
    return seen


def _seen(message: Message) -> Seen:
    offset, epoch = message.offset(), message.leader_epoch()
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return Seen(offset, message.timestamp()[1], key, value, -1 if epoch is None else epoch)


def take(kafka: KafkaBroker, copy: Path, topics: list[str], *, clean: bool) -> Written:
    records = {topic: consume(kafka.bootstrap_servers, topic) for topic in topics}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    described = admin.describe_topics(_topics(topics))
    ids = {name: str(future.result(60).topic_id) for name, future in described.items()}
    if clean:
        kafka.stop()
    else:
        kafka.kill()
    shutil.copytree(kafka.data, copy)
    return Written(copy, records, ids)


def _topics(names: list[str]) -> Any:
    from confluent_kafka import TopicCollection

    return TopicCollection(names)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Kafka's directories, by how the broker ended."""
    require_kafka()
    folder = tmp_path_factory.mktemp("kafka")
    config = {"log.cleaner.backoff.ms": "200", "log.index.interval.bytes": "1024"}
    topics = [*CODECS, "segments", "compacted", "idempotent"]
    with KafkaBroker(folder / "broker", heap="384m", config=config) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        small = {"segment.bytes": str(MEBIBYTE), "index.interval.bytes": "1024"}
        compact = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        new = [
            NewTopic(topic, 1, 1, config=compact if topic == "compacted" else small)
            for topic in topics
        ]
        for future in admin.create_topics(new).values():
            future.result(30)
        for codec in CODECS:
            produce(servers, codec, 500, **{"compression.type": codec})
        produce(servers, "segments", 20_000)
        produce(servers, "idempotent", 3000, **{"enable.idempotence": True})
        produce(servers, "compacted", 20_000)
        _wait_until_compacted(kafka.data / "compacted-0")
        clean = take(kafka, folder / "clean", topics, clean=True)
        # Another leader epoch, and records that Kafka has not flushed.
        kafka.start()
        servers = kafka.bootstrap_servers
        for topic in topics:
            produce(servers, topic, 700, **{"enable.idempotence": topic == "idempotent"})
        killed = take(kafka, folder / "killed", topics, clean=False)
    return {"clean": clean, "killed": killed}


def _wait_until_compacted(directory: Path) -> None:
    import time

    deadline = time.monotonic() + 30
    while (directory / f"{0:020d}.log").exists() and (
        (directory / f"{0:020d}.log").stat().st_size > MEBIBYTE // 2
    ):
        assert time.monotonic() < deadline, "Kafka did not compact"
        time.sleep(0.1)


@pytest.fixture(params=["clean", "killed"])
def opened(
    request: pytest.FixtureRequest, written: dict[str, Written], tmp_path: Path
) -> Iterator[tuple[Written, LogDirectory]]:
    mine = written[request.param]
    copy = tmp_path / "data"
    shutil.copytree(mine.path, copy)
    directory = LogDirectory.open(OsFileSystem(), str(copy), directory_id="other")
    assert directory.was_clean == (request.param == "clean")
    directory.load_logs(lambda topic: LogConfig(), now_ms=1000)
    yield mine, directory
    directory.close(clean=True)


def seen_in(log: PartitionLog) -> list[Seen]:
    """The records in the slices that we would serve."""
    content = memoryview(read_all(log))
    seen = []
    position = 0
    while position < len(content):
        header = check_batch(content[position : position + read_size(content, position)[1]])
        batch = content[position : position + header.size]
        seen += [
            Seen(record.offset, record.timestamp, record.key, record.value, header.leader_epoch)
            for record in iterate_records(batch)
        ]
        position += header.size
    return seen


def test_every_record_with_its_offset_timestamp_and_epoch(
    opened: tuple[Written, LogDirectory],
) -> None:
    written, directory = opened
    for topic, expected in written.records.items():
        log = directory.logs[topic, 0]
        assert log.log_end_offset == expected[-1].offset + 1, topic
        found = seen_in(log)
        assert [seen._replace(leader_epoch=-1) for seen in found] == [
            seen._replace(leader_epoch=-1) for seen in expected
        ], topic
        reported = [(a, b) for a, b in zip(found, expected, strict=True) if b.leader_epoch >= 0]
        assert all(a.leader_epoch == b.leader_epoch for a, b in reported), topic
        for seen in found[:: max(1, len(found) // 100)]:
            assert log.epochs.epoch_at(seen.offset) == seen.leader_epoch
            at = begin_search(log, up_to=log.log_end_offset).first_at_or_after(seen.timestamp)
            first = next(other for other in found if other.timestamp >= seen.timestamp)
            assert at is not None
            assert at.offset == first.offset


def test_topic_ids_and_identity_are_kafkas(opened: tuple[Written, LogDirectory]) -> None:
    written, directory = opened
    for topic, expected in written.topic_ids.items():
        topic_id = directory.logs[topic, 0].topic_id
        assert topic_id is not None
        # librdkafka prints it in the other alphabet of base64.
        assert encode_id(topic_id) == expected.replace("+", "-").replace("/", "_")
    assert directory.identity.node_id == 1
    assert directory.identity.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert directory.identity.directory_id != "other"


def test_there_are_several_segments_and_a_compacted_one(
    opened: tuple[Written, LogDirectory],
) -> None:
    _, directory = opened
    assert len(directory.logs["segments", 0].segments) > 2
    compacted = seen_in(directory.logs["compacted", 0])
    assert len(compacted) < compacted[-1].offset
    for topic in ("segments", "compacted"):
        log = directory.logs[topic, 0]
        assert log.recovery.bytes_truncated == 0, log.recovery
        for seen in seen_in(log)[::97]:
            piece = log.read(seen.offset, max_bytes=1, up_to=log.log_end_offset, min_one_batch=True)
            assert piece.file is not None
            header = read_header(piece.file.read_at(61, piece.position), 0)
            assert header.base_offset <= seen.offset <= header.last_offset


def test_a_retry_of_an_idempotent_producer_is_recognised(
    opened: tuple[Written, LogDirectory],
) -> None:
    _, directory = opened
    log = directory.logs["idempotent", 0]
    last = None
    for segment in log.segments:
        for _, header in walk_headers(segment.file, 0, segment.size):
            last = header
    assert last is not None
    assert last.producer_id >= 0
    log.local.assign_epoch(99)
    records = [(1, b"k", b"v", ()) for _ in range(last.last_offset_delta + 1)]
    identity = {"producer_id": last.producer_id, "producer_epoch": last.producer_epoch}
    retry = encode_records(records, base_sequence=last.base_sequence, **identity)
    found = log.append_as_leader(retry, leader_epoch=99, now_ms=1000)
    assert found.duplicate
    assert found.base_offset == last.base_offset
    following = encode_records(records, base_sequence=last.last_sequence + 1, **identity)
    assert not log.append_as_leader(following, leader_epoch=99, now_ms=1000).duplicate


ENDINGS = ("committed", "open", "aborted")


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's directory after kill -9: a topic for each ending of its second transaction."""
    require_kafka()
    folder = tmp_path_factory.mktemp("undecided")
    with KafkaBroker(folder / "broker", heap="384m") as kafka:
        servers = kafka.bootstrap_servers
        producers = {
            ending: Producer({"bootstrap.servers": servers, "transactional.id": ending})
            for ending in ENDINGS
        }
        for ending, producer in producers.items():
            producer.init_transactions(30)
            for end in ("committed", ending):
                producer.begin_transaction()
                for number in range(5):
                    producer.produce(ending, b"%d" % number, partition=0)
                producer.flush(10)
                if end == "committed":
                    producer.commit_transaction(10)
                elif end == "aborted":
                    producer.abort_transaction(10)
        # Kafka writes the markers after it has answered.
        watch = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "watch",
                "isolation.level": "read_uncommitted",
            }
        )
        for ending in ENDINGS:
            place = TopicPartition(ending, 0)
            while watch.get_watermark_offsets(place)[1] < (11 if ending == "open" else 12):
                pass
        watch.close()
        kafka.kill()
        shutil.copytree(kafka.data, folder / "killed")
    return folder / "killed"


@pytest.mark.parametrize("ending", ENDINGS)
def test_undecided_records_are_not_stable_and_aborted_ones_are_not_given(
    undecided: Path, tmp_path: Path, ending: str
) -> None:
    data = str(shutil.copytree(undecided, tmp_path / "data"))
    directory = LogDirectory.open(OsFileSystem(), data, directory_id="x")
    for _ in range(2):
        log = directory.load_logs(lambda topic: LogConfig(), now_ms=1000)[ending, 0]
        log.high_watermark = log.log_end_offset
        # Five records and a marker each time.
        assert log.log_end_offset == (11 if ending == "open" else 12)
        assert log.last_stable_offset == (6 if ending == "open" else 12)
        second = list(range(6, 11)) if ending == "committed" else []
        assert read_committed(log) == [0, 1, 2, 3, 4, *second]
        directory.close(clean=True)  # and once more from our own snapshot
        directory = LogDirectory.open(OsFileSystem(), data, directory_id="x")
    directory.close(clean=False)

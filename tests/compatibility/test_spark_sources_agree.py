"""Do Spark's own Kafka source and ours give the same of the same topics, and refuse the same?

Both read from one cluster in one session. What differs by intention is in docs/spark.md.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.tests.compatibility.support.kafka_jars import SPARK_KAFKA, require
from bradbury.tests.compatibility.support.programs import PROGRAMS, Program

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.java, pytest.mark.deep]

BEGIN = 1_700_000_000_000
COUNT = 120
GAPS = 300
FOREVER = {"retention.ms": "-1"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "0",
}


class Topics(NamedTuple):
    servers: str
    mixed: str
    compacted: str
    transactional: str
    appended: str


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    soon = {"log.retention.check.interval.ms": 50, "log.cleaner.backoff.ms": 50}
    with bradbury.local(config=soon) as cluster:
        servers = cluster.bootstrap_servers
        made = Topics(servers, "agree-mixed", "agree-compacted", "agree-txn", "agree-appended")
        with bradbury.Admin(servers) as admin:
            admin.create_topic(made.mixed, 4, configs=FOREVER)  # the last partition stays empty
            admin.create_topic(made.compacted, 1, configs=COMPACTED)
            admin.create_topic(made.transactional, 2, configs=FOREVER)
            admin.create_topic(
                made.appended, 1, configs={"message.timestamp.type": "LogAppendTime"}
            )
        write_mixed(servers, made.mixed)
        write_mixed(servers, made.appended, partitions=1)
        write_transactions(servers, made.transactional)
        write_gaps(servers, made.compacted)
        yield made


def write_mixed(servers: str, topic: str, *, partitions: int = 3) -> None:
    """Keys, values and headers that are there, empty, null or many."""
    producer = Producer({"bootstrap.servers": servers})
    headers: list[Any] = [
        None,
        [("one", b"1")],
        [("same", b"1"), ("same", None), ("", b"")],
        [("\u00e9", b"\xff\x00")],
    ]
    for number in range(COUNT):
        producer.produce(
            topic,
            value=(None, b"", b"\x00\xff%d" % number, b"%d" % number)[number % 4],
            key=(b"%d" % number, None, b"")[number % 3],
            partition=number // 3 % partitions,
            timestamp=BEGIN + number * 1_000,
            headers=headers[number % 5 % 4],
        )
    assert producer.flush(60) == 0


def write_transactions(servers: str, topic: str) -> None:
    """Committed and aborted ones in turn, records of no transaction, and one that stays open."""
    plain = Producer({"bootstrap.servers": servers})
    writer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": "agree",
            "transaction.timeout.ms": 900_000,
        }
    )
    writer.init_transactions(60)
    for turn in range(6):
        writer.begin_transaction()
        for number in range(7):
            writer.produce(topic, b"turn %d, %d" % (turn, number), partition=number % 2)
        assert writer.flush(60) == 0
        plain.produce(topic, b"plain %d" % turn, partition=turn % 2)
        assert plain.flush(60) == 0
        if turn == 5:
            return  # the broker ends it after a quarter of an hour at the earliest
        (writer.abort_transaction if turn % 2 else writer.commit_transaction)(60)


def write_gaps(servers: str, topic: str) -> None:
    with bradbury.Producer(servers) as producer:
        for number in range(GAPS):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
            if number % 50 == 49:
                producer.flush()
                time.sleep(0.15)  # so that the next record begins a segment (segment.ms)
    deadline = time.monotonic() + 120
    while (left := len(offsets_of(servers, topic))) == GAPS:
        assert time.monotonic() < deadline, "it is never compacted"
        time.sleep(0.1)
    while len(offsets_of(servers, topic)) != left:  # until the cleaner has nothing to do
        left = len(offsets_of(servers, topic))
        time.sleep(0.5)


def offsets_of(servers: str, topic: str) -> list[int]:
    found: list[int] = []
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not found or found[-1] < GAPS - 1:
            found += [int(message.offset() or 0) for message in consumer.consume(500, 0.5)]
    finally:
        consumer.close()
    return found


Case = tuple[str, dict[str, Any]]


def asked(program_folder: Path, topics: Topics, cases: list[Case]) -> list[dict[str, Any]]:
    """What both sources give for each case."""
    require(SPARK_KAFKA)
    jars = ",".join(str(jar) for jar in sorted(SPARK_KAFKA.folder.glob("*.jar")))
    told = program_folder / "cases.json"
    told.write_text(json.dumps([[kind, as_text(options)] for kind, options in cases]))
    # Spark's own choice for its workers is python3 of the PATH, which may know nothing of us.
    program = Program(
        [sys.executable, str(PROGRAMS / "spark_differential_program.py")],
        {"PYSPARK_PYTHON": sys.executable},
    )
    lines = program.run(
        "compare",
        servers=topics.servers,
        jars=jars,
        folder=str(program_folder),
        cases=str(told),
    )
    answers = {line["number"]: line["found"] for line in lines if "number" in line}
    return [answers[number] for number in range(len(cases))]


def as_text(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in options.items()
    }


def whole(topic: str, offsets: tuple[int, ...]) -> dict[str, dict[str, int]]:
    return {topic: {str(number): offset for number, offset in enumerate(offsets)}}


def test_schema_and_rows_are_the_same(topics: Topics, tmp_path: Path) -> None:
    mixed, txn, gaps = topics.mixed, topics.transactional, topics.compacted
    middle = BEGIN + COUNT // 2 * 1_000
    by_time = whole(mixed, (BEGIN, middle, middle + 5_500, middle))
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    committed = {"kafka.isolation.level": "read_committed"}
    batches: list[dict[str, Any]] = [
        {"subscribe": mixed},
        {"subscribe": mixed, "includeHeaders": True},
        {"SUBSCRIBE": f"{mixed}, {gaps}", "startingoffsets": "earliest"},
        {"subscribePattern": "agree-.*", "includeHeaders": True},
        {"subscribePattern": "gree-mixe"},
        {"subscribePattern": "nothing-is-so-called-.*"},
        {"assign": {mixed: [0, 2], topics.appended: [0]}, "includeHeaders": True},
        {"subscribe": mixed, "startingOffsets": whole(mixed, (5, -2, 39, -2))},
        {"subscribe": mixed, "endingOffsets": whole(mixed, (5, -1, 0, -1))},
        {
            "assign": {mixed: [1]},
            "startingOffsets": {mixed: {"1": 7}},
            "endingOffsets": {mixed: {"1": 7}},
        },
        {"subscribe": mixed, "startingTimestamp": middle, **latest},
        {"subscribe": mixed, "startingTimestamp": BEGIN, "startingOffsets": "earliest", **latest},
        {"subscribe": mixed, "startingOffsetsByTimestamp": by_time, **latest},
        {"subscribe": mixed, "endingTimestamp": middle},
        {"subscribe": mixed, "endingOffsetsByTimestamp": by_time},
        {"subscribe": mixed, "endingTimestamp": BEGIN + COUNT * 2_000},
        {"subscribe": mixed, "minPartitions": 9, "includeHeaders": True},
        {"subscribe": mixed, "maxRecordsPerPartition": 11},
        {"subscribe": mixed, "maxOffsetsPerTrigger": 3},
        {"subscribe": mixed, "failOnDataLoss": False, "groupIdPrefix": "g", "kafka.x": "y"},
        {"subscribe": gaps},
        {"subscribe": gaps, "minPartitions": 5},
        {"subscribe": gaps, "startingOffsets": whole(gaps, (120,))},
        {"subscribe": txn},
        {"subscribe": txn, **committed},
        {"subscribe": txn, "minPartitions": 6, **committed},
        {"subscribe": topics.appended},
    ]
    streams: list[dict[str, Any]] = [
        {"subscribe": mixed, "startingOffsets": "earliest", "includeHeaders": True},
        {"subscribe": mixed, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 35},
        {"subscribe": mixed, "startingOffsets": whole(mixed, (38, 1, -1, -2))},
        {"subscribe": mixed, "startingTimestamp": middle, **latest, "maxOffsetsPerTrigger": 10},
        {"subscribe": mixed, "startingOffsetsByTimestamp": by_time, **latest},
        {"subscribePattern": "agree-(mixed|appended)", "startingOffsets": "earliest"},
        {"subscribe": gaps, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 100},
        {
            "subscribe": txn,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 13,
            **committed,
        },
        {"assign": {mixed: [2]}, "startingOffsets": "earliest", "minPartitions": 4},
        {"subscribe": mixed},
    ]
    cases = [("batch", one) for one in batches] + [("stream", one) for one in streams]
    cases.append(("tasks", {"subscribe": mixed, "minPartitions": 9}))
    differing = []
    for case, found in zip(cases, asked(tmp_path, topics, cases), strict=True):
        assert "error" not in found["kafka"], f"{case}: {found}"
        if found["kafka"] != found["bradbury"]:
            differing.append((case, found))
    assert not differing, json.dumps(differing, indent=1)[:20_000]


def test_what_is_wrong_is_refused_by_both(topics: Topics, tmp_path: Path) -> None:
    mixed = topics.mixed
    late = BEGIN + COUNT * 2_000
    everywhere: list[dict[str, Any]] = [
        {},
        {"subscribe": mixed, "assign": {mixed: [0]}},
        {"subscribe": mixed, "subscribePattern": "a.*"},
        {"subscribe": ""},
        {"subscribe": " , "},
        {"subscribePattern": ""},
        {"assign": ""},
        {"assign": "{not json"},
        {"assign": {mixed: "0"}},
        {"subscribe": mixed, "startingOffsets": "somewhere"},
        {"subscribe": mixed, "startingOffsets": {mixed: {"0": 1}}},
        {"subscribe": mixed, "startingOffsets": {"other": {"0": 1}}},
        {"subscribe": mixed, "startingTimestamp": late},
        {"subscribe": mixed, "startingTimestamp": "-5"},
        {"subscribe": mixed, "startingTimestamp": "soon"},
        {"subscribe": mixed, "startingOffsetsByTimestampStrategy": "earliest"},
        {"subscribe": mixed, "startingOffsetsByTimestamp": {mixed: {"0": BEGIN}}},
        {"subscribe": mixed, "minPartitions": "many"},
        {"subscribe": mixed, "minPartitions": 0},
        {"subscribe": mixed, "maxRecordsPerPartition": 0},
        {"subscribe": mixed, "failOnDataLoss": "perhaps"},
        {"subscribe": mixed, "includeHeaders": "perhaps"},
        {"subscribe": mixed, "kafka.auto.offset.reset": "earliest"},
        {"subscribe": mixed, "kafka.key.deserializer": "x"},
        {"subscribe": mixed, "kafka.value.deserializer": "x"},
        {"subscribe": mixed, "kafka.enable.auto.commit": "true"},
        {"subscribe": mixed, "kafka.interceptor.classes": "x"},
        {"subscribe": mixed, "kafka.isolation.level": "read_some"},
        {"subscribe": "agree-absent"},
        {"subscribe": mixed, "kafka.bootstrap.servers": ""},
    ]
    batches: list[dict[str, Any]] = [
        {"subscribe": mixed, "startingOffsets": "latest"},
        {"subscribe": mixed, "startingOffsets": whole(mixed, (-1, 0, 0, 0))},
        {"subscribe": mixed, "endingOffsets": "earliest"},
        {"subscribe": mixed, "endingOffsets": whole(mixed, (-2, 1, 1, 0))},
        {"subscribe": mixed, "endingOffsets": {mixed: {"0": 1}}},
        {
            "assign": {mixed: [0]},
            "startingOffsets": {mixed: {"0": 9}},
            "endingOffsets": {mixed: {"0": 3}},
        },
    ]
    streams: list[dict[str, Any]] = [
        {"subscribe": mixed, "endingOffsets": "latest"},
        {"subscribe": mixed, "endingOffsetsByTimestamp": whole(mixed, (BEGIN,) * 4)},
        {"subscribe": mixed, "maxOffsetsPerTrigger": "many"},
        {"subscribe": mixed, "minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 3},
        {"subscribe": mixed, "minOffsetsPerTrigger": 9, "maxTriggerDelay": "soon"},
    ]
    cases = [(kind, one) for kind in ("batch", "stream") for one in everywhere]
    cases += [("batch", one) for one in batches] + [("stream", one) for one in streams]
    # The first reads nothing with Kafka's source, and of the second that takes no notice.
    only_ours: list[Case] = [
        ("batch", {"assign": {mixed: [9]}}),
        ("stream", {"subscribe": mixed, "endingTimestamp": BEGIN}),
    ]
    differing = [
        (case, found)
        for case, found in zip(
            [*cases, *only_ours], asked(tmp_path, topics, [*cases, *only_ours]), strict=True
        )
        if ("error" in found["kafka"] or case in only_ours) != ("error" in found["bradbury"])
    ]
    assert not differing, json.dumps(differing, indent=1)[:20_000]


def test_writes_take_and_refuse_the_same_settings(topics: Topics, tmp_path: Path) -> None:
    with bradbury.Admin(topics.servers) as admin:
        admin.create_topic("written", 1)
    taken: list[dict[str, Any]] = [
        {},
        {"kafka.auto.offset.reset": "earliest"},
        {"kafka.key.deserializer": "x"},
        {"kafka.value.deserializer": "x"},
        {"kafka.enable.auto.commit": "true"},
        {"KAFKA.ACKS": "1"},
        {"kafka.x": "y"},
    ]
    refused: list[dict[str, Any]] = [
        {"kafka.key.serializer": "x"},
        {"kafka.value.serializer": "x"},
        {"kafka.interceptor.classes": "x"},
        {"kafka.transactional.id": "x"},
        {"kafka.acks": "2"},
        {"kafka.linger.ms": "soon"},
        {"kafka.compression.type": "brotli"},
        {"topic": ""},
    ]
    cases: list[Case] = [("write", {"topic": "written", **one}) for one in (*taken, *refused)]
    found = asked(tmp_path, topics, cases)
    for case, answers in zip(cases[: len(taken)], found, strict=False):
        assert answers == {"kafka": {"written": True}, "bradbury": {"written": True}}, case
    for case, answers in zip(cases[len(taken) :], found[len(taken) :], strict=True):
        assert all("error" in one for one in answers.values()), (case, answers)
    with bradbury.Admin(topics.servers) as admin:
        assert admin.list_offsets([("written", 0)])["written", 0].offset == 2 * len(taken)

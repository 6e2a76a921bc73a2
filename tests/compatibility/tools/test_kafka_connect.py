"""Kafka Connect and MirrorMaker 2, as their own main classes run them, between files and clusters."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.errors import KafkaError
from bradbury.tests.compatibility.support.compatibility import Recorder
from bradbury.tests.compatibility.support.kafka_jars import (
    CONNECT,
    QUICK_OPTIONS,
    VERSION,
    java_command,
    require,
    require_kafka,
)
from bradbury.tests.compatibility.support.programs import RUN_SECONDS
from bradbury.tests.docs.page_runner import blocks

pytestmark = [pytest.mark.slow, pytest.mark.java]

Condition = Callable[[], bool]
TERMINATED = 128 + signal.SIGTERM  # what a Java machine ends with that was told to end


class Server:
    """A main class that runs until it is told to end."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, condition: Condition) -> None:
        """Asked again and again. The server's end before that is a failure."""
        deadline = time.monotonic() + RUN_SECONDS
        while not condition():
            assert self._process.poll() is None, self._said()
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.2)

    def stop(self) -> None:
        """As an operator does; what it has done is kept."""
        self._process.terminate()
        assert self._process.wait(RUN_SECONDS) == TERMINATED, self._said()

    def _said(self) -> str:
        return self._log.read_text()[-6000:]


@contextmanager
def server(folder: Path, main_class: str, *files: Path) -> Iterator[Server]:
    require(CONNECT)
    log = folder / "log"
    options = (*QUICK_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    command = java_command(main_class, *map(str, files), options=options, jars=CONNECT)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    try:
        yield Server(process, log)
    finally:
        process.kill()
        process.wait()


def properties(file: Path, settings: Mapping[str, object]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


Place = tuple[int, int]
Content = tuple[bytes | None, bytes | None, tuple[int, int], object]


def read(servers: str, topic: str) -> dict[Place, Content]:
    """All its records with all they have, by librdkafka, as far as they go now."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    found: dict[Place, Content] = {}
    try:
        metadata = consumer.list_topics(topic, timeout=60).topics[topic]
        places = [TopicPartition(topic, partition, 0) for partition in metadata.partitions]
        wanted = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
        consumer.assign(places)
        deadline = time.monotonic() + RUN_SECONDS
        while len(found) < wanted:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                place = message.partition(), message.offset()
                found[place] = (
                    message.key(),
                    message.value(),
                    message.timestamp(),
                    message.headers(),
                )
    finally:
        consumer.close()
    return found


# --- Connect standalone --------------------------------------------------------------------------


@pytest.mark.long
def test_lines_go_from_file_to_file_through_a_topic(
    recorder: Recorder, servers: str, new_name: str, tmp_path: Path
) -> None:
    tool = recorder.tool("Kafka Connect, standalone", VERSION)
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, 2)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    files = [
        properties(
            tmp_path / "worker.properties",
            {
                "bootstrap.servers": servers,
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "offset.storage.file.filename": tmp_path / "offsets",
                "offset.flush.interval.ms": 200,
                "plugin.discovery": "service_load",
                "listeners": "http://127.0.0.1:0",
            },
        ),
        properties(
            tmp_path / "source.properties",
            {
                "name": f"{new_name}-source",
                "connector.class": "FileStreamSource",
                "file": source,
                "topic": new_name,
            },
        ),
        properties(
            tmp_path / "sink.properties",
            {
                "name": f"{new_name}-sink",
                "connector.class": "FileStreamSink",
                "file": sink,
                "topics": new_name,
                "tasks.max": 2,
            },
        ),
    ]
    lines = [f"line {number} {'x' * (number % 50)}" for number in range(3_000)]

    def came(count: int) -> Condition:
        return lambda: sink.is_file() and len(sink.read_text().splitlines()) >= count

    with tool.call("FileStreamSource", "FileStreamSink", "restart"):
        for turn in range(3):  # each goes on where the one before has stopped
            with source.open("a") as more:
                more.writelines(f"{line}\n" for line in lines[turn * 1_000 : (turn + 1) * 1_000])
            with server(
                tmp_path, "org.apache.kafka.connect.cli.ConnectStandalone", *files
            ) as running:
                running.wait_for(came((turn + 1) * 1_000))
                running.stop()
            assert sorted(sink.read_text().splitlines()) == sorted(lines[: (turn + 1) * 1_000])
        records = read(servers, new_name)
        assert len(records) == len(lines)
        with bradbury.Admin(servers) as admin:
            committed = admin.group_offsets(f"connect-{new_name}-sink")
            assert sum(one.offset for one in committed.values()) == len(lines)


# --- MirrorMaker 2 -------------------------------------------------------------------------------


MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
PAGE = Path(bradbury.__file__).resolve().parent / "docs" / "mirroring.md"


@pytest.fixture
def clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two clusters that know nothing of each other; what each is, the test says."""
    kinds: tuple[str, str] = request.param
    with ExitStack() as running:
        servers = []
        for kind in kinds:
            if kind == "kafka":
                require_kafka()
                broker = running.enter_context(KafkaBroker(tmp_path / "kafka", heap="256m"))
                servers.append(broker.bootstrap_servers)
            else:
                servers.append(running.enter_context(bradbury.local()).bootstrap_servers)
        yield servers[0], servers[1]


def mirror_settings(near: str, far: str) -> dict[str, object]:
    replicas = (
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    )
    seconds = (
        "refresh.topics.interval.seconds",
        "refresh.groups.interval.seconds",
        "emit.checkpoints.interval.seconds",
        "emit.heartbeats.interval.seconds",
        "sync.group.offsets.interval.seconds",
        "sync.topic.configs.interval.seconds",
    )
    return {
        "clusters": "near,far",
        "near.bootstrap.servers": near,
        "far.bootstrap.servers": far,
        "near->far.enabled": "true",
        "near->far.topics": "flights.*",
        "near->far.groups": ".*",
        "tasks.max": 2,
        "offset.lag.max": 0,
        "far.offset.flush.interval.ms": 1_000,  # tells where records went, too: a minute by default
        "far.plugin.discovery": "service_load",
        "near.plugin.discovery": "service_load",
        "sync.group.offsets.enabled": "true",
        **dict.fromkeys(replicas, 1),
        **dict.fromkeys(seconds, 1),
    }


def produce(servers: str, first: int, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
    begin = int(time.time() * 1_000)
    for number in range(first, first + count):
        producer.produce(
            "flights",
            None if number % 100 == 99 else f"value {number}",
            f"key {number % 50}",
            number % partitions,
            timestamp=begin + number,
            headers={"number": str(number), "none": None},
        )
    assert producer.flush(RUN_SECONDS) == 0


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    """The number of each of `count` records that the group "readers" has not read; committed."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    numbers: list[bytes] = []
    deadline = time.monotonic() + RUN_SECONDS
    while len(numbers) < count:
        assert time.monotonic() < deadline
        for message in consumer.consume(count - len(numbers), 0.5):
            assert message.error() is None, message.error()
            numbers.append(dict(message.headers())["number"])
    consumer.commit(asynchronous=False)
    consumer.close()
    return numbers


@pytest.mark.deep
@pytest.mark.parametrize(
    "clusters",
    [("bradbury", "bradbury"), ("kafka", "bradbury"), ("bradbury", "kafka")],
    indirect=True,
    ids=["bradbury to bradbury", "kafka to bradbury", "bradbury to kafka"],
)
def test_a_cluster_is_mirrored(
    recorder: Recorder, clusters: tuple[str, str], tmp_path: Path
) -> None:
    tool = recorder.tool("MirrorMaker 2", VERSION)
    near, far = clusters
    mirrored = "near.flights"
    with (
        bradbury.Admin(near) as here,
        bradbury.Admin(far) as there,
        server(
            tmp_path,
            MIRROR_MAKER,
            properties(tmp_path / "mirror.properties", mirror_settings(near, far)),
        ) as running,
    ):
        here.create_topic("flights", 3, configs={"retention.ms": "86400000"})
        here.create_topic("other", 1)
        produce(near, 0, 3_000, 3)
        assert len(consume(near, "flights", 3_000)) == 3_000

        def arrived(count: int, partitions: int) -> Condition:
            def compare() -> bool:
                try:
                    parts = [(mirrored, number) for number in range(partitions)]
                    ends = there.list_offsets(parts, "latest")
                except KafkaError:
                    return False  # not created yet
                return sum(end.offset for end in ends.values()) >= count

            return compare

        def settings_arrived(value: str) -> Condition:
            return lambda: there.describe_configs(mirrored)["retention.ms"].value == value

        def group_arrived(servers: str, count: int) -> Condition:
            def compare() -> bool:
                with bradbury.Admin(servers) as admin:
                    if "readers" not in [group.group_id for group in admin.list_groups()]:
                        return False
                    committed = admin.group_offsets("readers")
                    return sum(one.offset for one in committed.values()) == count

            return compare

        with tool.call("topics and records"):
            running.wait_for(arrived(3_000, 3))
            assert read(far, mirrored) == read(near, "flights")
            assert "near.other" not in there.list_topics()
        with tool.call("settings of topics"):
            running.wait_for(settings_arrived("86400000"))
            here.alter_configs("flights", {"retention.ms": "43200000"})
            running.wait_for(settings_arrived("43200000"))
        with tool.call("offsets of groups"):
            running.wait_for(group_arrived(far, 3_000))
        with tool.call("partitions that are added"):
            here.create_partitions("flights", 4)
            running.wait_for(arrived(3_000, 4))
            produce(near, 3_000, 1_000, 4)
            running.wait_for(arrived(4_000, 4))
            assert read(far, mirrored) == read(near, "flights")
        with tool.call("a group goes on in the other cluster"):
            reported = consume(far, mirrored, 1_000)
            assert sorted(reported) == sorted(b"%d" % number for number in range(3_000, 4_000))
        with tool.call("heartbeats, checkpoints"):
            running.wait_for(lambda: "near.heartbeats" in there.list_topics())
            assert "near.checkpoints.internal" in there.list_topics(include_internal=True)
            assert there.describe_configs("near.checkpoints.internal")["cleanup.policy"].value == (
                "compact"
            )
        with tool.call("restart"):
            running.stop()
            produce(near, 4_000, 500, 4)
            with server(
                tmp_path,
                MIRROR_MAKER,
                tmp_path / "mirror.properties",
            ) as again:
                again.wait_for(arrived(4_500, 4))
                again.stop()
            assert read(far, mirrored) == read(near, "flights")


@pytest.mark.long  # Java machines
@pytest.mark.parametrize("clusters", [("kafka", "bradbury")], indirect=True)
def test_the_settings_in_the_documentation_bring_kafkas_topics_and_groups(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    near, far = clusters
    (printed,) = (block.source for block in blocks(PAGE) if block.language == "properties")
    text = printed.replace("kafka-1:9092", near).replace("bradbury-1:9092", far)
    quick = {name: value for name, value in mirror_settings("", "").items() if "seconds" in name}
    quick |= {"offset.lag.max": 0, "home.offset.flush.interval.ms": 1_000}
    settings = properties(tmp_path / "mirror.properties", quick)
    settings.write_text(text + settings.read_text())
    assert text.count(near) == text.count(far) == 1
    with bradbury.Admin(near) as here:
        here.create_topic("flights", 2, configs={"retention.ms": "86400000"})
        here.create_topic("other", 1)
    produce(near, 0, 200, 2)
    assert len(consume(near, "flights", 200)) == 200
    with bradbury.Admin(far) as there, server(tmp_path, MIRROR_MAKER, settings) as running:

        def has_come() -> bool:
            return "readers" in [group.group_id for group in there.list_groups()] and (
                sum(one.offset for one in there.group_offsets("readers").values()) == 200
            )

        running.wait_for(has_come)
        assert read(far, "west.flights") == read(near, "flights")
        assert there.describe_configs("west.flights")["retention.ms"].value == "86400000"
        assert "west.other" not in there.list_topics()
        produce(near, 200, 100, 2)
        numbers = consume(far, "west.flights", 100)
        assert sorted(numbers) == sorted(b"%d" % number for number in range(200, 300))
        running.stop()

"""Clients of Go and Node.js, each in a small program of its own, meet records and groups of others."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.protocol.partitioner import partition_for_key
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.programs import (
    RUN_SECONDS,
    Program,
    Running,
    go_program,
    node_program,
    version_of,
)

pytestmark = pytest.mark.slow
deep = pytest.mark.deep
long = pytest.mark.long

LANGUAGES = {"sarama": go_program, "kafka_go": go_program, "kafkajs": node_program}
COUNT = 2_000
PARTITIONS = 3
AT_ONCE = 100  # kafkajs is told one offset for each partition of what it sends at once

Place = tuple[int, int]
Content = tuple[str, str, int, dict[str, str]]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The program's name; a test's parameter."""
    found = request.node.callspec.params["name"]
    assert isinstance(found, str)
    return found


@pytest.fixture
def program(name: str) -> Program:
    return LANGUAGES[name](name)


@pytest.fixture
def tool(recorder: Recorder, name: str) -> Tool:
    return recorder.tool(name.replace("_", "-"), version_of(name))


@pytest.fixture
def settings(servers: str, new_name: str) -> dict[str, Any]:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, PARTITIONS)
    return {
        "servers": servers.split(","),
        "topic": new_name,
        "group": f"{new_name}-group",
        "count": COUNT,
        "firstMs": int(time.time() * 1_000),
    }


def content(settings: dict[str, Any], number: int, *, headers: bool = True) -> Content:
    """What every program, and `produce` here, puts into the record of this number."""
    by_place = {"number": str(number)} if headers else {}
    return f"key-{number % 50}", f"value-{number}", settings["firstMs"] + number, by_place


def produce(settings: dict[str, Any], first: int, codec: str = "none") -> None:
    """COUNT records from `first`, by librdkafka."""
    producer = Producer(
        {"bootstrap.servers": ",".join(settings["servers"]), "compression.type": codec}
    )
    for number in range(first, first + COUNT):
        key, value, timestamp, headers = content(settings, number)
        producer.produce(
            settings["topic"], value, key, timestamp=timestamp, headers=list(headers.items())
        )
    assert producer.flush(RUN_SECONDS) == 0


def read(settings: dict[str, Any]) -> dict[Place, Content]:
    """All of the topic's records, by librdkafka, as far as they go now."""
    consumer = Consumer({"bootstrap.servers": ",".join(settings["servers"]), "group.id": "none"})
    found: dict[Place, Content] = {}
    try:
        places = [TopicPartition(settings["topic"], number, 0) for number in range(PARTITIONS)]
        wanted = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
        consumer.assign(places)
        deadline = time.monotonic() + RUN_SECONDS
        while len(found) < wanted:
            assert time.monotonic() < deadline
            for message in consumer.consume(1_000, 1):
                assert message.error() is None
                headers = {key: value.decode() for key, value in message.headers() or []}
                found[message.partition(), message.offset()] = (
                    message.key().decode(),
                    message.value().decode(),
                    message.timestamp()[1],
                    headers,
                )
    finally:
        consumer.close()
    return found


def by_place(records: list[list[Any]]) -> dict[Place, Content]:
    """What a program says that it read; nothing twice."""
    found = {(record[0], record[1]): tuple(record[2:]) for record in records}
    assert len(found) == len(records), "some records came twice"
    return found


def acknowledged(settings: dict[str, Any], line: dict[str, Any]) -> dict[int, Place]:
    """number -> (partition, offset), as the program was told."""
    if "acknowledged" in line:
        places = {number: (partition, offset) for number, partition, offset in line["acknowledged"]}
        assert len(places) == len(line["acknowledged"])
        return places
    places = {}
    next_offset = {(first, partition): offset for first, partition, offset in line["batches"]}
    for number in range(COUNT):
        partition = partition_for_key(content(settings, number)[0].encode(), PARTITIONS)
        sent_with = number // AT_ONCE * AT_ONCE, partition
        places[number] = partition, next_offset[sent_with]
        next_offset[sent_with] += 1
    return places


SARAMA_VERSIONS = ["0.10.2.0", "0.11.0.0", "1.0.0", "2.1.0", "4.3.1"]
CASES = [
    pytest.param("kafkajs", {"codec": "gzip", "idempotent": True}),
    # Long: the first build of a checkout compiles Go's own library, for a minute.
    pytest.param("kafka_go", {"codec": "snappy"}, marks=long),
    pytest.param("sarama", {"codec": "zstd", "idempotent": True}, marks=long),
    *(
        pytest.param("kafka_go", {"codec": codec}, marks=deep)
        for codec in ("none", "gzip", "lz4", "zstd")
    ),
    *(
        pytest.param("kafkajs", {"codec": codec, "idempotent": idempotent}, marks=deep)
        for codec, idempotent in (("none", False), ("none", True), ("gzip", False))
    ),
    *(
        pytest.param("sarama", {"codec": codec, "idempotent": True}, marks=deep)
        for codec in ("none", "gzip", "snappy", "lz4")
    ),
    *(
        pytest.param("sarama", {"codec": "snappy", "version": version}, marks=deep)
        for version in SARAMA_VERSIONS
    ),
]
PRODUCERS = {
    "kafka_go": "Writer.WriteMessages ({})",
    "kafkajs": "producer.send ({})",
    "sarama": "AsyncProducer ({})",
}


@pytest.mark.parametrize(("name", "how"), CASES)
def test_every_record_is_at_its_acknowledged_offset(
    program: Program, name: str, tool: Tool, settings: dict[str, Any], how: dict[str, Any]
) -> None:
    shown = ", ".join(
        key if value is True else f"{key} {value}" for key, value in how.items() if value
    )
    with tool.call(PRODUCERS[name].format(shown)):
        [line] = program.run("produce", **settings, **how)
        places = acknowledged(settings, line)
        headers = how.get("version") != "0.10.2.0"  # there are none before 0.11
        wanted = {places[n]: content(settings, n, headers=headers) for n in range(COUNT)}
        assert read(settings) == wanted
        if name != "sarama":  # which has a hash of its own
            for key, *_ in wanted.values():
                partition = partition_for_key(key.encode(), PARTITIONS)
                assert {p for (p, _), record in wanted.items() if record[0] == key} == {partition}


@deep
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("name", ["sarama", "kafka_go"])
def test_records_of_others_are_read_by_partition(
    program: Program, name: str, tool: Tool, settings: dict[str, Any], codec: str
) -> None:
    produce(settings, 0, codec)
    reader = "Consumer.ConsumePartition" if name == "sarama" else "Reader.ReadMessage"
    with tool.call(f"{reader} (codec {codec})"):
        lines = program.run("read", **settings)
        assert by_place([line["record"] for line in lines]) == read(settings)


@deep
@pytest.mark.parametrize("name", ["sarama"])
@pytest.mark.parametrize("version", SARAMA_VERSIONS)
def test_records_of_today_are_read_by_versions_of_long_ago(
    program: Program, tool: Tool, settings: dict[str, Any], version: str
) -> None:
    produce(settings, 0, "lz4")
    with tool.call(f"Consumer.ConsumePartition (version {version})"):
        lines = program.run("read", **settings, version=version)
        wanted = read(settings)
        if version == "0.10.2.0":
            wanted = {place: (*record[:3], {}) for place, record in wanted.items()}
        assert by_place([line["record"] for line in lines]) == wanted


# --- groups --------------------------------------------------------------------------------------


def shares(admin: bradbury.Admin, group_id: str) -> list[int]:
    """How many partitions each member has; nothing where the group is not stable."""
    if group_id not in [group.group_id for group in admin.list_groups()]:
        return []
    [group] = admin.describe_groups([group_id])
    return [len(member.assignment) for member in group.members] if group.state == "Stable" else []


def wait_for_members(settings: dict[str, Any], count: int) -> None:
    """Until the group is stable, and all partitions are with that many members."""
    deadline = time.monotonic() + RUN_SECONDS
    with bradbury.Admin(",".join(settings["servers"])) as admin:
        while True:
            assert time.monotonic() < deadline
            held = shares(admin, settings["group"])
            if len(held) == count and sum(held) == PARTITIONS:
                return
            time.sleep(0.05)


def wait_for_commits(settings: dict[str, Any], count: int) -> None:
    """Until so many records are committed, and nothing is left."""
    deadline = time.monotonic() + RUN_SECONDS
    with bradbury.Admin(",".join(settings["servers"])) as admin:
        while True:
            assert time.monotonic() < deadline
            committed = admin.group_offsets(settings["group"])
            if sum(offset.offset for offset in committed.values()) == count:
                return
            time.sleep(0.05)


def wait_for_records(programs: Iterable[Running], count: int) -> None:
    """Until their lines have arrived here: what they commit may be there before."""
    deadline = time.monotonic() + RUN_SECONDS
    while sum(len(each.said("record")) for each in programs) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def members(
    program: Program, settings: dict[str, Any], count: int, **how: Any
) -> Iterator[list[Running]]:
    with ExitStack() as stack:
        yield [stack.enter_context(program.start("group", **settings, **how)) for _ in range(count)]


@contextmanager
def after(settings: dict[str, Any], count: int) -> Iterator[None]:
    """Begins once the group has so many members."""
    wait_for_members(settings, count)
    yield


GROUPS = {
    "kafka_go": "Reader (GroupID, {})",
    "kafkajs": "consumer.run ({})",
    "sarama": "ConsumerGroup ({})",
}


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        pytest.param("kafka_go", "range", marks=deep),
        ("kafkajs", "RoundRobinAssigner"),
        pytest.param("kafka_go", "roundrobin", marks=deep),
        pytest.param("sarama", "range", marks=deep),
        pytest.param("sarama", "roundrobin", marks=deep),
        pytest.param("sarama", "sticky", marks=deep),
        pytest.param("sarama", "cooperative-sticky", marks=deep),
    ],
)
def test_two_members_share_a_topic_and_one_takes_over(
    program: Program, name: str, tool: Tool, settings: dict[str, Any], strategy: str
) -> None:
    with (
        tool.call(GROUPS[name].format(strategy)),
        members(program, settings, 2, strategy=strategy) as (one, other),
    ):
        wait_for_members(settings, 2)
        produce(settings, 0)
        wait_for_commits(settings, COUNT)
        wait_for_records((one, other), COUNT)
        first, second = by_place(one.said("record")), by_place(other.said("record"))
        assert {**first, **second} == read(settings)
        assert len(first) + len(second) == COUNT
        assert not {place[0] for place in first} & {place[0] for place in second}
        assert first
        assert second

        one.stop()
        assert one.said("left") == [True]
        wait_for_members(settings, 1)
        produce(settings, COUNT)
        wait_for_commits(settings, 2 * COUNT)
        other.stop()
        assert by_place(one.said("record")) == first
        everything = read(settings)
        assert {**first, **by_place(other.said("record"))} == everything
        by_number = sorted(everything.values(), key=lambda record: record[2])
        assert by_number == [content(settings, number) for number in range(2 * COUNT)]
        in_order: dict[int, list[int]] = defaultdict(list)
        for partition, offset, *_ in other.said("record"):
            in_order[partition].append(offset)
        assert all(offsets == sorted(offsets) for offsets in in_order.values())


@long
@pytest.mark.parametrize("name", ["sarama"])
def test_sarama_kafka_go_and_librdkafka_are_members_of_one_group(
    program: Program, tool: Tool, settings: dict[str, Any]
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(settings["servers"]),
            "group.id": settings["group"],
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
        }
    )
    own: list[Place] = []
    with (
        tool.call("ConsumerGroup (with kafka-go and librdkafka)"),
        members(program, settings, 1, strategy="range") as (sarama,),
        # sarama leads: kafka-go writes subscriptions of version 1 without the owned partitions,
        # which librdkafka cannot read.
        after(settings, 1),
        members(go_program("kafka_go"), settings, 1, strategy="range") as (kafka_go,),
    ):
        consumer.subscribe([settings["topic"]])
        deadline = time.monotonic() + RUN_SECONDS
        with bradbury.Admin(",".join(settings["servers"])) as admin:
            while shares(admin, settings["group"]) != [1, 1, 1]:
                assert time.monotonic() < deadline
                assert consumer.poll(0.1) is None
            produce(settings, 0)
            while sum(o.offset for o in admin.group_offsets(settings["group"]).values()) < COUNT:
                assert time.monotonic() < deadline
                own += [
                    (message.partition(), message.offset())
                    for message in consumer.consume(1_000, 0.1)
                ]
        consumer.close()
        sarama.stop()
        kafka_go.stop()
    read_by_programs = {**by_place(sarama.said("record")), **by_place(kafka_go.said("record"))}
    everything = read(settings)
    assert read_by_programs.items() <= everything.items()
    assert sorted([*read_by_programs, *own]) == sorted(everything)
    assert len(everything) == COUNT


# --- administration ------------------------------------------------------------------------------

FOUND = {
    "sarama": {
        "CreateTopic again": "Topic with this name already exists",
        "ListTopics": [2, 1, "60000"],
        "DescribeTopics": [0, 3, [1]],
        "DescribeConfig": ["retention.ms", "3600000"],
        "DescribeCluster": [1, 1],
        "ListOffsets": [10, 0],
        "Client.GetOffset (time)": 3,
        "DeleteRecords": 4,
        "AlterConsumerGroupOffsets": {"0": 0, "1": 0},
        "ListConsumerGroupOffsets": [7, "by hand", 0, -1],
        "ListConsumerGroups": True,
        "DescribeConsumerGroups": "Empty",
        "DeleteConsumerGroupOffset": [7, -1],
        "DeleteConsumerGroup": False,
        "DeleteTopic": False,
    },
    "kafka_go": {
        "CreateTopics again": True,
        "Conn.ReadPartitions": 3,
        "Conn.Brokers": 1,
        "DescribeConfigs": ["retention.ms", "3600000"],
        "Conn.WriteMessages": [0, 10],
        "Conn.ReadMessage": "value-6",
        "ListOffsets": [0, 10, [3]],
        "Fetch": [10, 8, "value-8"],
        "InitProducerID": 0,
        "OffsetFetch": [7, "by hand"],
        "DescribeGroups": "Empty",
        "ListGroups": True,
        "OffsetDelete": [7, -1],
        "DeleteGroups": False,
    },
    "kafkajs": {
        "createTopics": [True, False],
        "listTopics": True,
        "fetchTopicMetadata": [0, 1, 2],
        "describeCluster": [1, True],
        "describeConfigs": [["retention.ms", "3600000"]],
        "fetchTopicOffsets": [[0, "0", "10"], [1, "0", "0"], [2, "0", "0"]],
        "fetchTopicOffsetsByTimestamp": "3",
        "deleteTopicRecords": "4",
        "setOffsets": [[0, "7"], [1, "-1"], [2, "-1"]],
        "resetOffsets": [0, "-2"],  # as kafkajs commits "earliest"
        "listGroups": True,
        "describeGroups": ["Empty", "consumer"],
        "deleteGroups": False,
        "listPartitionReassignments": [],
        "deleteTopics": False,
    },
}
SILENT = {  # what they do leaves its trace in the others' answers
    "sarama": ["CreateTopic", "CreatePartitions", "IncrementalAlterConfig", "SyncProducer.SendMessages"],
    "kafka_go": ["CreateTopics", "CreatePartitions", "IncrementalAlterConfigs", "OffsetCommit",
                 "FindCoordinator", "DeleteTopics"],
    "kafkajs": ["createPartitions", "alterConfigs", "fetchOffsets"],
}  # fmt: skip


@deep
@pytest.mark.parametrize("name", LANGUAGES)
def test_administration(
    program: Program, name: str, tool: Tool, settings: dict[str, Any], data_dir: object
) -> None:
    mine = {**settings, "topic": f"{settings['topic']}-of-the-program"}
    wanted = FOUND[name]
    with tool.call(*(call for call in [*wanted, *SILENT[name]] if " again" not in call)):
        [found] = program.run("admin", **mine)
        again = [call for call in found if call.endswith("Topic again")]
        for call in again:
            assert wanted[call] in found[call]
            found[call] = wanted[call]
        if name == "sarama":
            [directory] = found.pop("DescribeLogDirs")
            assert directory.startswith(str(data_dir))
        assert found == wanted
        with bradbury.Admin(",".join(settings["servers"])) as admin:
            assert mine["topic"] not in admin.list_topics()
            assert settings["topic"] in admin.list_topics()

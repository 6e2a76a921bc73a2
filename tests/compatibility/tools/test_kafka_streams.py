"""Applications of Kafka Streams, each update of theirs checked. They are in KafkaStreamsProgram.java."""

import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import QUICK_OPTIONS, STREAMS, VERSION
from bradbury.tests.compatibility.support.programs import (
    RUN_SECONDS,
    Program,
    Running,
    java_program,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.long,  # minutes of Kafka Streams
]
deep = pytest.mark.deep

PARTITIONS = 2
Application = Callable[..., AbstractContextManager[Running]]
Record = tuple[str, str | None, int]
"""key, value, timestamp"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    # RocksDB unpacks itself into the temporary folder.
    options = (*QUICK_OPTIONS, f"-Djava.io.tmpdir={tmp_path}")
    return java_program("KafkaStreamsProgram.java", STREAMS, options)


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("Kafka Streams", VERSION)


@pytest.fixture
def application(program: Program, servers: str, new_name: str, tmp_path: Path) -> Application:
    """Start one: application("counts", "folder of its state", store=..., config={...})."""

    def start(
        command: str, folder: str = "state", *, config: Mapping[str, Any] | None = None, **more: Any
    ) -> AbstractContextManager[Running]:
        settings = {"servers": servers, "topic": new_name, "group": f"{new_name}-app", **more}
        return program.start(
            command, folder=str(tmp_path / folder), config=dict(config or {}), **settings
        )

    return start


def is_running(application: Running) -> bool:
    return application.said("state")[-1:] == ["RUNNING"]


def create(servers: str, *topics: str) -> None:
    with bradbury.Admin(servers) as admin:
        for topic in topics:
            admin.create_topic(topic, PARTITIONS)


def produce(servers: str, topic: str, records: Iterable[Record]) -> None:
    """Produce with librdkafka and the partitioner of Java's clients."""
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key, value, timestamp in records:
        producer.produce(topic, value, key, timestamp=timestamp)
    assert producer.flush(RUN_SECONDS) == 0


def produce_to_all(servers: str, topic: str, record: Record) -> None:
    """Produce to each partition."""
    producer = Producer({"bootstrap.servers": servers})
    key, value, timestamp = record
    for partition in range(PARTITIONS):
        producer.produce(topic, value, key, partition, timestamp=timestamp)
    assert producer.flush(RUN_SECONDS) == 0


class Output:
    """What a topic has, and gets."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        self.values: dict[str, list[str | None]] = defaultdict(list)

    def poll(self) -> None:
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            self.values[message.key().decode()].append(None if value is None else value.decode())

    @property
    def newest(self) -> dict[str, str]:
        """The last value of each key that has one."""
        return {key: values[-1] for key, values in self.values.items() if values[-1] is not None}

    def close(self) -> None:
        self._consumer.close()


class Outputs:
    """The output topics of an application."""

    def __init__(self, servers: str, application: Running, *topics: str) -> None:
        self._application = application
        self._outputs = {topic: Output(servers, topic) for topic in topics}

    def __getitem__(self, topic: str) -> Output:
        return self._outputs[topic]

    def wait_for(
        self, condition: Callable[[], bool], push: Callable[[], None] | None = None
    ) -> None:
        """Until it holds; `push` is called again and again meanwhile."""
        deadline = time.monotonic() + RUN_SECONDS
        while not condition():
            for output in self._outputs.values():
                output.poll()
            said = {topic: output.newest for topic, output in self._outputs.items()}
            assert time.monotonic() < deadline, f"{said}\n{self._application.errors()[-4000:]}"
            if push is not None:
                push()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for output in self._outputs.values():
            output.close()


def now_ms() -> int:
    return int(time.time() * 1_000)


# --- counts --------------------------------------------------------------------------------------

WORDS = [f"word-{number}" for number in range(23)]


def lines(first: int, count: int) -> list[Record]:
    """Three words a line."""
    begin = now_ms()
    return [
        (str(n), " ".join(WORDS[(n * k) % len(WORDS)] for k in (1, 3, 7)), begin + n)
        for n in range(first, first + count)
    ]


def counted(records: Iterable[Record]) -> Counter[str]:
    return Counter(word for _, line, _ in records for word in (line or "").split())


def changelog(servers: str, topic: str) -> dict[str, int]:
    """The newest count of each word, as Kafka Streams would restore it."""
    found = {}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    for partition in range(PARTITIONS):
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        offset = 0
        while offset < end:
            for message in consumer.consume(10_000, 0.2):
                assert message.error() is None, message.error()
                [found[message.key().decode()]] = struct.unpack(">q", message.value())
                offset = message.offset() + 1
    consumer.close()
    return found


def test_every_word_is_counted_once(
    application: Application, tool: Tool, servers: str, new_name: str
) -> None:
    output, group = f"{new_name}-counts", f"{new_name}-app"
    repartition, log = f"{group}-counts-repartition", f"{group}-counts-changelog"
    create(servers, new_name, output)
    records = lines(0, 1_000)
    wanted = counted(records)
    produce(servers, new_name, records)
    config = {"num.stream.threads": 2, "repartition.purge.interval.ms": 100}
    with (
        tool.call("KStream.groupBy, count", "KafkaStreams.store"),
        application("counts", store="counts", config=config) as running,
        Outputs(servers, running, output) as outputs,
        bradbury.Admin(servers) as admin,
    ):
        reported = outputs[output].values
        outputs.wait_for(lambda: sum(map(len, reported.values())) >= 3_000)

        def purged() -> bool:
            parts = [(repartition, number) for number in range(PARTITIONS)]
            return sum(at.offset for at in admin.list_offsets(parts, "earliest").values()) == 3_000

        outputs.wait_for(purged)
        running.stop()
        assert running.said("left") == [True]
        # Each update was told, in order: no word counted twice, none omitted.
        assert reported == {w: [str(n) for n in range(1, count + 1)] for w, count in wanted.items()}
        assert running.said("holds") == [{word: str(count) for word, count in wanted.items()}]
        assert changelog(servers, log) == wanted
        assert admin.describe_configs(log)["cleanup.policy"].value == "compact"
        assert admin.describe_configs(repartition)["cleanup.policy"].value == "delete"
        assert admin.describe_configs(repartition)["retention.ms"].value == "-1"
        committed = admin.group_offsets(group)
        assert sum(one.offset for at, one in committed.items() if at.topic == new_name) == 1_000


@deep
def test_the_state_comes_back_from_the_changelog(
    application: Application, tool: Tool, servers: str, new_name: str
) -> None:
    """Twice: from what is on the disk, and, on another disk, from the changelog."""
    output = f"{new_name}-counts"
    create(servers, new_name, output)
    # Kafka Streams does not leave its group when it ends; a static member comes back to its place.
    static = {"group.instance.id": "one"}
    everything: list[Record] = []
    with tool.call("state restored"):
        for turn, folder in enumerate(("state", "state", "elsewhere")):
            records = lines(turn * 500, 500)
            everything += records
            produce(servers, new_name, records)
            with (
                application("counts", folder, store="counts", config=static) as running,
                Outputs(servers, running, output) as outputs,
            ):
                reported = outputs[output].values
                outputs.wait_for(lambda: sum(map(len, reported.values())) >= len(everything) * 3)  # noqa: B023
                running.stop()
                wanted = counted(everything)
                assert reported == {w: [str(n) for n in range(1, c + 1)] for w, c in wanted.items()}
                assert running.said("holds") == [{w: str(count) for w, count in wanted.items()}]


# --- windows -------------------------------------------------------------------------------------

WINDOW_MS = 10_000
STEP_MS = 5_000
GAP_MS = 2_000


def amounts(begin: int) -> list[Record]:
    """Five keys over a minute, at odd times: in bursts with pauses of more than GAP_MS."""
    return [(f"key-{n % 5}", str(n), begin + (n // 40) * 6_500 + (n % 40) * 31) for n in range(400)]


def sums(records: list[Record], step: int) -> dict[str, str]:
    """Sums by key and window, for windows that begin every `step` ms."""
    found: Counter[str] = Counter()
    for key, value, timestamp in records:
        start = timestamp - timestamp % step
        while start > timestamp - WINDOW_MS:
            found[f"{key}@{start}-{start + WINDOW_MS}"] += int(value or 0)
            start -= step
    return {window: str(amount) for window, amount in found.items()}


def sessions(records: list[Record]) -> dict[str, str]:
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, value, timestamp in records:
        by_key[key].append((timestamp, int(value or 0)))
    found = {}
    for key, events in by_key.items():
        start, end, total = events[0][0], events[0][0], 0
        for timestamp, amount in sorted(events):
            if timestamp > end + GAP_MS:
                found[f"{key}@{start}-{end}"] = str(total)
                start, total = timestamp, 0
            end, total = timestamp, total + amount
        found[f"{key}@{start}-{end}"] = str(total)
    return found


def test_windows(application: Application, tool: Tool, servers: str, new_name: str) -> None:
    tumbling, hopping, active = (
        f"{new_name}-{kind}" for kind in ("tumbling", "hopping", "sessions")
    )
    create(servers, new_name, tumbling, hopping, active)
    begin = now_ms() // WINDOW_MS * WINDOW_MS
    records = amounts(begin)
    produce(servers, new_name, records)
    # Time goes on, with the stream: the last windows are over.
    produce_to_all(servers, new_name, ("end", "0", begin + 600_000))

    def without_end(output: Output) -> dict[str, str]:
        return {key: value for key, value in output.newest.items() if not key.startswith("end@")}

    with (
        tool.call("TimeWindows, suppress", "TimeWindows.advanceBy", "SessionWindows"),
        application("windows") as running,
        Outputs(servers, running, tumbling, hopping, active) as outputs,
    ):
        outputs.wait_for(
            lambda: (
                without_end(outputs[tumbling]) == sums(records, WINDOW_MS)
                and without_end(outputs[hopping]) == sums(records, STEP_MS)
                and without_end(outputs[active]) == sessions(records)
            )
        )
        running.stop()
        reported = outputs[tumbling].values
        assert all(len(values) == 1 for values in reported.values()), (
            "a window was told before its end"
        )
        assert sum(int(value or 0) for [value] in reported.values()) == sum(range(400))


# --- joins ---------------------------------------------------------------------------------------


def test_joins(application: Application, tool: Tool, servers: str, new_name: str) -> None:
    sources = {
        kind: f"{new_name}-{kind}" for kind in ("customers", "regions", "orders", "payments")
    }
    results = ("inner", "left", "global", "foreign", "spent", "paid")
    topics = {kind: f"{new_name}-{kind}" for kind in results}
    create(servers, *sources.values(), *topics.values())
    begin = now_ms()
    customers = {f"c{n}": f"name {n}" for n in (1, 2, 3, 10, 20, 100)}
    regions = {f"region-{length}": f"region of {length}" for length in (2, 3)}  # not for c100
    buyers = [*customers, "c4", "c200"]  # two of whom nothing is known
    orders = {f"o{n}": (buyers[n % len(buyers)], n) for n in range(300)}
    paid = [order for n, order in enumerate(orders) if n % 3]
    produce(servers, sources["customers"], [(k, v, begin) for k, v in customers.items()])
    produce(servers, sources["regions"], [(k, v, begin) for k, v in regions.items()])
    text = {order: f"{buyer},{amount}" for order, (buyer, amount) in orders.items()}
    produce(servers, sources["orders"], [(o, t, begin + 1_000) for o, t in text.items()])
    produce(servers, sources["payments"], [(o, f"paid {o}", begin + 2_000) for o in paid])

    def expected() -> dict[str, dict[str, Any]]:
        """The expected results: all of a key for joins of streams, the last for joins of tables."""
        streams: dict[str, dict[str, Any]] = {kind: defaultdict(list) for kind in results}
        spent: Counter[str] = Counter()
        for order, (buyer, amount) in orders.items():
            spent[buyer] += amount
            streams["left"][buyer].append(f"{order}:{customers.get(buyer, 'null')}")
            if buyer in customers:
                streams["inner"][buyer].append(f"{order}:{customers[buyer]}")
                streams["foreign"][order] = f"{text[order]}:{customers[buyer]}"
            if len(buyer) in (2, 3):
                streams["global"][buyer].append(f"{order}:region of {len(buyer)}")
            payment = f"paid {order}" if order in paid else "null"
            streams["paid"][order] = [f"{text[order]}:{payment}"]
        for buyer in {*customers, *spent}:
            streams["spent"][buyer] = f"{customers.get(buyer, 'null')}:{spent.get(buyer, 'null')}"
        return streams

    with (
        tool.call(
            "KStream.join (KTable)", "KStream.leftJoin (KTable)", "KStream.join (GlobalKTable)",
            "KTable.join (foreign key)", "KTable.outerJoin", "KStream.outerJoin (KStream)",
        ),
        application("joins") as running,
        Outputs(servers, running, *topics.values()) as outputs,
    ):  # fmt: skip

        def found() -> dict[str, dict[str, Any]]:
            return {
                kind: (
                    outputs[topics[kind]].newest
                    if kind in ("foreign", "spent")
                    else {k: sorted(map(str, v)) for k, v in outputs[topics[kind]].values.items()}
                )
                for kind in results
            }

        def sorted_expected() -> dict[str, dict[str, Any]]:
            return {
                kind: {k: sorted(v) if isinstance(v, list) else v for k, v in content.items()}
                for kind, content in expected().items()
            }

        late = iter(range(60_000, 10_000_000, 1_000))

        def go_on() -> None:
            """Orders that nobody pays are told when the stream's time has passed them."""
            at = begin + next(late)
            for kind in ("orders", "payments"):
                produce_to_all(servers, sources[kind], ("late", "late,0", at))

        def ended() -> bool:
            without = {
                kind: {key: v for key, v in content.items() if key != "late"}
                for kind, content in found().items()
            }
            return without == sorted_expected()

        outputs.wait_for(ended, push=go_on)
        customers["c1"] = "renamed"
        produce(servers, sources["customers"], [("c1", "renamed", begin + 60_000)])
        renamed = {order for order, (buyer, _) in orders.items() if buyer == "c1"}
        outputs.wait_for(
            lambda: (
                {
                    order: value
                    for order, value in outputs[topics["foreign"]].newest.items()
                    if order in renamed
                }
                == {order: f"{text[order]}:renamed" for order in renamed}
                and outputs[topics["spent"]].newest["c1"].startswith("renamed:")
            )
        )
        produce(servers, sources["orders"], [("o300", "c1,300", begin + 61_000)])
        reported = outputs[topics["inner"]].values
        outputs.wait_for(lambda: reported["c1"][-1] == "o300:renamed")
        running.stop()


# --- more than one instance ----------------------------------------------------------------------


def numbers(first: int, count: int) -> list[Record]:
    begin = now_ms()
    return [(f"key-{n % 40}", str(n), begin) for n in range(first, first + count)]


@deep
def test_nothing_is_left_out_when_an_instance_and_a_broker_die(
    program: Program, tool: Tool, new_name: str, tmp_path: Path
) -> None:
    """At least once: what was read again changes nothing in a set of numbers."""
    output = f"{new_name}-distinct"
    settings: dict[str, Any] = {"topic": new_name, "group": f"{new_name}-app"}
    config = {
        "replication.factor": 3,
        "num.standby.replicas": 1,
        "session.timeout.ms": 10_000,
        "acks": "all",
    }
    with (
        tool.call("two instances, one killed, a broker stopped (replication.factor 3)"),
        bradbury.local(nodes=3, config={"default.replication.factor": 3}) as cluster,
    ):
        servers = settings["servers"] = cluster.bootstrap_servers
        with cluster.admin() as admin:
            for topic in (new_name, output):
                admin.create_topic(topic, PARTITIONS, replication_factor=3)
        produce(servers, new_name, numbers(0, 1_000))
        with (
            program.start(
                "distinct", folder=str(tmp_path / "one"), config=config, **settings
            ) as one,
            program.start(
                "distinct", folder=str(tmp_path / "two"), config=config, **settings
            ) as two,
            Outputs(servers, two, output) as outputs,
        ):

            def seen() -> set[int]:
                return {
                    int(number)
                    for reported in outputs[output].newest.values()
                    for number in reported.split(",")
                }

            def each_has_a_task() -> bool:
                return all(is_running(i) and len(i.said("tasks")[-1]) == 1 for i in (one, two))

            one.wait_for(is_running)
            two.wait_for(is_running)
            outputs.wait_for(lambda: each_has_a_task() and seen() == set(range(1_000)))
            produce(servers, new_name, numbers(1_000, 1_000))
            one.kill()
            produce(servers, new_name, numbers(2_000, 1_000))
            outputs.wait_for(lambda: seen() == set(range(3_000)))
            cluster.stop_node(2)
            produce(servers, new_name, numbers(3_000, 1_000))
            outputs.wait_for(lambda: seen() == set(range(4_000)))
            two.stop()
            by_key = {key: reported.split(",") for key, reported in outputs[output].newest.items()}
            assert by_key == {f"key-{k}": [str(n) for n in range(k, 4_000, 40)] for k in range(40)}


# --- what is not there yet -----------------------------------------------------------------------


@deep
@pytest.mark.parametrize(
    ("call", "config", "said"),
    [
        ("group.protocol=streams", {"group.protocol": "streams"}, "UnsupportedVersion"),
    ],
)
def test_what_is_not_there_yet_ends_the_application_at_once(
    program: Program,
    tool: Tool,
    servers: str,
    new_name: str,
    tmp_path: Path,
    call: str,
    config: dict[str, str],
    said: str,
) -> None:
    create(servers, new_name, f"{new_name}-counts")
    settings = {"servers": servers, "topic": new_name, "group": f"{new_name}-app"}
    causes = program.fails("counts", folder=str(tmp_path / "state"), config=config, **settings)
    line = next(line for line in reversed(causes.splitlines()) if said in line)
    tool.refused(call, line.rpartition("Exception: ")[2])

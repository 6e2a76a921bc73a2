"""Kafka Streams with processing.guarantee=exactly_once_v2: instances die, the result is a batch's.

The applications are those of test_kafka_streams; outputs are read by librdkafka, which reads what is
committed. Two instances share the work; one of them is killed in the middle and comes back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import QUICK_OPTIONS, STREAMS, VERSION
from bradbury.tests.compatibility.support.programs import Program, Running, java_program
from bradbury.tests.compatibility.tools.test_kafka_streams import (
    STEP_MS,
    WINDOW_MS,
    Output,
    Outputs,
    Record,
    amounts,
    counted,
    create,
    is_running,
    lines,
    now_ms,
    produce,
    produce_to_all,
    sessions,
    sums,
)

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.deep]

CONFIG = {
    "processing.guarantee": "exactly_once_v2",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "consumer.metadata.max.age.ms": 2_000,
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    options = (*QUICK_OPTIONS, f"-Djava.io.tmpdir={tmp_path}")
    return java_program("KafkaStreamsProgram.java", STREAMS, options)


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("Kafka Streams", VERSION)


class Pair:
    """Two instances of an application, of which one dies and comes back."""

    def __init__(self, program: Program, command: str, folder: Path, settings: dict[str, Any]):
        self._program = program
        self._command = command
        self._folder = folder
        self._settings = settings
        self._stack = ExitStack()
        self.instances: dict[str, Running] = {}

    def start(self, name: str) -> Running:
        starting = self._program.start(
            self._command, folder=str(self._folder / name), config=CONFIG, **self._settings
        )
        self.instances[name] = self._stack.enter_context(starting)
        self.instances[name].wait_for(is_running)
        return self.instances[name]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def pair(
    program: Program, servers: str, new_name: str, tmp_path: Path
) -> Iterator[Callable[[str], Pair]]:
    opened: list[Pair] = []

    def make(command: str) -> Pair:
        settings = {"servers": servers, "topic": new_name, "group": f"{new_name}-app"}
        opened.append(Pair(program, command, tmp_path, settings))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@contextmanager
def a_death(
    pair: Pair,
    servers: str,
    outputs: Iterable[str],
    feed: Callable[[int], None],
    begun: Callable[[Outputs], bool],
) -> Iterator[Outputs]:
    """The input comes in three parts: before, around and after the death of an instance.

    The first is killed when `begun` holds for what the outputs have; the block is given them.
    """
    one = pair.start("one")
    with Outputs(servers, one, *outputs) as found:
        feed(0)
        pair.start("two")
        found.wait_for(lambda: begun(found))
        feed(1)
        one.kill()
        feed(2)
        pair.start("one")
        yield found
        for instance in pair.instances.values():
            instance.stop()


def test_every_word_is_counted_once_though_an_instance_dies(
    pair: Callable[[str], Pair], tool: Tool, servers: str, new_name: str
) -> None:
    """Every update of every count is in the output exactly once, and in order."""
    output = f"{new_name}-counts"
    create(servers, new_name, output)
    parts = [lines(turn * 700, 700) for turn in range(3)]
    everything = [record for part in parts for record in part]
    wanted = counted(everything)

    def begun(outputs: Outputs) -> bool:
        return sum(map(len, outputs[output].values.values())) >= 500

    with (
        tool.call("exactly_once_v2: count, an instance killed"),
        a_death(
            pair("counts"), servers, [output], lambda n: produce(servers, new_name, parts[n]), begun
        ) as outputs,
    ):
        reported = outputs[output].values
        outputs.wait_for(lambda: sum(map(len, reported.values())) >= len(everything) * 3)
        assert reported == {w: [str(n) for n in range(1, c + 1)] for w, c in wanted.items()}


def test_windows_are_those_of_a_batch_though_an_instance_dies(
    pair: Callable[[str], Pair], tool: Tool, servers: str, new_name: str
) -> None:
    kinds = ("tumbling", "hopping", "sessions")
    tumbling, hopping, active = names = [f"{new_name}-{kind}" for kind in kinds]
    create(servers, new_name, *names)
    begin = now_ms() // WINDOW_MS * WINDOW_MS
    records = amounts(begin)
    third = len(records) // 3
    parts = [records[:third], records[third : 2 * third], records[2 * third :]]

    def feed(number: int) -> None:
        produce(servers, new_name, parts[number])
        if number == 2:  # time goes on, with the stream: the last windows are over
            produce_to_all(servers, new_name, ("end", "0", begin + 600_000))

    def without_end(output: Output) -> dict[str, str]:
        return {key: value for key, value in output.newest.items() if not key.startswith("end@")}

    with (
        tool.call("exactly_once_v2: windows, an instance killed"),
        a_death(
            pair("windows"), servers, names, feed, lambda outputs: bool(outputs[hopping].values)
        ) as outputs,
    ):
        outputs.wait_for(
            lambda: (
                without_end(outputs[tumbling]) == sums(records, WINDOW_MS)
                and without_end(outputs[hopping]) == sums(records, STEP_MS)
                and without_end(outputs[active]) == sessions(records)
            )
        )
        reported = outputs[tumbling].values
        assert all(len(values) == 1 for values in reported.values()), "a window was told twice"


def test_joins_are_those_of_a_batch_though_an_instance_dies(
    pair: Callable[[str], Pair], tool: Tool, servers: str, new_name: str
) -> None:
    """Of a stream with a table: each order once; and a table's sums, by customer."""
    sources = [f"{new_name}-{kind}" for kind in ("customers", "regions", "orders", "payments")]
    results = ("inner", "left", "global", "foreign", "spent", "paid")
    names = {kind: f"{new_name}-{kind}" for kind in results}
    create(servers, *sources, *names.values())
    begin = now_ms()
    customers = {f"c{n}": f"name {n}" for n in range(7)}
    produce(servers, sources[0], [(key, name, begin) for key, name in customers.items()])
    produce(servers, sources[1], [("region-2", "region of 2", begin)])
    orders = {f"o{n}": (f"c{n % 9}", n) for n in range(900)}  # two of whom nothing is known

    def feed(number: int) -> None:
        chosen = list(orders.items())[number * 300 : (number + 1) * 300]
        records: list[Record] = [
            (order, f"{buyer},{amount}", begin + 1_000) for order, (buyer, amount) in chosen
        ]
        produce(servers, sources[2], records)

    joined: dict[str, list[str]] = defaultdict(list)
    spent: dict[str, int] = defaultdict(int)
    for order, (buyer, amount) in orders.items():
        spent[buyer] += amount
        if buyer in customers:
            joined[buyer].append(f"{order}:{customers[buyer]}")
    totals = {buyer: f"{customers.get(buyer, 'null')}:{total}" for buyer, total in spent.items()}
    wanted = {buyer: sorted(each) for buyer, each in joined.items()}

    def found(outputs: Outputs) -> dict[str, list[str]]:
        reported = outputs[names["inner"]].values
        return {buyer: sorted(map(str, each)) for buyer, each in reported.items()}

    with (
        tool.call("exactly_once_v2: joins, an instance killed"),
        a_death(
            pair("joins"), servers, names.values(), feed, lambda outputs: bool(found(outputs))
        ) as outputs,
    ):
        outputs.wait_for(
            lambda: (
                sum(map(len, found(outputs).values())) >= sum(map(len, wanted.values()))
                and outputs[names["spent"]].newest == totals
            )
        )
        assert found(outputs) == wanted

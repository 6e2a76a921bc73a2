"""Transactions of other people's clients, against ours and against Apache Kafka's broker.

Each test runs against both; what only ours did is written down (see the conftest above). A test that
asks more of a broker than Kafka's does fails there.
"""

from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.tests.compatibility.support.compatibility import Ran, Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

OURS = "bradbury"
KAFKA = "kafka"
CONFIG = {
    # Kafka's default is ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}

Java = Callable[..., Ran]


@pytest.fixture(
    scope="session",
    params=[OURS, pytest.param(KAFKA, marks=[pytest.mark.java, pytest.mark.deep])],
)
def broker_kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="session")
def servers(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(f"transactions-{broker_kind}")
    if broker_kind == KAFKA:
        require_kafka()
        with KafkaBroker(folder, heap="384m", config=CONFIG) as broker:
            yield broker.bootstrap_servers
    else:
        with bradbury.local(data_dir=str(folder), config=CONFIG) as cluster:
            yield cluster.bootstrap_servers


@pytest.fixture
def recorder(recorder: Recorder, broker_kind: str) -> Recorder:
    """Only what ours did is written down."""
    return recorder if broker_kind == OURS else Recorder({})


@pytest.fixture
def kafka_tool(java: Java, servers: str) -> Callable[..., str]:
    """Run one of Kafka's command line tools; it must end well. Its output."""

    def call(main_class: str, *arguments: str) -> str:
        ran = java(main_class, "--bootstrap-server", servers, *arguments)
        assert ran.code == 0, f"{ran.code}\n{ran.out}\n{ran.err}"
        return ran.out

    return call


@pytest.fixture
def transactions_tool(kafka_tool: Callable[..., str]) -> Callable[..., list[dict[str, str]]]:
    """Run kafka-transactions; its table as rows by the names of their columns."""

    def call(*arguments: str) -> list[dict[str, str]]:
        said = kafka_tool("org.apache.kafka.tools.TransactionsCommand", *arguments)
        lines = [line.split("\t") for line in said.splitlines() if line.strip()]
        if not lines:
            return []
        head, *rows = ([cell.strip() for cell in line] for line in lines)
        return [dict(zip(head, row, strict=True)) for row in rows]

    return call


__all__ = ["Java", "Tool"]

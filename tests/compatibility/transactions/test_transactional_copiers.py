"""Records are moved from topic to topic in transactions, by clients of Java, Go and Node.js.

Each client has a small program of its own (tests/compatibility/support/programs.py) that reads as a
member of a group, writes what it has read, commits both in one transaction, and aborts every third of
them on purpose. One is killed in the middle; another one goes on with its transactional id.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import KAFKA, LOGGER, VERSION, Jars
from bradbury.tests.compatibility.support.programs import (
    Program,
    Running,
    go_program,
    java_program,
    node_program,
    version_of,
)

from .transactional_clients import committed_offset, read_with_confluent

pytestmark = [pytest.mark.slow, pytest.mark.deep]

SECONDS = 60.0
COUNT = 3_000
PARTITIONS = 2
SIZE = 50
# Of transaction.version 1: partitions are added by AddPartitionsToTxn, and an epoch lasts.
OLD_VERSION = "3.6.2"
OLD_JAVA = Jars(
    f"kafka-clients-{OLD_VERSION}",
    (
        f"org.apache.kafka:kafka-clients:{OLD_VERSION}",
        "com.fasterxml.jackson.core:jackson-databind:2.19.0",
        LOGGER,
    ),
)
JAVA = "KafkaTransactionsProgram.java"
COPIERS: dict[str, tuple[str, Callable[[], Program]]] = {
    "java": (VERSION, lambda: java_program(JAVA, KAFKA)),
    "old-java": (OLD_VERSION, lambda: java_program(JAVA, OLD_JAVA)),
    "franz_go": (version_of("franz_go"), lambda: go_program("franz_go")),
    "sarama": (version_of("sarama"), lambda: go_program("sarama")),
    "kafkajs": (version_of("kafkajs"), lambda: node_program("kafkajs")),
}
SHOWN = {"java": "Java clients", "old-java": "Java clients", "franz_go": "franz-go"}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.java) if "java" in name else name for name in COPIERS
    ]
)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def program(name: str) -> Program:
    return COPIERS[name][1]()


@pytest.fixture
def tool(recorder: Recorder, name: str) -> Tool:
    return recorder.tool(SHOWN.get(name, name), COPIERS[name][0])


@pytest.fixture
def settings(servers: str, new_name: str) -> dict[str, Any]:
    """Two topics, the first of which has COUNT records."""
    with bradbury.Admin(servers) as admin:
        for topic in (new_name, f"{new_name}-out"):
            admin.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(COUNT):
        producer.produce(new_name, f"{number}", f"key-{number % 20}", number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return {
        "servers": servers.split(","),
        "topic": new_name,
        "output": f"{new_name}-out",
        "group": f"{new_name}-group",
        "id": f"{new_name}-id",
        "size": SIZE,
        "abortEvery": 3,
    }


def moved(copier: Running) -> int:
    return sum(copier.said("committed"))


def test_each_record_is_moved_once_though_transactions_abort_and_a_copier_dies(
    program: Program, tool: Tool, servers: str, settings: dict[str, Any]
) -> None:
    with tool.call("transactions: read, process, write in a group; killed and restarted"):
        with program.start("copy", **settings) as first:
            first.wait_for(lambda one: moved(one) >= COUNT // 4 and bool(one.said("aborted")))
            first.kill()
        with program.start("copy", **settings) as second:
            second.wait_for(lambda one: _is_all_moved(servers, settings))
            second.stop()
            assert second.said("aborted")
            assert second.said("left")
        for partition in range(PARTITIONS):
            wanted = [f"{number}" for number in range(partition, COUNT, PARTITIONS)]
            place = settings["output"], partition
            assert read_with_confluent(servers, place, "read_committed") == wanted
            everything = read_with_confluent(servers, place, "read_uncommitted")
            assert len(everything) > len(wanted), "nothing was aborted"
            place = settings["topic"], partition
            assert committed_offset(servers, settings["group"], place) == len(wanted)


def _is_all_moved(servers: str, settings: dict[str, Any]) -> bool:
    return all(
        committed_offset(servers, settings["group"], (settings["topic"], partition))
        == COUNT // PARTITIONS
        for partition in range(PARTITIONS)
    )

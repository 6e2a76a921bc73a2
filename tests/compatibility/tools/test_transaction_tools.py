"""Admin and `bradbury transactions`: beside kafka-transactions.sh, on one cluster."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.cli.main import run
from bradbury.protocol.errors import (
    ProducerFenced,
    TransactionalIdNotFound,
)
from bradbury.tests.compatibility.support.compatibility import Ran
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [pytest.mark.slow, pytest.mark.java]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
_VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture(
    scope="module",
    params=[pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.deep]), "ours"],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    require_kafka()
    if request.param == "ours":
        with bradbury.local(config={_VERIFICATION: "false"}) as cluster:
            yield cluster.bootstrap_servers
        return
    folder = tmp_path_factory.mktemp("kafka")
    config = {_VERIFICATION: "false"}
    features = {"transaction.version": 1}
    with KafkaBroker(folder, heap="256m", config=config, features=features) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[bradbury.Admin]:
    with bradbury.Admin(servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: bradbury.Admin, new_name: str) -> str:
    admin.create_topic(new_name, 2)
    return new_name


@pytest.fixture
def command(servers: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        capfd.readouterr()
        code = run(["transactions", *arguments, "--bootstrap", servers])
        captured = capfd.readouterr()
        assert code == 0, captured.err
        return captured.out

    return call


@contextmanager
def open_transaction(servers: str, topic: str) -> Iterator[bradbury.Producer]:
    with bradbury.Producer(servers, transactional_id=topic) as producer:
        producer.begin()
        producer.send(topic, b"1", partition=0).result(30)
        producer.send(topic, b"1", partition=1).result(30)
        yield producer


Java = Callable[..., Ran]


def theirs(java: Java, servers: str, *arguments: str) -> list[list[str]]:
    """The rows of kafka-transactions.sh."""
    ran = java(TOOL, "--bootstrap-server", servers, *arguments)
    assert ran.code == 0, ran.err
    return [[word.strip() for word in line.split("\t")][:-1] for line in ran.out.splitlines()][1:]


def test_an_open_transaction_is_listed_and_described(
    servers: str, topic: str, admin: bradbury.Admin, command: Callable[..., str], java: Java
) -> None:
    with open_transaction(servers, topic):
        (listed,) = [one for one in admin.list_transactions() if one.transactional_id == topic]
        (described,) = admin.describe_transactions([topic])
        assert listed.state == described.state == "Ongoing"
        assert described.partitions == ((topic, 0), (topic, 1))
        assert listed in admin.list_transactions(states=["Ongoing"])
        assert listed not in admin.list_transactions(states=["Empty"])
        assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
        assert listed not in admin.list_transactions(running_longer_than_ms=3_600_000)
        assert listed in admin.list_transactions(running_longer_than_ms=0)
        assert admin.list_transactions(pattern=f"{topic[:-1]}.") == [listed]

        shown = json.loads(command("list", "--json", "--state", "Ongoing"))
        rows = theirs(java, servers, "list")
        assert [topic, str(listed.coordinator), str(listed.producer_id), "Ongoing"] in rows
        assert listed._asdict() in shown
        (row,) = json.loads(command("describe", topic, "--json"))
        assert row["partitions"] == [{"topic": topic, "partition": n} for n in (0, 1)]
        assert row["timeout_ms"] == 60_000
        assert topic in command("describe", topic)
        assert topic in command("list")

        (active,) = admin.describe_producers([(topic, 1)])[topic, 1]
        assert active.transaction_start_offset == 0
        (their_row,) = theirs(
            java, servers, "describe-producers", "--topic", topic, "--partition", "1"
        )
        assert their_row == [
            str(active.producer_id),
            str(active.producer_epoch),
            str(active.coordinator_epoch),
            str(active.last_sequence),
            str(active.last_timestamp),
            "0",
        ]
        assert str(active.producer_id) in command("producers", topic, "--partition", "1")


def test_an_unknown_id_is_named(admin: bradbury.Admin) -> None:
    with pytest.raises(TransactionalIdNotFound, match="bradbury transactions list"):
        admin.describe_transactions(["nobody"])


def test_fencing_ends_a_producer_and_what_it_left(
    servers: str, topic: str, admin: bradbury.Admin, command: Callable[..., str]
) -> None:
    with open_transaction(servers, topic) as producer:
        before = admin.describe_transactions([topic])[0]
        fenced = admin.fence_producers([topic])[topic]
        assert fenced.producer_epoch > before.producer_epoch
        with pytest.raises(ProducerFenced):
            producer.commit()
    assert topic in json.loads(command("fence", topic, "--json"))


def test_a_hanging_transaction_is_found_and_ended(
    servers: str, topic: str, admin: bradbury.Admin, command: Callable[..., str], java: Java
) -> None:
    hang(servers, topic)
    (found,) = admin.find_hanging_transactions([(topic, 0), (topic, 1)], older_than_ms=0)
    assert found.partition == (topic, 0)
    start = found.producer.transaction_start_offset
    assert start is not None
    assert theirs(java, servers, "find-hanging", "--topic", topic) == []
    assert json.loads(command("find-hanging", topic, "--json")) == []  # it is young
    (shown,) = json.loads(command("find-hanging", topic, "--older-than", "0", "--json"))
    assert (shown["partition"], shown["transaction_start_offset"]) == (0, start)
    assert topic in command("find-hanging", topic, "--older-than", "0")
    command("abort", topic, "--partition", "0", "--start-offset", str(start))
    assert admin.find_hanging_transactions([(topic, 0)], older_than_ms=0) == []
    with bradbury.Consumer(
        bootstrap=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, 0)])
        (end,) = consumer.end_offsets().values()
        assert end == start + 2


def hang(servers: str, topic: str) -> None:
    """A batch that came when its transaction was over, as before KIP-890."""
    with bradbury.Producer(servers, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"1", partition=1)
        transactions = producer._transactions
        assert transactions is not None
        manager = transactions.manager
        manager.begin()
        manager.transaction_version = 1  # or the broker would add the partition
        manager._partitions.add([bradbury.TopicPartition(topic, 0)])  # nobody asked
        producer.send(topic, b"late", partition=0).result(30)
        manager.phase = type(manager.phase).READY  # and nothing ends it

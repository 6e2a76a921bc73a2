"""The transactional producers and the read_committed consumers of Python's clients."""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import pytest
from confluent_kafka import Producer

from bradbury.tests.compatibility.support.compatibility import Recorder, Tool

from .transactional_clients import (
    CLIENTS,
    FENCED,
    READERS,
    TransactionalClient,
    committed_offset,
    read_with_confluent,
    what,
)

pytestmark = pytest.mark.slow
deep = pytest.mark.deep
SECONDS = 60.0
Open = Callable[..., TransactionalClient]


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def tool(recorder: Recorder, client: str) -> Tool:
    return recorder.tool(client, version(client))


@pytest.fixture
def open_producer(client: str, servers: str) -> Iterator[Open]:
    """A producer of the client in question: open_producer("id", timeout_ms=...)."""
    opened: list[TransactionalClient] = []

    def start(transactional_id: str, **settings: Any) -> TransactionalClient:
        opened.append(CLIENTS[client](servers, transactional_id, **settings))
        return opened[-1]

    yield start
    for one in opened:
        try:
            one.close()
        except Exception as error:  # one that was fenced says so once more
            assert what(error) in FENCED[client]


def numbers(first: int, count: int) -> list[str]:
    return [f"{number:04}" for number in range(first, first + count)]


def test_only_what_is_committed_is_read(
    tool: Tool, open_producer: Open, client: str, servers: str, topic: str
) -> None:
    """In both partitions and in order, by the readers of all clients."""
    producer = open_producer(f"{topic}-id")
    with tool.call(
        "transactions: init, begin, commit", "transactions: abort", "transactions: read_committed"
    ):
        for first, ends in ((0, producer.commit), (10, producer.abort), (20, producer.commit)):
            producer.begin()
            for value in numbers(first, 10):
                producer.send(topic, int(value) % 2, value)
            producer.flush()
            ends()
        for partition in (0, 1):
            place = topic, partition
            wanted = [v for v in numbers(0, 30) if int(v) % 2 == partition]
            committed = [value for value in wanted if not 10 <= int(value) < 20]
            for name in (client, "confluent-kafka"):
                assert READERS[name](servers, place, "read_committed") == committed, name
                assert READERS[name](servers, place, "read_uncommitted") == wanted, name


@deep
def test_an_open_transaction_holds_back_what_comes_behind_it(
    tool: Tool, open_producer: Open, client: str, servers: str, topic: str
) -> None:
    producer = open_producer(f"{topic}-id")
    with tool.call("transactions: last stable offset"):
        producer.begin()
        producer.send(topic, 0, "in the transaction")
        producer.flush()
        plain = Producer({"bootstrap.servers": servers})
        plain.produce(topic, "behind it", None, 0)
        assert plain.flush(SECONDS) == 0
        both = ["in the transaction", "behind it"]
        read = READERS[client]
        assert read(servers, (topic, 0), "read_committed") == []
        assert read(servers, (topic, 0), "read_uncommitted") == both
        producer.commit()
        assert read(servers, (topic, 0), "read_committed") == both


@deep
def test_offsets_and_output_are_there_together_or_not_at_all(
    tool: Tool, open_producer: Open, client: str, servers: str, filled: str
) -> None:
    producer = open_producer(f"{filled}-id")
    group = f"{filled}-group"
    membership, leave = CLIENTS[client].membership(servers, group, filled)
    with tool.call("transactions: send offsets"):
        for ends in (producer.abort, producer.commit):
            producer.begin()
            for value in numbers(0, 10):
                producer.send(filled, 1, value)
            producer.send_offsets({(filled, 0): 10}, membership)
            producer.flush()
            assert read_with_confluent(servers, (filled, 1), "read_committed") == []
            ends()
            if ends == producer.abort:
                assert committed_offset(servers, group, (filled, 0)) is None
        assert committed_offset(servers, group, (filled, 0)) == 10
        assert read_with_confluent(servers, (filled, 1), "read_committed") == numbers(0, 10)
    leave()


@deep
def test_who_has_left_its_group_commits_no_offsets(
    tool: Tool, open_producer: Open, client: str, servers: str, filled: str
) -> None:
    """KIP-447: the group's generation fences a producer, whatever its transactional id."""
    if client == "aiokafka":
        pytest.skip("it commits without a generation")
    producer = open_producer(f"{filled}-id")
    group = f"{filled}-group"
    membership, leave = CLIENTS[client].membership(servers, group, filled)
    leave()
    with tool.call("transactions: a member that has left is refused"):
        producer.begin()
        producer.send(filled, 1, "never seen")
        with pytest.raises(Exception, match=r"(?i)generation|member|CommitFailed"):
            producer.send_offsets({(filled, 0): 10}, membership)
        producer.abort()
        assert committed_offset(servers, group, (filled, 0)) is None
        producer.begin()
        producer.send(filled, 1, "seen")
        producer.commit()
        assert read_with_confluent(servers, (filled, 1), "read_committed") == ["seen"]


@deep
def test_a_second_producer_of_an_id_fences_the_first(
    tool: Tool, open_producer: Open, client: str, servers: str, topic: str
) -> None:
    """The second one aborts what the first has begun; the first ends nothing any more."""
    first = open_producer(f"{topic}-id")
    with tool.call("transactions: fencing"):
        first.begin()
        first.send(topic, 0, "of the first")
        first.flush()
        second = open_producer(f"{topic}-id")
        second.begin()
        second.send(topic, 0, "of the second")
        second.commit()
        with pytest.raises(Exception) as raised:
            first.commit()
        assert what(raised.value) in FENCED[client], raised.value
        found = read_with_confluent(servers, (topic, 0), "read_committed")
        assert found == ["of the second"]


@deep
def test_a_transaction_that_nobody_ends_is_aborted_after_its_timeout(
    tool: Tool, open_producer: Open, client: str, servers: str, topic: str
) -> None:
    producer = open_producer(f"{topic}-id", timeout_ms=2_000)
    with tool.call("transactions: transaction.timeout.ms"):
        producer.begin()
        producer.send(topic, 0, "too late")
        producer.flush()
        plain = Producer({"bootstrap.servers": servers})
        plain.produce(topic, "behind it", None, 0)
        assert plain.flush(SECONDS) == 0
        while not (found := read_with_confluent(servers, (topic, 0), "read_committed")):
            pass  # pytest's own timeout ends it
        assert found == ["behind it"]
        with pytest.raises(Exception) as raised:
            producer.commit()
        assert what(raised.value) in FENCED[client], raised.value


@deep
def test_a_transaction_without_records_is_one_all_the_same(
    tool: Tool, open_producer: Open, servers: str, topic: str
) -> None:
    producer = open_producer(f"{topic}-id")
    with tool.call("transactions: without records"):
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
        producer.begin()
        producer.send(topic, 0, "a record")
        producer.commit()
        assert read_with_confluent(servers, (topic, 0), "read_committed") == ["a record"]


@deep
def test_one_transaction_is_in_many_partitions(
    tool: Tool, open_producer: Open, servers: str, topic: str, new_name: str
) -> None:
    from bradbury import Admin

    wide = f"{new_name}-wide"
    with Admin(servers) as admin:
        admin.create_topic(wide, 12)
    producer = open_producer(f"{topic}-id")
    with tool.call("transactions: many partitions"):
        for number in range(3):
            producer.begin()
            for partition in range(12):
                producer.send(wide, partition, f"{number}")
            producer.send(topic, 0, f"{number}")
            (producer.abort if number == 1 else producer.commit)()
        places = [(wide, partition) for partition in range(12)] + [(topic, 0)]
        for place in places:
            assert read_with_confluent(servers, place, "read_committed") == ["0", "2"]

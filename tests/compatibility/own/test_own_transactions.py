"""Our own clients in transactions: against Apache Kafka in both generations, and against Bradbury.

What is right is what Kafka's broker does; the same scenarios then run against our own.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import bradbury
from bradbury import classic
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.cli.main import run
from bradbury.protocol.errors import (
    InvalidTransactionTimeout,
    InvalidTxnState,
    MessageTooLarge,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
)
from bradbury.tests.compatibility.support.kafka_jars import require_kafka
from bradbury.tests.support.wire.fault_proxy import FaultProxy

pytestmark = pytest.mark.slow

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 24, 25, 26, 28
_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(2, id="kafka", marks=[pytest.mark.java, pytest.mark.deep]),
        pytest.param(
            1, id="kafka-transaction.version-1", marks=[pytest.mark.java, pytest.mark.deep]
        ),
        pytest.param(None, id="ours"),
    ],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param is None:
        with bradbury.local() as cluster:
            yield cluster.bootstrap_servers
        return
    require_kafka()
    features = {"transaction.version": request.param}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m", features=features) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def name() -> str:
    return f"transactions-{next(_numbers)}"


@pytest.fixture
def topic(servers: str, name: str) -> str:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(name, 2)
    return name


@pytest.fixture
def producer(servers: str, name: str) -> Iterator[Callable[..., bradbury.Producer]]:
    """Makes producers with one transactional id, and closes them."""
    made: list[bradbury.Producer] = []

    def make(bootstrap: str = servers, **options: object) -> bradbury.Producer:
        made.append(
            bradbury.Producer(
                bootstrap, **{"transactional_id": name, "retry_backoff_ms": 20, **options}
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close(5)


Make = Callable[..., bradbury.Producer]


def values_in(servers: str, topic: str, level: str = "read_committed") -> list[bytes]:
    """What a consumer of this isolation level finds up to where it may read now."""
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level=level
    ) as consumer:
        ends = consumer.end_offsets()
        found: list[bytes] = []
        while any(consumer.position(key) < end for key, end in ends.items()):
            found += consumer.poll(100).column("value").to_pylist()
    return sorted(found)


def test_what_is_committed_is_there_and_what_is_aborted_is_not(
    servers: str, topic: str, producer: Make
) -> None:
    one = producer()
    with one.transaction():
        for number in range(4):
            one.send(topic, b"committed %d" % number, partition=number % 2)
    with pytest.raises(ValueError), one.transaction():
        one.send(topic, b"aborted", partition=0).result(30)
        raise ValueError
    with one.transaction():
        one.send_batch(topic, [b"table"] * 3, partition=1)
    committed = [b"committed 0", b"committed 1", b"committed 2", b"committed 3", *[b"table"] * 3]
    assert values_in(servers, topic) == committed
    assert values_in(servers, topic, "read_uncommitted") == sorted([*committed, b"aborted"])


def test_an_open_transaction_is_not_read_and_holds_up_what_comes_after_it(
    servers: str, topic: str, producer: Make
) -> None:
    one = producer()
    one.begin()
    one.send(topic, b"open", partition=0).result(30)
    with bradbury.Producer(servers) as other:
        other.send(topic, b"after", partition=0).result(30)
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert consumer.poll(300).num_rows == 0
        assert consumer.end_offsets((topic, 0)) == {(topic, 0): 0}
        assert consumer.lag((topic, 0)) == {(topic, 0): 0}
        one.commit()
        found: list[bytes] = []
        while len(found) < 2:
            found += consumer.poll(1000).column("value").to_pylist()
        assert found == [b"open", b"after"]
        while consumer.position((topic, 0)) < 3:  # past the marker
            assert consumer.poll(100).num_rows == 0
        assert consumer.current_lag((topic, 0)) == 0


def test_of_many_aborted_and_committed_transactions_each_record_is_read_once_and_in_order(
    servers: str, topic: str, producer: Make
) -> None:
    producers = [producer(transactional_id=f"{topic}-{number}") for number in range(3)]
    expected: list[bytes] = []
    for number in range(30):
        one = producers[number % 3]
        one.begin()
        one.send_batch(topic, [b"%d-%d" % (number, row) for row in range(5)], partition=0)
        one.flush()
        if number % 2:
            one.abort()
        else:
            one.commit()
            expected += [b"%d-%d" % (number, row) for row in range(5)]
    for kernels_first in (10, None):  # in small polls, and in large ones
        with bradbury.Consumer(
            topic,
            bootstrap=servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=kernels_first,
            max_partition_fetch_bytes=700,
        ) as consumer:
            found: list[bytes] = []
            while len(found) < len(expected):
                found += consumer.poll(1000).column("value").to_pylist()
            assert found == expected


def test_offsets_are_the_transactions(servers: str, topic: str, producer: Make) -> None:
    with bradbury.Producer(servers) as other:
        other.send_batch(topic, [b"input"] * 5, partition=0).result(30)
    one = producer()
    with bradbury.Consumer(
        topic,
        bootstrap=servers,
        group=f"{topic}-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    ) as consumer:
        read = 0
        while read < 5:
            read += consumer.poll(1000).num_rows
        one.begin()
        one.send_offsets({(topic, 0): 2}, consumer.group_metadata())
        one.abort()
        assert consumer.committed((topic, 0)) == {(topic, 0): None}
        with one.transaction():
            one.send_offsets({(topic, 0): 3}, consumer.group_metadata())
            one.send(topic, b"output", partition=1)
            one.send_offsets({(topic, 0): bradbury.OffsetAndMetadata(4, "by hand")}, f"{topic}-x")
        assert consumer.committed((topic, 0)) == {(topic, 0): 3}
        gone_on = replace(consumer.group_metadata(), generation=99)
        with pytest.raises(TransactionAbortable, match="ILLEGAL_GENERATION"), one.transaction():
            one.send(topic, b"of a member that is not one any more", partition=1)
            one.send_offsets({(topic, 0): 5}, gone_on)
        assert consumer.committed((topic, 0)) == {(topic, 0): 3}
    assert b"output" in values_in(servers, topic)
    assert len(values_in(servers, topic)) == 6


def test_pending_offsets_are_waited_for_by_who_takes_over(
    servers: str, topic: str, producer: Make
) -> None:
    one, group = producer(), f"{topic}-group"
    with bradbury.Producer(servers) as other:
        other.send_batch(topic, [b"input"] * 5, partition=0).result(30)
    one.begin()
    one.send_offsets({(topic, 0): 4}, group)
    with bradbury.Consumer(
        topic,
        bootstrap=servers,
        group=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        assert consumer.poll(500).num_rows == 0
        one.commit()
        while not (rows := consumer.poll(1000)).num_rows:
            pass
        assert rows.column("offset").to_pylist() == [4]


def test_a_new_producer_with_the_same_id_ends_the_one_before(
    servers: str, topic: str, producer: Make
) -> None:
    first = producer()
    first.begin()
    first.send(topic, b"left open", partition=0).result(30)
    second = producer()
    with second.transaction():
        second.send(topic, b"second", partition=0)
    for call in (first.commit, first.abort, first.begin):
        with pytest.raises(ProducerFenced, match=r"another producer .* close\(\)"):
            call()
    with pytest.raises(ProducerFenced):
        first.send(topic, b"x")
    assert values_in(servers, topic) == [b"second"]


def test_a_fenced_producers_records_do_not_reach_the_log(
    servers: str, topic: str, producer: Make
) -> None:
    first, second = producer(), producer()
    first.begin()
    second.init_transactions()
    future = first.send(topic, b"of a zombie", partition=0)
    with pytest.raises((TransactionAbortable, ProducerFenced)):
        first.commit()
    assert future.exception() is not None
    with pytest.raises(ProducerFenced):
        first.abort()
    assert values_in(servers, topic, "read_uncommitted") == []


def test_a_block_that_waits_for_a_fenced_producers_record_says_that_it_is_fenced(
    servers: str, topic: str, producer: Make
) -> None:
    """The batch's refusal does not say whether the producer may go on: its abort does."""
    first, second = producer(), producer()
    with pytest.raises(ProducerFenced, match="another producer"), first.transaction():
        first.send(topic, b"before", partition=0).result(30)
        second.init_transactions()
        first.send(topic, b"of a zombie", partition=1).result(30)
    assert values_in(servers, topic) == []


def test_a_block_that_does_not_wait_for_the_record_says_so_too(
    servers: str, topic: str, producer: Make
) -> None:
    """Its commit fails for the record, or, if that has failed by then, as the producer is fenced."""
    first, second = producer(), producer()
    with pytest.raises(ProducerFenced, match="another producer"), first.transaction():
        first.send(topic, b"before", partition=0).result(30)
        second.init_transactions()
        first.send(topic, b"of a zombie", partition=1)
    assert values_in(servers, topic) == []


def test_a_coroutines_block_that_waits_for_a_fenced_record_says_so_too(
    servers: str, topic: str, name: str
) -> None:
    async def run() -> None:
        async with (
            bradbury.AsyncProducer(servers, transactional_id=name) as first,
            bradbury.AsyncProducer(servers, transactional_id=name) as second,
        ):
            with pytest.raises(ProducerFenced, match="another producer"):
                async with first.transaction():
                    await first.send_and_wait(topic, b"before", partition=0)
                    await second.init_transactions()
                    await first.send_and_wait(topic, b"of a zombie", partition=1)

    asyncio.run(run())
    assert values_in(servers, topic) == []


def test_a_failed_record_makes_the_commit_fail_and_the_producer_goes_on(
    servers: str, topic: str, producer: Make
) -> None:
    one = producer(max_request_size=4_000_000)
    one.begin()
    small = one.send(topic, b"small", partition=1)
    large = one.send(topic, b"x" * 2_000_000, partition=0)
    with pytest.raises(TransactionAbortable, match="MESSAGE_TOO_LARGE|max.message.bytes") as raised:
        one.commit()
    assert isinstance(raised.value.__cause__, MessageTooLarge)
    assert isinstance(large.exception(), MessageTooLarge)
    assert small.done()
    one.abort()
    for _ in range(3):
        with one.transaction():
            one.send(topic, b"good", partition=0)
            one.send(topic, b"good", partition=1)
    assert values_in(servers, topic) == [b"good"] * 6


def test_a_record_that_is_refused_here_makes_the_commit_fail(topic: str, producer: Make) -> None:
    one = producer()
    one.begin()
    with pytest.raises(MessageTooLarge):
        one.send(topic, b"x" * 2_000_000)
    with pytest.raises(TransactionAbortable):
        one.commit()
    one.abort()


def test_an_abort_drops_what_is_not_on_its_way(servers: str, topic: str, producer: Make) -> None:
    one = producer(linger_ms=60_000, delivery_timeout_ms=120_000)
    one.begin()
    future = one.send(topic, b"lingers")
    one.abort()
    assert isinstance(future.exception(0), TransactionAbortable)
    assert values_in(servers, topic, "read_uncommitted") == []


@pytest.mark.parametrize(
    "api", [PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS, "InitProducerId"]
)
def test_lost_answers_double_and_lose_nothing(
    servers: str, topic: str, producer: Make, api: int | str
) -> None:
    key = 22 if isinstance(api, str) else api
    with FaultProxy(servers) as proxy:
        one = producer(proxy.address)
        proxy.lose_answer(key, 1)
        for number in range(6):
            with one.transaction():
                one.send(topic, b"%d" % number, partition=0)
                one.send(topic, b"%d" % number, partition=1)
                one.send_offsets({(topic, 0): number}, f"{topic}-group")
        one.close()
    assert values_in(servers, topic) == sorted(2 * [b"%d" % number for number in range(6)])


def test_close_aborts_what_is_open_so_that_readers_go_on(
    servers: str, topic: str, producer: Make
) -> None:
    one = producer()
    one.begin()
    one.send(topic, b"open", partition=0).result(30)
    one.close()
    with bradbury.Producer(servers) as other:
        other.send(topic, b"after", partition=0).result(30)
    assert values_in(servers, topic) == [b"after"]


def test_a_dropped_producer_aborts_what_is_open(servers: str, topic: str, name: str) -> None:
    one = bradbury.Producer(servers, transactional_id=name)
    one.begin()
    one.send(topic, b"open", partition=0).result(30)
    thread = one._client.io
    del one
    assert thread.join(30)
    with bradbury.Producer(servers) as other:
        other.send(topic, b"after", partition=0).result(30)
    assert values_in(servers, topic) == [b"after"]


def test_coroutines_have_the_same_calls(servers: str, topic: str, name: str) -> None:
    async def run() -> None:
        async with bradbury.AsyncProducer(servers, transactional_id=name) as one:
            with pytest.raises(InvalidTxnState, match="no transaction is open"):
                await one.send(topic, b"outside")
            async with one.transaction():
                await one.send(topic, b"committed", partition=0)
                await one.send_offsets({(topic, 0): 1}, f"{topic}-group")
            with pytest.raises(ValueError):
                async with one.transaction():
                    await one.send_and_wait(topic, b"aborted", partition=0)
                    raise ValueError
            await one.begin()
            await one.send_and_wait(topic, b"open", partition=0)
        async with bradbury.AsyncConsumer(
            topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            found = (await consumer.poll(10_000)).column("value").to_pylist()
        assert found == [b"committed"]

    asyncio.run(run())


def test_a_transaction_timeout_that_the_brokers_do_not_allow_says_so(producer: Make) -> None:
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
        producer(transaction_timeout_ms=2_000_000_000).init_transactions()


def test_calls_in_the_wrong_order_say_what_to_do(servers: str, topic: str, producer: Make) -> None:
    one = producer()
    for call in (one.commit, one.abort, lambda: one.send_offsets({(topic, 0): 1}, "g")):
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            call()
    one.begin()
    with pytest.raises(InvalidTxnState, match="first"):
        one.begin()
    one.commit()
    with (
        bradbury.Producer(servers) as other,
        pytest.raises(InvalidTxnState, match="transactional_id="),
    ):
        other.begin()


def test_a_call_that_times_out_goes_on_and_can_be_repeated(
    servers: str, topic: str, producer: Make
) -> None:
    with FaultProxy(servers) as proxy:
        one = producer(proxy.address, request_timeout_ms=2_000)
        one.begin()
        one.send(topic, b"1", partition=0).result(30)
        proxy.lose_answer(END, 1)
        with pytest.raises(RequestTimedOut, match="call it again"):
            one.commit(0)
        with pytest.raises(InvalidTxnState, match="call it again first"):
            one.abort()
        one.commit()
        one.close()
    assert values_in(servers, topic) == [b"1"]


def test_the_classic_consumer_omits_what_was_aborted(
    servers: str, topic: str, producer: Make
) -> None:
    one = producer()
    for number in range(6):
        one.begin()
        one.send(topic, b"%d" % number, partition=0)
        one.flush()
        (one.abort if number % 3 == 1 else one.commit)()
    assert values_in(servers, topic) == [b"0", b"2", b"3", b"5"]  # the markers are all there
    host, _, port = servers.rpartition(":")
    for level, expected in (("read_committed", "0235"), ("read_uncommitted", "012345")):
        with classic.SimpleConsumer(host, int(port), isolation_level=level) as simple:
            found = simple.fetch(classic.FetchRequest(topic, 0, 0, 1_000_000))
            values = [bytes(message.payload) for message, _ in found]
        assert values == [b"%d" % int(digit) for digit in expected]
        assert found.next_offset == 12


def test_the_command_line_reads_what_is_committed(
    servers: str, topic: str, producer: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    one = producer()
    with one.transaction():
        one.send(topic, b"committed", partition=0)
    one.begin()
    one.send(topic, b"aborted", partition=0).result(30)
    one.abort()
    assert values_in(servers, topic) == [b"committed"]
    level = ("--isolation-level", "read_committed")
    for options, expected in ((level, ["committed"]), ((), ["committed", "aborted"])):
        command = ("consume", topic, "--from-beginning", "--until-end", "--bootstrap", servers)
        capfd.readouterr()
        assert run([*command, *options]) == 0
        assert capfd.readouterr().out.splitlines() == expected

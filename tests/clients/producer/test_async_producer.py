"""Does the asynchronous producer keep the promises of the other one, and never hold up its loop?"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import bradbury
from bradbury.protocol.errors import (
    InvalidConfig,
    KafkaError,
    MessageTooLarge,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from bradbury.protocol.messages.produce import ProduceRequest, ProduceResponse
from bradbury.tests.support.ray.event_loops import LOOPS, WaitsOf, run_on
from bradbury.tests.support.wire.scripted_broker import SILENCE, ScriptedBroker, answer

NewTopic = Callable[..., str]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return lambda main: run_on(request.param, main)


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        end = sum(consumer.end_offsets().values())
        found: list[bytes] = []
        while len(found) < end:
            found += consumer.poll().column("value").to_pylist()
    return found


def test_a_record_is_accepted_and_then_acknowledged(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)

    async def main() -> None:
        async with bradbury.AsyncProducer(bootstrap) as producer:
            future = await producer.send(
                topic, "text", b"k", partition=2, timestamp_ms=5, headers={"h": b"1"}
            )
            assert await future == (topic, 2, 0, 5)
            assert (await producer.send_and_wait(topic, b"", partition=2)).offset == 1
            table = await (await producer.send_batch(topic, [b"x"] * 10, partition=2))
            assert (table.ranges[0].start, table.ranges[0].end) == (2, 12)
            assert await producer.partitions_for(topic) == 3
            assert producer.metrics()["producer-metrics"]["record-send-total"] == 12

    run(main())


def test_a_partition_that_was_added_is_found_when_it_is_asked_for(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1)

    async def main() -> None:
        async with bradbury.AsyncProducer(bootstrap) as producer:
            await producer.send_and_wait(topic, b"old", partition=0)
            with bradbury.Admin(bootstrap) as admin:
                await asyncio.to_thread(admin.create_partitions, topic, 3)
            assert (await producer.send_and_wait(topic, b"new", partition=1)).partition == 1
            table = await (await producer.send_batch(topic, [b"new"], partition=2))
            assert table.count == 1
            with pytest.raises(ValueError, match="partitions 0 to 2, not 3"):
                await producer.send(topic, b"", partition=3)

    run(main())


def test_records_of_one_coroutine_stay_in_order(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def main() -> None:
        async with bradbury.AsyncProducer(bootstrap, batch_size=2_000) as producer:
            for number in range(5_000):
                if number % 500 == 250:
                    await producer.send_batch(topic, [b"%d" % number])
                else:
                    await producer.send(topic, b"%d" % number)

    run(main())
    assert [int(value) for value in values_in(bootstrap, topic)] == [*range(5_000)]


def test_thousands_of_coroutines_wait_for_their_records_at_once(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)

    async def main() -> None:
        async with bradbury.AsyncProducer(bootstrap) as producer:
            sent = await asyncio.gather(
                *(producer.send_and_wait(topic, b"%d" % number) for number in range(3_000))
            )
        assert len({(one.partition, one.offset) for one in sent}) == 3_000

    run(main())


def test_room_is_awaited_in_turn_and_others_go_on_meanwhile(run: Run) -> None:
    hold = threading.Event()

    def late(request: ProduceRequest) -> ProduceResponse:
        hold.wait(60)
        return answer()(request)

    async def main() -> None:
        order: list[int] = []
        async with bradbury.AsyncProducer(broker.address, buffer_memory=1_000, linger_ms=0) as one:
            await one.send("t", b"x" * 900)

            async def send(number: int) -> None:
                await one.send("t", b"x" * 800)
                order.append(number)

            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(send(number)))
                await asyncio.sleep(0)
            while one.metrics()["producer-metrics"]["waiting-threads"] != 1:
                await asyncio.sleep(0.01)  # the loop is free
            assert order == []
            hold.set()
            await asyncio.gather(*tasks)
        assert order == [*range(5)]

    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, late)
        run(main())


def test_room_is_not_awaited_forever(run: Run) -> None:
    async def main() -> None:
        async with bradbury.AsyncProducer(
            broker.address,
            buffer_memory=1_000,
            max_block_ms=1_500,
            request_timeout_ms=2_000,
            delivery_timeout_ms=4_000,
        ) as one:
            await one.send("t", b"x" * 900)
            with pytest.raises(RequestTimedOut, match="no room for"):
                await one.send("t", b"x" * 800)
            found = one.metrics()["producer-metrics"]
            assert found["buffer-exhausted-total"] == 1
            assert found["waiting-threads"] == 0

    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        run(main())


def test_a_send_that_is_cancelled_while_there_is_no_room_has_sent_nothing(run: Run) -> None:
    hold = threading.Event()

    def late(request: ProduceRequest) -> ProduceResponse:
        hold.wait(60)
        return answer()(request)

    async def main() -> None:
        async with bradbury.AsyncProducer(broker.address, buffer_memory=1_000) as one:
            await one.send("t", b"x" * 900)
            waiting = [asyncio.create_task(one.send("t", b"x" * 800)) for _ in range(3)]
            await asyncio.sleep(0)
            for task in waiting[:2]:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            hold.set()
            await (await waiting[2])
            await one.flush()
            assert one.metrics()["producer-metrics"]["record-send-total"] == 2

    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, late)
        run(main())


def test_flush_waits_and_can_be_given_up(run: Run, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def main() -> None:
        async with bradbury.AsyncProducer(bootstrap, linger_ms=60_000) as producer:
            futures = [await producer.send(topic, b"") for _ in range(1_000)]
            await producer.flush()
            assert all(future.done() for future in futures)
        with ScriptedBroker({"t": 1}) as broker:
            broker.on(ProduceRequest, SILENCE)
            producer = await bradbury.AsyncProducer(broker.address).start()
            future = await producer.send("t", b"")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await producer.flush()
            with pytest.raises(RequestTimedOut, match="1 records"):
                await producer.flush(0.05)
            await producer.close(0.05)
            with pytest.raises(KafkaError, match="closed"):
                await future
            with pytest.raises(KafkaError, match="closed"):
                await producer.send("t", b"")
            await producer.close()

    run(main())


@pytest.mark.usefixtures("unknown_soon")
def test_what_is_wrong_is_said_where_it_is_awaited(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1, max_message_bytes="2000")

    async def main() -> None:
        with pytest.raises(TypeError, match="linger"):
            bradbury.AsyncProducer(bootstrap, linger=5)
        with pytest.raises(InvalidConfig):
            await bradbury.AsyncProducer(bootstrap, acks=7).start()
        producer = bradbury.AsyncProducer(bootstrap)
        with pytest.raises(KafkaError, match="not started"):
            await producer.send(topic, b"")
        async with producer:
            with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
                await producer.send("nowhere", b"")
            with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
                await producer.send_batch("nowhere", [b""])
            with pytest.raises(TypeError, match="not int"):
                await producer.send(topic, 5)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="not 7"):
                await producer.send(topic, b"", partition=7)
            with pytest.raises(MessageTooLarge):
                await producer.send_and_wait(topic, b"x" * 3_000)
            assert (await producer.send_and_wait(topic, b"")).offset == 0

    run(main())


def test_interceptors_are_shown_each_record_once(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    shown: list[bradbury.ProducerRecord] = []
    reported: list[int] = []

    class Mark(bradbury.ProducerInterceptor):
        def on_send(self, record: bradbury.ProducerRecord) -> bradbury.ProducerRecord:
            shown.append(record)
            return record._replace(topic=topic, value=b"marked")

        def on_acknowledgement(
            self, metadata: bradbury.BatchMetadata, error: Exception | None
        ) -> None:
            reported.append(metadata.count)

    async def main() -> None:
        async with bradbury.AsyncProducer(
            bootstrap, buffer_memory=2_000, interceptors=[Mark()]
        ) as producer:
            for _ in range(100):
                await producer.send("elsewhere", b"x" * 500)
            await producer.flush()

    run(main())
    assert len(shown) == 100
    assert sum(reported) == 100
    assert values_in(bootstrap, topic) == [b"marked"] * 100


def test_the_loop_waits_for_nothing(bootstrap: str, new_topic: NewTopic) -> None:
    """Every stack of the loop's thread, sampled meanwhile, ends outside a lock or a wait."""
    topic = new_topic(3)

    async def main() -> None:
        with WaitsOf() as waits:
            async with bradbury.AsyncProducer(
                bootstrap, batch_size=20_000, buffer_memory=100_000, compression_type="gzip"
            ) as producer:
                for number in range(10_000):
                    await producer.send(topic, b"%d" % number * 20)
                await producer.send_batch(topic, [b"x" * 100] * 5_000)
                await producer.flush()
        assert waits.seen == []

    run_on("asyncio", main())


def test_an_unclosed_one_delivers_nevertheless(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def main() -> None:
        producer = await bradbury.AsyncProducer(bootstrap, linger_ms=60_000).start()
        future = await producer.send(topic, b"kept")
        del producer
        assert (await future).offset == 0

    run(main())


def test_it_belongs_to_its_loop(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = bradbury.AsyncProducer(bootstrap)

    async def begin() -> None:
        await producer.start()

    async def use() -> None:
        await producer.send(topic, b"")

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(begin())
        with pytest.raises(KafkaError, match="was started in another event loop"):
            second.run(use())
        first.run(producer.close())

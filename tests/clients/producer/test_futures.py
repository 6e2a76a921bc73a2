"""What can one do with the futures of sent records, but wait for their result?"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable

import pytest

import bradbury
from bradbury.clients.producer.batches.deliveries import RecordFuture
from bradbury.protocol.errors import MessageTooLarge
from bradbury.protocol.messages.produce import ProduceRequest, ProduceResponse
from bradbury.tests.support.wire.scripted_broker import ScriptedBroker, answer

NewTopic = Callable[..., str]


def test_a_coroutine_awaits_records_and_tables(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def main(producer: bradbury.Producer) -> None:
        first = await producer.send(topic, b"0")
        second = await asyncio.wrap_future(producer.send(topic, b"1"))
        both = [producer.send(topic, b"2"), producer.send(topic, b"3")]
        third, fourth = await asyncio.gather(*both)
        table = await producer.send_batch(topic, [b"4", b"5"])
        assert [one.offset for one in (first, second, third, fourth)] == [0, 1, 2, 3]
        assert (table.ranges[0].start, table.ranges[0].end) == (4, 6)
        assert await both[0] == third  # once more, when it is long done

    with bradbury.Producer(bootstrap) as producer:
        asyncio.run(main(producer))


def test_a_failure_is_raised_where_it_is_awaited(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(1, max_message_bytes="2000")

    async def main(producer: bradbury.Producer) -> None:
        for future in (
            producer.send(topic, b"x" * 3000),
            producer.send_batch(topic, [b"x" * 3000]),
        ):
            with pytest.raises(MessageTooLarge):
                await future
        with pytest.raises(MessageTooLarge):
            await asyncio.wrap_future(producer.send(topic, b"x" * 3000))

    with bradbury.Producer(bootstrap) as producer:
        asyncio.run(main(producer))


def test_a_cancelled_coroutine_leaves_the_record_on_its_way() -> None:
    may_answer = threading.Event()

    def answer_late(request: ProduceRequest) -> ProduceResponse:
        may_answer.wait(60)
        return answer()(request)

    async def main(producer: bradbury.Producer) -> None:
        futures = [producer.send("t", b"0"), producer.send_batch("t", [b"1"])]
        tasks = [asyncio.ensure_future(future) for future in futures]
        tasks.append(asyncio.ensure_future(asyncio.wrap_future(futures[0])))
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        may_answer.set()
        for future in futures:
            assert not future.cancel()
            await future
            assert not future.cancelled()

    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, answer_late)
        with bradbury.Producer(broker.address) as producer:
            asyncio.run(main(producer))


def test_many_coroutines_on_several_loops_await_one_batch(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    with bradbury.Producer(bootstrap, linger_ms=100) as producer:
        futures = [
            producer.send(topic, b"%d" % number, partition=number % 3) for number in range(300)
        ]
        found: list[list[int]] = []

        async def all_of() -> list[int]:
            return [one.offset for one in await asyncio.gather(*futures)]

        threads = [
            threading.Thread(target=lambda: found.append(asyncio.run(all_of()))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert found == [[number // 3 for number in range(300)]] * 3


def test_the_functions_of_concurrent_futures_take_them(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap, linger_ms=50) as producer:
        futures = [producer.send(topic, b"") for _ in range(100)]
        done, open_ones = concurrent.futures.wait(futures, 60)
        assert (len(done), len(open_ones)) == (100, 0)
        later = [producer.send(topic, b"") for _ in range(100)]
        assert {*concurrent.futures.as_completed(later, 60)} == {*later}
        assert {*concurrent.futures.as_completed([*futures, *later], 60)} == {*futures, *later}
    assert isinstance(futures[0], concurrent.futures.Future)
    assert later[-1].result().offset == 199


def test_two_threads_that_wait_for_the_same_futures_both_see_their_end(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    ready = threading.Barrier(5)
    counts: list[int] = []
    with bradbury.Producer(bootstrap, linger_ms=100) as producer:
        futures = [producer.send(topic, b"") for _ in range(50)]

        def wait() -> None:
            ready.wait()
            counts.append(len(concurrent.futures.wait(futures, 60).done))

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        ready.wait()
        for thread in threads:
            thread.join(60)
    assert counts == [50] * 4


def test_a_future_says_what_it_is(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap, linger_ms=100) as producer:
        future = producer.send(topic, b"")
        assert isinstance(future, RecordFuture)
        assert "not acknowledged yet" in repr(future)
        assert future.running()
        future.result(60)
        assert "offset=0" in repr(future)
        assert not future.running()
        with pytest.raises(AttributeError, match="no 'offset'"):
            future.offset  # noqa: B018


def test_a_commit_that_was_not_waited_for_can_be_awaited(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with bradbury.Consumer(bootstrap=bootstrap, group=f"group-of-{topic}") as consumer:
        consumer.assign([(topic, 0)])

        async def main() -> None:
            await consumer.commit_async({(topic, 0): 7})

        asyncio.run(main())
        assert consumer.committed() == {(topic, 0): 7}

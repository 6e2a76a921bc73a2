"""Does the asynchronous consumer lose nothing when it is cancelled, and never hold up its loop?"""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pyarrow as pa
import pytest

import bradbury
from bradbury.protocol.errors import KafkaError, OffsetOutOfRange, UnknownTopicOrPartition
from bradbury.tests.support.groups.group_members import fill
from bradbury.tests.support.ray.event_loops import LOOPS, WaitsOf, run_on

NewTopic = Callable[..., str]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return lambda main: run_on(request.param, main)


def reader(bootstrap: str, *topics: str, **options: Any) -> bradbury.AsyncConsumer:
    options = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, **options}
    return bradbury.AsyncConsumer(*topics, bootstrap=bootstrap, **options)


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found


def test_a_poll_waits_for_records_and_a_time_bounds_it(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def main() -> None:
        async with reader(bootstrap, topic, group=f"g-{topic}") as consumer:
            assert (await consumer.poll(50)).num_rows == 0
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.to_thread(fill, bootstrap, topic, 10)
            assert offsets(await waiting) == [*range(10)]
            await asyncio.to_thread(fill, bootstrap, topic, 10)
            assert offsets(await consumer.poll(max_records=4)) == [10, 11, 12, 13]
            assert consumer.assignment() == [(topic, 0)]
            assert consumer.subscription() == [topic]
            await consumer.commit()
            assert await consumer.committed() == {(topic, 0): 14}

    run(main())


def test_records_and_tables_are_iterated(run: Run, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 3_000)

    async def main() -> None:
        async with reader(bootstrap, topic) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 1_500:
                    break
            assert await consumer.position((topic, 0)) == 1_500
            async for table in consumer.batches(max_records=700):
                seen += offsets(table)
                if len(seen) == 3_000:
                    break
            assert seen == [*range(3_000)]

    run(main())


def test_a_cancelled_poll_loses_no_record_and_doubles_none(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        fill(bootstrap, topic, 2_000, partition=partition)
    dice = random.Random(7)

    async def main() -> None:
        cancelled = 0
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with reader(bootstrap, topic, group=f"g-{topic}", enable_auto_commit=False) as one:
            while sum(map(len, seen.values())) < 6_000:
                task = asyncio.create_task(one.poll(max_records=200))
                for _ in range(dice.randrange(12)):
                    await asyncio.sleep(dice.choice((0, 0.0001, 0.001)))
                cancelled += task.cancel()
                try:
                    table = await task
                except asyncio.CancelledError:
                    # What nobody was given is not committed either.
                    given = {(topic, number): len(rows) for number, rows in seen.items() if rows}
                    await one.commit()
                    stored = await one.committed(*given) if given else {}
                    assert stored == given
                    continue
                for row in table.select(["partition", "offset"]).to_pylist():
                    seen[row["partition"]].append(row["offset"])
        assert seen == {number: [*range(2_000)] for number in range(3)}
        assert cancelled > 0

    run(main())


def test_a_cancelled_loop_goes_on_at_the_next_record(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 2_500)

    async def main() -> None:
        seen: list[int] = []
        async with reader(bootstrap, topic) as consumer:

            async def read() -> None:
                async for record in consumer:
                    seen.append(record.offset)
                    if len(seen) % 100 == 0:
                        await asyncio.sleep(0)

            while len(seen) < 2_500:
                task = asyncio.create_task(read())
                for _ in range(3):
                    await asyncio.sleep(0.001)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        assert seen == [*range(2_500)]

    run(main())


def test_other_calls_are_served_while_a_poll_waits(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, 5)

    async def main() -> None:
        async with reader(bootstrap, topic, group=f"g-{topic}") as consumer:
            assert (await consumer.poll()).num_rows == 5
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            await consumer.commit()
            assert await consumer.committed((topic, 0)) == {(topic, 0): 5}
            assert await consumer.lag() == {(topic, 0): 0, (topic, 1): 0}
            assert (await consumer.end_offsets((topic, 0))) == {(topic, 0): 5}
            assert await consumer.partitions_for(topic) == 2
            assert consumer.metrics()["consumer-coordinator-metrics"]["rebalance-total"] == 1
            assert not waiting.done()
            consumer.seek((topic, 0), 3)
            assert offsets(await waiting) == [3, 4]
            consumer.pause((topic, 0))
            assert consumer.paused() == [(topic, 0)]
            consumer.seek_to_beginning()
            assert (await consumer.poll(100)).num_rows == 0
            consumer.resume((topic, 0))
            assert (await consumer.poll()).num_rows == 5

    run(main())


def test_polls_of_two_coroutines_take_turns(run: Run, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1_000)

    async def main() -> None:
        seen: list[int] = []
        async with reader(bootstrap, topic) as consumer:

            async def read() -> None:
                while len(seen) < 1_000:
                    seen.extend(offsets(await consumer.poll(200, max_records=7)))

            await asyncio.gather(*(read() for _ in range(4)))
        assert seen == [*range(1_000)]

    run(main())


def test_close_ends_polls_and_loops_that_wait(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def iterate(consumer: bradbury.AsyncConsumer) -> str:
        async for _ in consumer:
            pass
        return "ended"

    async def tables(consumer: bradbury.AsyncConsumer) -> str:
        async for _ in consumer.batches():
            pass
        return "ended"

    async def main() -> None:
        for wait, ends_well in (
            (iterate, True),
            (tables, True),
            (bradbury.AsyncConsumer.poll, False),
        ):
            consumer = await reader(bootstrap, topic, group=f"g-{topic}").start()
            task = asyncio.create_task(wait(consumer))  # type: ignore[operator]
            await asyncio.sleep(0.05)
            await consumer.close()
            if ends_well:
                assert await task == "ended"
            else:
                with pytest.raises(KafkaError, match="the consumer is closed"):
                    await task
            with pytest.raises(KafkaError, match="the consumer is closed"):
                await consumer.poll()
            assert [record async for record in consumer] == []
            await consumer.close()

    run(main())


class RecordingListener:
    """A listener of coroutines, which uses the consumer."""

    def __init__(self) -> None:
        self.consumer: bradbury.AsyncConsumer | None = None
        self.events: list[tuple[str, int]] = []
        self.threads: set[int] = set()

    async def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        assert self.consumer is not None
        self.threads.add(threading.get_ident())
        for key in partitions:
            stored = await self.consumer.committed(key)
            self.consumer.seek(key, stored[key] or 0)
        self.events.append(("assigned", len(partitions)))

    async def on_partitions_revoked(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        assert self.consumer is not None
        self.threads.add(threading.get_ident())
        if partitions:
            await asyncio.sleep(0.01)
            await self.consumer.commit()
        self.events.append(("revoked", len(partitions)))

    async def on_partitions_lost(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))


def test_a_listener_of_coroutines_commits_in_a_rebalance_and_at_the_end(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic, group = new_topic(4), f"g-{random.random()}"
    for partition in range(4):
        fill(bootstrap, topic, 50, partition=partition)

    async def main() -> None:
        reported = RecordingListener()
        seen = 0
        options = {"group": group, "enable_auto_commit": False}
        async with reader(bootstrap, topic, listener=reported, **options) as one:
            reported.consumer = one
            while seen < 200:
                seen += (await one.poll()).num_rows
            async with reader(bootstrap, topic, **options) as two:
                while not len(one.assignment()) == len(two.assignment()) == 2:
                    tables = await asyncio.gather(one.poll(20), two.poll(20))
                    seen += sum(table.num_rows for table in tables)
        assert seen == 200  # the other one went on at the commit
        assert reported.events[:3] == [("assigned", 4), ("revoked", 4), ("assigned", 2)]
        assert reported.events[-1] == ("revoked", 2)
        assert reported.threads == {threading.get_ident()}
        async with reader(bootstrap, group=group) as other:
            stored = await other.committed(*((topic, number) for number in range(4)))
            assert set(stored.values()) == {50}

    run(main())


def test_a_listener_that_fails_makes_poll_raise(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 3)

    class Failing(bradbury.RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
            raise RuntimeError("not today")

    async def main() -> None:
        async with reader(bootstrap, topic, group=f"g-{topic}", listener=Failing()) as consumer:
            with pytest.raises(RuntimeError, match="not today"):
                await consumer.poll()
            assert (await consumer.poll()).num_rows == 3

    run(main())


def test_lost_partitions_of_a_listener_that_does_not_say_are_revoked(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    events: list[str] = []

    class Short(bradbury.RebalanceListener):
        async def on_partitions_revoked(  # type: ignore[override]
            self, partitions: Sequence[bradbury.TopicPartition]
        ) -> None:
            events.append(f"revoked {len(partitions)}")

    async def main() -> None:
        async with reader(
            bootstrap, topic, group=f"g-{topic}", listener=Short(), max_poll_interval_ms=300
        ) as consumer:
            while not consumer.assignment():
                await consumer.poll(50)
            while consumer.group_metadata().generation != -1:
                await asyncio.sleep(0.02)  # nobody polls: the member leaves
            while not events:
                await consumer.poll(50)

    run(main())
    assert events[0] == "revoked 1"


@pytest.mark.usefixtures("unknown_soon")
def test_what_is_wrong_is_said_where_it_is_awaited(
    run: Run, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def main() -> None:
        with pytest.raises(TypeError, match="grup"):
            bradbury.AsyncConsumer(topic, grup="g")
        with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
            await reader(bootstrap, "nowhere").start()
        with pytest.raises(KafkaError, match="not started"):
            await reader(bootstrap, topic).poll()
        async with reader(bootstrap, auto_offset_reset="none") as consumer:
            with pytest.raises(ValueError, match="poll would wait forever"):
                await consumer.poll()
            await consumer.assign([(topic, 0)])
            consumer.seek((topic, 0), 7)
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll()
            await consumer.unsubscribe()
            assert consumer.assignment() == []

    run(main())


def test_the_loop_waits_for_nothing(bootstrap: str, new_topic: NewTopic) -> None:
    """Every stack of the loop's thread, sampled meanwhile, ends outside a lock or a wait."""
    topic = new_topic(3)
    for partition in range(3):
        fill(bootstrap, topic, 20_000, partition=partition)

    async def main() -> None:
        with WaitsOf() as waits:
            async with reader(bootstrap, topic, group=f"g-{topic}", max_poll_records=5_000) as one:
                seen = 0
                while seen < 30_000:
                    seen += (await one.poll()).num_rows
                await one.commit()
                async for _ in one:
                    seen += 1
                    if seen == 60_000:
                        break
                await one.lag()
        assert waits.seen == []

    run_on("asyncio", main())


def test_an_unclosed_one_ends_its_threads(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def main() -> None:
        consumer = await reader(bootstrap, topic, client_id="left-open").start()
        assert (await consumer.poll(10)).num_rows == 0
        del consumer
        while any(thread.name.startswith("left-open") for thread in threading.enumerate()):
            await asyncio.sleep(0.01)

    run_on("asyncio", main())

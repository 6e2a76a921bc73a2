"""What does a request that waits take of the event loop, and of the thread beside it?"""

import asyncio
from time import perf_counter, sleep

import pytest

from bradbury.actors.quotas.timed_request import TimedRequest, timed_in_thread
from bradbury.handlers.ports.request_metrics import RequestTrace


def busy(seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


async def seconds_of(steps) -> float:
    trace = RequestTrace(perf_counter())
    trace.handled_at = now = perf_counter()
    assert await TimedRequest(steps, trace, now) == "answer"
    return trace.busy_seconds(perf_counter())


def test_its_steps_count_and_its_waiting_does_not() -> None:
    async def steps() -> str:
        busy(0.02)
        await asyncio.sleep(1.0)
        busy(0.02)
        return "answer"

    assert 0.04 <= asyncio.run(seconds_of(steps())) < 0.9


def test_what_it_runs_aside_counts_also_from_a_task_of_its_own() -> None:
    async def steps() -> str:
        aside = timed_in_thread(lambda: sleep(0.05))
        await asyncio.gather(asyncio.to_thread(aside), asyncio.sleep(1.0))
        return "answer"

    assert 0.05 <= asyncio.run(seconds_of(steps())) < 0.9


def test_one_under_way_counts_until_now() -> None:
    async def main() -> None:
        trace = RequestTrace(perf_counter())
        seen = []

        async def steps() -> None:
            busy(0.03)
            seen.append(trace.busy_seconds(perf_counter()))

        trace.handled_at = now = perf_counter()
        await TimedRequest(steps(), trace, now)
        assert seen[0] >= 0.03

    asyncio.run(main())


def test_it_can_be_given_up_and_fail() -> None:
    async def main() -> None:
        gone = []

        async def waits() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                gone.append(True)

        async def fails() -> None:
            await asyncio.sleep(0)
            raise LookupError

        async def drive(steps) -> None:
            await TimedRequest(steps, RequestTrace(), 0.0)

        task = asyncio.create_task(drive(waits()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gone == [True]
        with pytest.raises(LookupError):
            await drive(fails())

    asyncio.run(main())


def test_without_a_quota_of_time_nothing_is_timed() -> None:
    assert timed_in_thread(perf_counter) is perf_counter

"""How long is a connection not read from? At least as long as its client was told."""

import asyncio
from time import monotonic, sleep

import pytest

from bradbury.actors.quotas.muting import Muting
from bradbury.tests.support.ray.event_loops import LOOPS, run_on

TOLD_MS = 40


def handle_request(seconds: float) -> None:
    sleep(seconds)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("handled_ms", [0.3, 25])
def test_it_ends_no_sooner_than_told_however_long_its_request_took(
    loop: str, handled_ms: float
) -> None:
    """uvloop's timers count whole milliseconds of a clock that is cut to milliseconds."""

    async def muted() -> float:
        over = asyncio.Event()
        muting = Muting(over.set)
        await asyncio.sleep(0.001)
        handle_request(handled_ms / 1000)
        since = monotonic()
        muting.begin(TOLD_MS)
        await over.wait()
        assert not muting.is_on
        return monotonic() - since

    for _ in range(5):
        assert run_on(loop, muted()) >= TOLD_MS / 1000


def test_of_several_times_the_one_that_ends_last_counts() -> None:
    async def muted() -> float:
        over = asyncio.Event()
        muting = Muting(over.set)
        since = monotonic()
        muting.begin(1)
        muting.begin(TOLD_MS)
        muting.begin(1)
        await over.wait()
        return monotonic() - since

    assert run_on("uvloop", muted()) >= TOLD_MS / 1000

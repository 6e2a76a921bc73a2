"""Do calls between two processes end, whatever the other end does?"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bradbury.launch.processes.channel import Channel
from bradbury.protocol.errors import ConnectionFailed, NotController


class Awkward(Exception):
    """Pickles, and does not come back."""

    def __init__(self, one: int, another: int) -> None:
        super().__init__(f"{one} and {another}")


async def echo(value: Any) -> Any:
    return value


async def fail(kind: str) -> None:
    if kind == "kafka":
        raise NotController("another one is")
    if kind == "awkward":
        raise Awkward(1, 2)
    raise ValueError(lambda: None)  # cannot be pickled


async def never() -> None:
    await asyncio.Event().wait()


async def between(work: Callable[[Channel, Channel], Awaitable[None]]) -> None:
    one, other = socket.socketpair()
    methods = {"echo": echo, "fail": fail, "never": never}
    ends = [
        Channel(*await asyncio.open_unix_connection(sock=each), methods) for each in (one, other)
    ]
    running = [asyncio.create_task(each.run()) for each in ends]
    try:
        await work(*ends)
    finally:
        for each in ends:
            each.close()
        await asyncio.gather(*running)


def test_both_ends_call_at_once_and_each_gets_its_own_answers() -> None:
    async def work(one: Channel, other: Channel) -> None:
        values = [*range(50), "x" * 1_000_000, None]
        answers = await asyncio.gather(
            *(end.call("echo", value) for value in values for end in (one, other))
        )
        assert answers == [value for value in values for _ in range(2)]

    asyncio.run(between(work))


def test_errors_are_raised_here_and_calls_go_on() -> None:
    async def work(one: Channel, _: Channel) -> None:
        with pytest.raises(NotController, match="another one is"):
            await one.call("fail", "kafka")
        with pytest.raises(RuntimeError, match="1 and 2"):
            await one.call("fail", "awkward")
        with pytest.raises(RuntimeError, match="ValueError"):
            await one.call("fail", "other")
        with pytest.raises(KeyError):
            await one.call("no such method")
        assert await one.call("echo", 1) == 1

    asyncio.run(between(work))


def test_calls_to_an_end_that_is_gone_fail() -> None:
    async def work(one: Channel, other: Channel) -> None:
        waiting = asyncio.create_task(one.call("never"))
        assert await one.call("echo", 1) == 1
        other.close()
        with pytest.raises(ConnectionFailed):
            await waiting
        with pytest.raises(ConnectionFailed):
            await one.call("echo", 1)

    asyncio.run(between(work))


def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async def work(one: Channel, _: Channel) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await one.call("never")
        assert await one.call("echo", 1) == 1
        assert one._waiting == {}

    asyncio.run(between(work))

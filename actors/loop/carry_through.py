"""Work that runs to its end even if its caller is cancelled.

A request is cancelled when its client hangs up. What only waits may end there; but a change that is
half done must not, and a lock or a file must not be released while a thread still uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_under_way: set[asyncio.Task[Any]] = set()
"""Strong references to the tasks: the event loop itself holds them only weakly."""


async def carry_through(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end; returns its result. If the caller is cancelled, `work` continues."""
    task = asyncio.create_task(work)
    _under_way.add(task)
    task.add_done_callback(_on_done)
    return await asyncio.shield(task)


async def until_thread_ends(future: asyncio.Future[T]) -> T:
    """Wait for a thread's result. If the caller is cancelled, it still waits for the thread."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # retrieved
        raise


def _on_done(task: asyncio.Task[Any]) -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, in case no caller waits any more


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Wait for the result of `work` for at most `seconds`. Raises TimeoutError.

    Not asyncio.wait_for, which up to Python 3.11 forgets a cancellation that comes at the same
    moment as the answer: a caller that waits for the end of the cancelled task then waits forever.
    """
    async with asyncio.timeout(seconds):
        return await work

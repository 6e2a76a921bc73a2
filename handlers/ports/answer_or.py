"""Helper for answers of ports that are available at once, or awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...protocol.errors import KafkaError

T = TypeVar("T")


def answer_or(
    ask: Callable[[], Awaitable[T]],
    refuse: Callable[[KafkaError], T],
    finish: Callable[[T], T] | None = None,
) -> T | Awaitable[T]:
    """Answer of `ask()`, or `refuse(error)` if it raises; passed to `finish`, now or when awaited.

    An answer that is available at once, as for most heartbeats, needs no task.
    """
    try:
        answer = ask()
    except KafkaError as error:
        refused = refuse(error)
        return refused if finish is None else finish(refused)
    if isinstance(answer, asyncio.Future) and answer.done() and answer.exception() is None:
        response: T = answer.result()
        return response if finish is None else finish(response)
    return _later(answer, refuse, finish)


async def _later(
    answer: Awaitable[T], refuse: Callable[[KafkaError], T], finish: Callable[[T], T] | None
) -> T:
    try:
        response = await answer
    except KafkaError as error:
        response = refuse(error)
    return response if finish is None else finish(response)

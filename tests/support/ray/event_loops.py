"""Runs a coroutine on asyncio's own loop or on uvloop, and says when something held the loop up."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {
    "asyncio": None,
    "uvloop": uvloop.new_event_loop,
}


def run_on(loop: str, main: Coroutine[Any, Any, T], *, patience_s: float = 240) -> T:
    """The result of `main`, which has a generous time."""

    async def bounded() -> T:
        async with asyncio.timeout(patience_s):
            return await main

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(bounded())


class WaitsOf:
    """Looks every other millisecond whether the thread that enters it waits for another one.

    with WaitsOf() as waits:
        ...
    assert waits.seen == []  # stacks that ended in a wait, a join, a result or a queue's get

    But for the moment that a new thread takes to begin.
    """

    CALLS = ("wait", "wait_for", "result", "join", "get")
    FILES = ("threading.py", "concurrent/futures/_base.py", "queue.py")

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._thread = threading.get_ident()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "WaitsOf":
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.002):
            frame = sys._current_frames().get(self._thread)
            if frame is None:
                continue
            code = frame.f_code
            if code.co_name in self.CALLS and code.co_filename.endswith(self.FILES):
                stack = "".join(traceback.format_stack(frame)[-6:])
                if "self._started.wait()" not in stack:
                    self.seen.append(stack)

"""Calls both ways between two processes of one cluster, over a socket that only they have.

    frame: length u32 | pickle of (number, True, name, arguments), a call
                               or (number, False, whether it succeeded, result or exception)

Pickle is safe here: one end was started by the other, and no other process has the socket.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ...protocol.errors import ConnectionFailed

_LENGTH_BYTES: Final = 4

Methods = Mapping[str, Callable[..., Awaitable[Any]]]
"""Methods that the other end may call, by name."""


class Channel:
    """One end of the connection. `run` reads; calls may be made once it runs."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, methods: Methods
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._methods = methods
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def run(self) -> None:
        """Read until the other end is gone; then fail calls to it, and cancel calls from it."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
                self._take(pickle.loads(await self._reader.readexactly(length)))  # noqa: S301
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.close()

    async def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the other end. Raises what it raises; ConnectionFailed if it is gone."""
        if self._is_over:
            raise ConnectionFailed("the other process of this cluster has ended")
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send((number, True, name, arguments))
            return await answer
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        self._is_over = True
        for task in self._running:
            task.cancel()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionFailed("the other process of this cluster ended"))
        self._writer.close()

    def _send(self, message: tuple[Any, ...]) -> None:
        if not self._is_over:
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._writer.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)

    def _take(self, message: Any) -> None:
        number, is_call, *rest = message
        if is_call:
            task = asyncio.get_running_loop().create_task(self._answer(number, *rest))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            return
        is_success, content = rest
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return  # its caller was cancelled
        if is_success:
            answer.set_result(content)
        else:
            answer.set_exception(content)

    async def _answer(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            answer = await self._methods[name](*arguments)
        except Exception as error:  # noqa: BLE001 -- the caller's to see
            self._send((number, False, False, _picklable(error)))
        else:
            self._send((number, False, True, answer))


def _picklable(error: Exception) -> Exception:
    """Error that can be pickled: the error itself, or its text in a RuntimeError."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # noqa: BLE001 -- whatever their own code raises
        return RuntimeError(repr(error))
    return error

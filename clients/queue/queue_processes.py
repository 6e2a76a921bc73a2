"""The processes that are connected to a queue's actor, and the actor's requests to them.

A process is known by its identity, also after it has connected again; then its former connection is
closed. Requests that it has not answered when it disconnects count as answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from .frames.queue_frames import FrameKind, frame

ANSWER_S: Final = 1.0
"""Seconds that a process may take to report used items; then its leases apply."""


@dataclass(eq=False, slots=True)
class ConnectedProcess:
    """A connected process; `owner` is its identity, also after it has connected again."""

    owner: bytes
    writer: asyncio.StreamWriter
    answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    reported: int = 0
    confirmed: int = 0

    def send(self, kind: FrameKind, number: int = 0, *body: bytes | memoryview) -> None:
        if not self.writer.is_closing():
            self.writer.write(frame(kind, number, *body))

    def on_answer(self, number: int) -> None:
        answer = self.answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(None)


class QueueProcesses:
    """Processes of one queue. `holds_ahead`: whether the process of an owner has unused items."""

    def __init__(self, holds_ahead: Callable[[bytes], bool]) -> None:
        self._holds_ahead = holds_ahead
        self._by_owner: dict[bytes, ConnectedProcess] = {}
        self._questions = 0

    def __iter__(self) -> Iterator[ConnectedProcess]:
        return iter(list(self._by_owner.values()))

    @property
    def owners(self) -> set[bytes]:
        return set(self._by_owner)

    def add(self, process: ConnectedProcess) -> ConnectedProcess | None:
        """Add a process; return it as it was connected before, if its end was not seen yet."""
        former = self._by_owner.get(process.owner)
        if former is not None:
            self.on_gone(former)
            former.writer.close()
        self._by_owner[process.owner] = process
        return former

    def on_gone(self, process: ConnectedProcess) -> bool:
        """Complete requests to a process that is gone; return False if it has connected again."""
        if self._by_owner.get(process.owner) is not process:
            return False
        for number in list(process.answers):
            process.on_answer(number)
        return True

    def drop(self, process: ConnectedProcess) -> bool:
        """Forget a process; returns False if it has connected again."""
        if self._by_owner.get(process.owner) is not process:
            return False
        del self._by_owner[process.owner]
        return True

    def holders(self) -> list[ConnectedProcess]:
        """Processes that have items which they have not used yet."""
        return [each for each in self if self._holds_ahead(each.owner)]

    async def ask_all(self, kind: FrameKind) -> None:
        """Ask all holders; returns when they have answered, or ANSWER_S are over."""
        await self.ask(kind, self.holders())

    async def ask(self, kind: FrameKind, processes: Iterable[ConnectedProcess]) -> None:
        answers = []
        for process in processes:
            self._questions = self._questions % 0x7FFF_FFFF + 1
            answer = asyncio.get_running_loop().create_future()
            process.answers[self._questions] = answer
            process.send(kind, self._questions)
            answers.append(answer)
        if answers:
            await asyncio.wait(answers, timeout=ANSWER_S)

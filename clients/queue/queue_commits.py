"""Commits of the items that the processes of a queue have consumed, and of dead letters.

Invariants:
    A process's report is confirmed after it is committed, together with its earlier reports.
    Dead letters are written with the commit that counts them as consumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from .frames.queue_frames import FrameKind
from .queue_log import QueueLog
from .queue_processes import QueueProcesses
from .queue_state import QueueEntry, QueueState

COMMIT_S: Final = 0.2


class QueueCommits:
    """Commits, one at a time. state: returns the current state of the items."""

    def __init__(
        self, log: QueueLog, processes: QueueProcesses, state: Callable[[], QueueState]
    ) -> None:
        self._log = log
        self._processes = processes
        self._state = state
        self._has_changed = False
        self._dead: list[QueueEntry] = []  # that are to be written to the dead letters
        self._committing = asyncio.Lock()

    def on_changed(self) -> None:
        """Note that there is something to commit."""
        self._has_changed = True

    async def run(self) -> None:
        """Commit every COMMIT_S, if there is something to commit."""
        while True:
            await asyncio.sleep(COMMIT_S)
            if self._has_changed:
                await self.commit()

    async def commit(self) -> None:
        """Commit; reports received until now are confirmed after it."""
        async with self._committing:
            await self._commit_changes()

    async def _commit_changes(self) -> None:
        self._has_changed = False
        state = self._state()
        reports = [(process, process.reported) for process in self._processes]
        self._dead += state.take_dead()  # with those of a commit that was cancelled
        await self._log.commit(state.position(self._log.epoch), self._dead)
        self._dead = []
        for process, reported in reports:
            if reported > process.confirmed:
                process.confirmed = reported
                process.send(FrameKind.CONFIRM, reported)

"""A node's voter: drives controller/metadata_voter. Its disk work is done in threads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Protocol, TypeVar

from ...cluster.quorum.voter import Candidate
from ...controller.controller_effects import RunInThread
from ...controller.metadata_voter import MetadataVoter
from ...controller.voter_files.voter_directory import VoterDirectory
from ...controller.voter_requests import QuorumRequest
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.file_system import FileSystem
from .two_clock_driver import TwoClockDriver

A = TypeVar("A")


class Voter(Protocol):
    """A voter in this process or another one."""

    async def ask(self, request: QuorumRequest[A]) -> A:
        """Carry out a request. Raises its errors, ConnectionFailed, KafkaStorageError."""
        ...


class VoterHost:
    """The voter of a node. Implements Voter. Its methods run on one event loop, except `open`.

    A request that has begun is completed even if its caller is cancelled.
    """

    def __init__(
        self, name: str, data_dir: str, file_system: FileSystem, *, now_ms: Callable[[], int]
    ) -> None:
        self._now_ms = now_ms
        self._files = VoterDirectory(data_dir, file_system)
        self._driver = TwoClockDriver(now_ms)
        self._voter = MetadataVoter(name, self._files, self._driver.effects)
        self._driver.on_awaited(RunInThread, lambda effect: asyncio.to_thread(effect.work))
        self._driver.drive(self._voter)

    def open(self) -> None:
        """Lock the directory and recover the log. Blocking: call in a thread.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, damaged, and so on.
        """
        self._voter.open(directory_id=str(uuid.uuid4()), now_ms=self._now_ms())

    @property
    def vote(self) -> Candidate:
        """Candidate that may write to this log."""
        return self._voter.vote

    @property
    def is_open(self) -> bool:
        return self._voter.is_open

    @property
    def directory(self) -> LogDirectory:
        return self._files.directory

    async def ask(self, request: QuorumRequest[A]) -> A:
        """See Voter."""
        answer: A = await self._driver.ask(
            lambda ticket: self._voter.handle(ticket, request, now_ms=self._now_ms())
        )
        return answer

    async def close(self) -> None:
        """Wait until the voter has stopped and the directory is unlocked."""
        await self._driver.ask(self._voter.close)

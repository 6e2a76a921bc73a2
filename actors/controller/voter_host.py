"""A node's voter: drives controller/metadata_voter. Its disk work is done in threads."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ...cluster.quorum.voter import Promise
from ...controller.effects import Refuse, Reply, RunOnDisk
from ...controller.metadata_voter import MetadataVoter
from ...controller.voter_directory import VoterDirectory
from ...controller.voter_requests import VoterRequest
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.file_system import FileSystem

A = TypeVar("A")


class Voter(Protocol):
    """A voter, wherever it runs."""

    async def ask(self, request: VoterRequest[A]) -> A:
        """The answer. Raises what the request says, ConnectionFailed, KafkaStorageError."""
        ...


class VoterHost:
    """Implements Voter. Its methods run on one event loop, but for open.

    A request whose caller has gone away is carried through: the next finds it done or not begun.
    """

    def __init__(
        self, name: str, data_dir: str, file_system: FileSystem, *, now_ms: Callable[[], int]
    ) -> None:
        self._now_ms = now_ms
        self._files = VoterDirectory(data_dir, file_system)
        self._effects: list[Any] = []
        self._voter = MetadataVoter(name, self._files, self._effects)
        self._working: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Lock the directory and recover the log. Blocking: call in a thread.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, damaged, and so on.
        """
        self._voter.open(directory_id=str(uuid.uuid4()), now_ms=self._now_ms())

    @property
    def promise(self) -> Promise:
        """Who may write to this log."""
        return self._voter.promise

    @property
    def is_open(self) -> bool:
        return self._voter.is_open

    @property
    def directory(self) -> LogDirectory:
        return self._files.directory

    async def ask(self, request: VoterRequest[A]) -> A:
        """See Voter."""
        ticket: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._voter.handle(ticket, request, now_ms=self._now_ms())
        self._perform()
        return await ticket

    async def close(self) -> None:
        """Returns when nothing of it runs any more, and the directory is unlocked."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._voter.close(ticket)
        self._perform()
        await ticket

    def _perform(self) -> None:
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            match effect:
                case Reply(ticket, answer) if not ticket.done():
                    ticket.set_result(answer)
                case Refuse(ticket, error) if not ticket.done():
                    ticket.set_exception(error)
                case RunOnDisk(work):
                    task = asyncio.create_task(self._run(work))
                    self._working.add(task)
                    task.add_done_callback(self._working.discard)

    async def _run(self, work: Callable[[], Any]) -> None:
        try:
            result = await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 -- the voter decides what comes of it
            self._voter.on_disk_failed(error)
        else:
            self._voter.on_disk_done(result)
        self._perform()

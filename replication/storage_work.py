"""Storage work: handed out by steps to run in a thread, because it waits for the disk.

`run` is called there; afterwards the step that handed it out is notified, also of a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..storage.log.log_flush import FlushWork
from ..storage.log.partition_log import PartitionLog

T = TypeVar("T")


class Work(Protocol):
    """Work with a blocking `run`, which touches nothing that others use meanwhile."""

    def run(self) -> None:
        """Run the work. Raises KafkaStorageError."""
        ...


class LogFlush:
    """An fsync of all that is in a log now. `log` is that log, even if a move replaces it."""

    __slots__ = ("_work", "log")

    def __init__(self, log: PartitionLog, work: FlushWork) -> None:
        self.log = log
        self._work = work

    def run(self) -> None:
        """See Work."""
        self._work.run()

    def complete(self) -> None:
        """Mark the records as durable, after `run` has returned without an error."""
        self.log.flushing.complete_flush(self._work)


def begin_flush(log: PartitionLog) -> LogFlush | None:
    """Begin a flush; None: everything is durable already. Raises StorageFailure."""
    work = log.flushing.begin_flush()
    return None if work is None else LogFlush(log, work)


class AssignEpochs:
    """Storing of leader epochs of one log, with their first offsets."""

    __slots__ = ("_epochs", "log")

    def __init__(self, log: PartitionLog, epochs: list[tuple[int, int]]) -> None:
        self.log = log
        self._epochs = epochs

    def run(self) -> None:
        """See Work."""
        self.log.local.assign_epochs(self._epochs)


class StorageCall(Generic[T]):
    """A blocking call of the storage. `result`: its return value, after `run`."""

    __slots__ = ("_call", "result")

    result: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call

    def run(self) -> None:
        """See Work."""
        self.result = self._call()

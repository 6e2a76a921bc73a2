"""Replica flush: the fsyncs that a leader's records wait for, one at a time (group commit)."""

from __future__ import annotations

from typing import Protocol

from ...protocol.errors import KafkaStorageError
from ...storage.log.partition_log import PartitionLog
from ..effects import Effects, RunWork, WorkingStep
from ..storage_work import LogFlush, begin_flush


class FlushingReplica(Protocol):
    """Replica whose log is flushed; a move to another directory gives it another log."""

    log: PartitionLog

    def on_flushed(self) -> None:
        """Called when more records are durable."""
        ...

    def on_storage_failure(self) -> None:
        """Called when the disk has failed, and waiting requests are refused; or it has no room, and
        log maintenance retries.
        """
        ...


class ReplicaFlush:
    """Flushes of one replica. At most one fsync is under way; later records are flushed next."""

    def __init__(self, replica: FlushingReplica, effects: Effects) -> None:
        self._replica = replica
        self._effects = effects
        self._is_flushing = False
        self._ended: FlushEnded | None = None

    def maybe_start(self) -> None:
        """Start an fsync unless one is under way."""
        if self._is_flushing:
            return
        try:
            flush = begin_flush(self._replica.log)
        except KafkaStorageError:
            self._replica.on_storage_failure()
            return
        if flush is not None:
            self._is_flushing = True
            self._effects.append(RunWork(self, flush))

    def on_work_done(self, work: LogFlush, failure: Exception | None, now_ms: int) -> None:
        """Called when an fsync has ended. It is of the log for which it was begun: a move may have
        replaced that since.
        """
        self._is_flushing = False
        if failure is not None:
            self._replica.on_storage_failure()
        else:
            work.complete()
            self._replica.on_flushed()
        if self._ended is not None and not self._is_flushing:
            self._ended.is_met(now_ms)

    def ended(self) -> FlushEnded | None:
        """Condition to wait for until no fsync of this replica is under way; None: none is."""
        if self._is_flushing:
            self._ended = FlushEnded()
            return self._ended
        return None


class FlushEnded:
    """Condition that a replica's fsync has ended, before its log is closed."""

    def __init__(self) -> None:
        self._step: WorkingStep | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        """See procedure.Condition."""
        self._step = step

    def is_met(self, now_ms: int) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.on_work_done(self, None, now_ms)

"""Coordinator of one partition that this node leads: the order of its steps.

    LOADING   the log is read from start to end and applied (coordinator_loader)
    ACTIVE    a request is passed to the rules; the records that they decide on are appended, and
              applied and answered only once they are committed
    CLOSED    another node leads; waiting requests are answered NOT_COORDINATOR

Records are applied in log order, so commits are processed in that order, too, whichever is reported
first. A refused append changed nothing, and the rules roll it back. A commit that takes longer than
the kind's append_timeout_ms may still complete, but its client gets an error. A commit that fails
leaves its records in doubt: all state is dropped and the log is read again, so that memory is never
ahead of the log or behind it. A read waits for earlier appends that concern it, so a client that
sends both at once reads its own write.

Inputs are the methods, outputs are `effects`. `now_ms` is monotonic, `wall_ms` the time that
records carry. No rule of a kind of coordinator is decided here.
Source: apache/kafka coordinator-common/.../CoordinatorRuntime.java (CoordinatorContext).
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from ..protocol.error_code import ErrorCode
from ..protocol.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator
from ..protocol.records.records import encode_records
from ..steps.replies import Refuse, Reply
from .coordinator_effects import (
    AppendBatch,
    AppendMarker,
    ContextEffect,
    CoordinatorLog,
    PendingAppend,
    PendingRead,
    ReadLog,
)
from .coordinator_loader import CoordinatorLoader
from .coordinator_rules import CoordinatorKind, CoordinatorRules
from .coordinator_timer import CoordinatorTimer
from .rules_effects import Append, CancelTimer, Respond, RulesEffect, StartTimer

logger = logging.getLogger(__name__)

RELOAD_MS = 1_000
"""Pause before loading again after a log could not be read."""

FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Errors meaning that a producer, or a transaction's coordinator, is fenced: expected, not a fault.
"""

R = TypeVar("R", bound=CoordinatorRules)
Effects = Sequence[RulesEffect]


class ContextState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class CoordinatorContext(Generic[R]):
    """The coordinator of one partition in one leader epoch."""

    def __init__(
        self, kind: CoordinatorKind[R], partition: int, leader_epoch: int, log: CoordinatorLog
    ) -> None:
        """Call `load` next."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ContextState.LOADING
        self.effects: list[ContextEffect] = []
        """Effects to carry out, in order, after an input has returned."""
        self._kind = kind
        self._name = f"{kind.topic}-{partition}"
        self._log = log
        self._request_ids = itertools.count(1)
        self._waiting: dict[int, Any] = {}
        """Tickets of unanswered requests, by request id."""
        self._pending: deque[PendingAppend] = deque()
        """Appends that are not committed yet, in log order."""
        self._late_at_ms: int | None = None
        """Time of the next check for late appends: that of the oldest one that is not late yet."""
        self._timer = CoordinatorTimer()
        self._reload_at_ms: int | None = None
        self._after_load: list[Callable[[R], Effects]] = []
        """Operations that arrived while loading."""

    # --- loading ---------------------------------------------------------------------------------

    def load(self, *, now_ms: int, wall_ms: int) -> None:
        """Read the log from its start."""
        self.state = ContextState.LOADING
        self.coordinator = self._kind.new_rules()
        self._load_began_ms = now_ms
        self._reload_at_ms = None
        self._loader = CoordinatorLoader(
            self._log, self.coordinator, self._kind.load_buffer_size, self.effects
        )
        self._loader.begin()
        self._activate_if_loaded(now_ms, wall_ms)

    def on_log_read(
        self,
        read: ReadLog,
        entries: list[Any],
        next_offset: int,
        *,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Called with the entries that a ReadLog has found, and the offset after them."""
        try:
            self._loader.on_read(read, entries, next_offset)
        except Exception as error:  # noqa: BLE001 -- as below
            self._on_load_failed(error, now_ms)
        self._activate_if_loaded(now_ms, wall_ms)

    def on_log_read_failed(
        self, read: ReadLog, error: Exception, *, now_ms: int, wall_ms: int
    ) -> None:
        fatal = self._loader.on_read_failed(read, error)
        if fatal is not None:
            self._on_load_failed(fatal, now_ms)
        self._activate_if_loaded(now_ms, wall_ms)

    def on_log_damaged(
        self,
        read: ReadLog,
        damage: Exception,
        next_offset: int,
        *,
        has_other_replicas: bool,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Called when a ReadLog has found that the log is unreadable up to `next_offset`.

        Another replica, even one that is offline now, may have the range: then the load fails, so
        that no offset is lost. Without another replica the range is skipped, as otherwise the
        groups of this partition would have no coordinator at all.
        """
        if has_other_replicas:
            self.on_log_read_failed(read, damage, now_ms=now_ms, wall_ms=wall_ms)
            return
        logger.error("%s: skipped damage: %s", self._name, damage)
        next_offset = min(next_offset, read.up_to)
        self.on_log_read(read, [], next_offset, now_ms=now_ms, wall_ms=wall_ms)

    def _on_load_failed(self, error: Exception, now_ms: int) -> None:
        """Handle any loading error: nothing is coordinated here until the log can be read."""
        logger.error(
            "loading %s failed; retrying in %d ms",
            self._name,
            RELOAD_MS,
            exc_info=error,
        )
        self._loader.close()
        self.coordinator.close()
        self._reload_at_ms = now_ms + RELOAD_MS

    def on_high_watermark(self, *, now_ms: int, wall_ms: int) -> None:
        """Called when the high watermark may have moved; requested by WatchHighWatermark."""
        self._loader.on_high_watermark()
        self._activate_if_loaded(now_ms, wall_ms)

    def _activate_if_loaded(self, now_ms: int, wall_ms: int) -> None:
        if self.state is not ContextState.LOADING or not self._loader.is_complete:
            return
        self.state = ContextState.ACTIVE
        self._kind.note_load_ms(now_ms - self._load_began_ms)
        logger.log(
            self._level,
            "Finished loading %s from %s in %d milliseconds for epoch %d: %s.",
            self._kind.contents,
            self._name,
            now_ms - self._load_began_ms,
            self.leader_epoch,
            self._kind.count(self.coordinator),
        )
        self._perform(self.coordinator.on_loaded(now_ms=wall_ms), now_ms, wall_ms)
        operations, self._after_load = self._after_load, []
        for operation in operations:
            self._perform(operation(self.coordinator), now_ms, wall_ms)

    @property
    def _level(self) -> int:
        """Log level of messages about loading: most partitions of a new cluster have no record."""
        return logging.INFO if self._log.log_end_offset else logging.DEBUG

    # --- requests --------------------------------------------------------------------------------

    def write(
        self,
        ticket: object,
        operation: Callable[[R, int], Effects],
        *,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Run a request that may change something. Its answer comes as an effect, now or later.

        `operation`: calls the rules with the request; its arguments are the rules and a request id.
        """
        assert self.state is ContextState.ACTIVE
        request_id = next(self._request_ids)
        self._waiting[request_id] = ticket
        try:
            self._perform(operation(self.coordinator, request_id), now_ms, wall_ms)
        except BaseException:
            self._waiting.pop(request_id, None)
            raise

    def read(self, read: PendingRead) -> None:
        """Run a request that changes nothing; answered once the earlier appends that concern it are
        committed.
        """
        if self._pending and read.waits(self.coordinator):
            self._pending[-1].reads.append(read)
        else:
            self._answer_read(read)

    def run(self, operation: Callable[[R], Effects], *, now_ms: int, wall_ms: int) -> None:
        """Run an input that no caller waits for; while loading it is queued until that is done."""
        if self.state is ContextState.LOADING:
            self._after_load.append(operation)
        elif self.state is ContextState.ACTIVE:
            self._perform(operation(self.coordinator), now_ms, wall_ms)

    def run_if_active(
        self, operation: Callable[[R], Effects], *, now_ms: int, wall_ms: int
    ) -> None:
        """Run an input that answers an effect of these rules; dropped while loading, as newly
        loaded rules emit the effect again.
        """
        if self.state is ContextState.ACTIVE:
            self._perform(operation(self.coordinator), now_ms, wall_ms)

    # --- effects of the rules --------------------------------------------------------------------

    def _perform(self, effects: Effects, now_ms: int, wall_ms: int) -> None:
        for effect in effects:
            match effect:
                case Respond(request_id, response):
                    ticket = self._waiting.pop(request_id, None)
                    if ticket is None:
                        continue
                    if isinstance(response, KafkaError):
                        self.effects.append(Refuse(ticket, response))
                    else:
                        self.effects.append(Reply(ticket, response))
                case StartTimer(key, after_ms):
                    self._timer.start(key, after_ms, now_ms=now_ms)
                case CancelTimer(key):
                    self._timer.cancel(key)
                case Append():
                    self._append(effect, now_ms, wall_ms)
                case _:
                    self.effects.append(effect)

    def _append(self, append: Append, now_ms: int, wall_ms: int) -> None:
        pending = PendingAppend(append, now_ms + self._kind.append_timeout_ms)
        if append.marker is None:
            self.effects.append(AppendBatch(pending, self._encode(append, wall_ms)))
        else:
            self.effects.append(AppendMarker(pending, append.marker))
        self._pending.append(pending)
        if self._late_at_ms is None:
            self._late_at_ms = pending.late_at_ms

    def _encode(self, append: Append, wall_ms: int) -> bytearray:
        """Encode the coordinator's own batch; one of a transaction has no sequence, as in Kafka: a
        retried request is appended again, and the last one counts.
        """
        records = [(wall_ms, *self._kind.encode(record), ()) for record in append.records]
        codec, producer = self._kind.compression_codec, append.producer
        if producer is None:
            return encode_records(records, codec=codec)
        return encode_records(
            records,
            codec=codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )

    def on_append_failed(
        self, pending: PendingAppend, error: Exception, *, now_ms: int, wall_ms: int
    ) -> None:
        """Called when appending has raised. A KafkaError means that the replica has refused the
        append; after any other error the records may be in the log.
        """
        if isinstance(error, KafkaError):
            self._on_append_refused(pending, error, now_ms=now_ms, wall_ms=wall_ms)
        else:
            self.on_commit_failed(pending, error, now_ms=now_ms, wall_ms=wall_ms)

    def _on_append_refused(
        self, pending: PendingAppend, error: KafkaError, *, now_ms: int, wall_ms: int
    ) -> None:
        """Called when an append was refused: nothing was appended."""
        if pending.is_abandoned:
            return
        level = logging.DEBUG if error.code in FENCED else logging.WARNING
        logger.log(level, "appending to %s failed: %s", self._name, error)
        self._pending.remove(pending)
        failed = self.coordinator.on_failed(pending.append, error.code, now_ms=wall_ms)
        self._perform(failed, now_ms, wall_ms)
        for read in pending.reads:
            self.read(read)

    def on_committed(self, pending: PendingAppend, *, now_ms: int, wall_ms: int) -> None:
        """Called when the records of `pending` are committed."""
        pending.is_committed = True
        self._complete(now_ms, wall_ms)

    def on_commit_failed(
        self, pending: PendingAppend, error: Exception, *, now_ms: int, wall_ms: int
    ) -> None:
        """Called when it is unknown whether its records (`pending`) are, or will be, in the log."""
        pending.failure = error
        self._complete(now_ms, wall_ms)

    def _complete(self, now_ms: int, wall_ms: int) -> None:
        """Apply and answer committed appends, in log order and not beyond a gap."""
        while self._pending:
            first = self._pending[0]
            if first.failure is not None:
                self._on_unknown_outcome(first.failure, now_ms, wall_ms)
                return
            if not first.is_committed:
                return
            self._pending.popleft()
            committed = self.coordinator.on_committed(first.append, now_ms=wall_ms)
            self._perform(committed, now_ms, wall_ms)
            for read in first.reads:
                self._answer_read(read)

    def _answer_read(self, read: PendingRead) -> None:
        """Answer a read, even while later appends that concern it are under way: it came before
        them.
        """
        self.effects.append(Reply(read.ticket, read.answer(self.coordinator)))

    def _on_unknown_outcome(self, error: Exception, now_ms: int, wall_ms: int) -> None:
        if isinstance(error, KafkaError):
            logger.warning(
                "reloading %s: the outcome of an append is unknown: %s",
                self._name,
                error,
            )
        else:
            logger.error(
                "reloading %s: the outcome of an append is unknown",
                self._name,
                exc_info=error,
            )
        self._abandon()
        self.load(now_ms=now_ms, wall_ms=wall_ms)

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """Time of the next on_tick, which may find nothing due."""
        if self.state is ContextState.LOADING:
            return 0 if self._loader.has_entries else self._reload_at_ms
        due_ms, late_at_ms = self._timer.next_deadline_ms, self._late_at_ms
        if due_ms is None or (late_at_ms is not None and late_at_ms < due_ms):
            return late_at_ms
        return due_ms

    def on_tick(self, *, now_ms: int, wall_ms: int) -> None:
        if self.state is ContextState.LOADING:
            self._continue_loading(now_ms, wall_ms)
            return
        for key in self._timer.take_due(now_ms):
            self._perform(self.coordinator.on_timer(key, now_ms=wall_ms), now_ms, wall_ms)
        if self._late_at_ms is not None and self._late_at_ms <= now_ms:
            self._refuse_late(now_ms, wall_ms)

    def _continue_loading(self, now_ms: int, wall_ms: int) -> None:
        if self._reload_at_ms is not None:
            if self._reload_at_ms <= now_ms:
                self.load(now_ms=now_ms, wall_ms=wall_ms)
            return
        try:
            self._loader.apply_some()
        except Exception as error:  # noqa: BLE001 -- as above
            self._on_load_failed(error, now_ms)
        self._activate_if_loaded(now_ms, wall_ms)

    def _refuse_late(self, now_ms: int, wall_ms: int) -> None:
        """Refuse requests that wait too long. Their records may still be committed."""
        self._late_at_ms = None
        for pending in list(self._pending):
            if pending.is_late:
                continue
            if pending.late_at_ms > now_ms:
                self._late_at_ms = pending.late_at_ms
                return
            pending.is_late = True
            effects, pending.append = self.coordinator.on_late(pending.append, now_ms=wall_ms)
            self._perform(effects, now_ms, wall_ms)
            for read in pending.reads:
                error = CoordinatorNotAvailable(
                    "timed out waiting for earlier appends to be committed"
                )
                self.effects.append(Refuse(read.ticket, error))
            pending.reads.clear()

    # --- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close: nothing is coordinated here any more."""
        logger.log(
            self._level,
            "Finished unloading %s for %s with epoch %d.",
            self._kind.contents,
            self._name,
            self.leader_epoch,
        )
        self.state = ContextState.CLOSED
        self._loader.close()
        self._abandon()

    def _abandon(self) -> None:
        self._timer.clear()
        self._late_at_ms = None
        self.coordinator.close()
        tickets = list(self._waiting.values())
        self._waiting.clear()
        for pending in self._pending:
            pending.is_abandoned = True
            tickets += [read.ticket for read in pending.reads]
        self._pending.clear()
        for ticket in tickets:
            error = NotCoordinator(f"the coordinator of {self._name} has moved")
            self.effects.append(Refuse(ticket, error))

"""The driver of one simulated coordinator: as actors/coordinators/coordinator_driver, over virtual time.

Tickets are the functions that take an answer: a response, or a KafkaError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.coordinators.coordinator_context import ContextState, CoordinatorContext
from bradbury.coordinators.coordinator_effects import (
    AppendBatch,
    AppendMarker,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from bradbury.protocol.errors import KafkaError, KafkaStorageError
from bradbury.replication.partition.marker_append import TransactionDecision
from bradbury.steps.replies import Refuse, Reply

from .simulated_replica import SimulatedReplica, read_bytes

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode


class SimulatedCoordinator:
    """One context of one node, of groups or of transactions."""

    def __init__(
        self,
        node: SimulatedNode,
        context: CoordinatorContext[Any],
        replica: SimulatedReplica,
        decode: Callable[[bytes, int], tuple[list[Any], int]],
        *,
        on_effect: Callable[[Any], None] = lambda effect: None,
        on_append: Callable[[tuple[Any, ...]], None] = lambda records: None,
        on_active: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_effect`: those of the kind's own; `on_append`: what is about to be written."""
        self.node, self.context, self.replica = node, context, replica
        self._decode = decode
        self._on_effect = on_effect
        self._on_append = on_append
        self._on_active = on_active
        self._tick_at: int | None = None
        self._was_active = False

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way to the log."""
        return self.context.state is ContextState.ACTIVE and not self.context._pending

    def input(self, method: Callable[..., None], *values: object, **rest: Any) -> None:
        now_ms = self.node.clock.now_ms
        method(*values, **rest, now_ms=now_ms, wall_ms=now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        effects, now_ms = self.context.effects, self.node.clock.now_ms
        while effects:
            taken = effects[:]
            effects.clear()
            for outcome in [outcome for effect in taken if (outcome := self._begin(effect))]:
                outcome(now_ms=now_ms, wall_ms=now_ms)
        is_active = self.context.state is ContextState.ACTIVE
        if is_active and not self._was_active:
            self._on_active()
        self._was_active = is_active
        self._set_timer()

    def _begin(self, effect: object) -> Callable[..., None] | None:
        """Returns the input that it leads to at once."""
        match effect:
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
            case AppendBatch() | AppendMarker():
                return self._append(effect)
            case ReadLog():
                self.node.process.after(1, lambda: self._read(effect))
            case WatchHighWatermark():
                self.replica.on_commit[self._on_high_watermark] = None
            case UnwatchHighWatermark():
                self.replica.on_commit.pop(self._on_high_watermark, None)
            case _:
                self._on_effect(effect)
        return None

    def _append(self, effect: AppendBatch | AppendMarker) -> Callable[..., None] | None:
        pending, context = effect.pending, self.context
        self._on_append(pending.append.records)
        at_once: list[KafkaError | int] = []
        is_appended = False

        def answered(result: KafkaError | int) -> None:
            if is_appended:
                self.node.process.after(0, lambda: self.input(outcome_of(result)))
            else:
                at_once.append(result)

        if self._errs():
            return lambda **now: context.on_append_refused(
                pending, KafkaStorageError("full"), **now
            )
        is_doubtful = self._errs()

        def outcome_of(result: KafkaError | int) -> Callable[..., None]:
            def outcome(*, now_ms: int, wall_ms: int) -> None:
                if is_doubtful:
                    error = OSError("an fsync failed")
                    context.on_commit_failed(pending, error, now_ms=now_ms, wall_ms=wall_ms)
                elif isinstance(result, KafkaError):
                    context.on_commit_failed(pending, result, now_ms=now_ms, wall_ms=wall_ms)
                else:
                    context.on_committed(pending, now_ms=now_ms, wall_ms=wall_ms)

            return outcome

        try:
            if isinstance(effect, AppendMarker):
                marker = effect.marker
                decision = TransactionDecision(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.is_commit,
                    marker.coordinator_epoch,
                    marker.transaction_version,
                )
                self.replica.append_marker(decision, answer=answered)
            else:
                producer = pending.append.producer
                guard = None if producer is None else producer.guard
                self.replica.append(
                    bytearray(effect.batch), answer=answered, is_own=True, guard=guard
                )
        except KafkaError as error:
            refused = error
            return lambda **now: context.on_append_refused(pending, refused, **now)
        is_appended = True
        return outcome_of(at_once[0]) if at_once else None

    def _errs(self) -> bool:
        cluster = self.node.cluster
        chance = 0.0 if cluster.is_calm else cluster.swarm.log_errors
        return chance > 0 and cluster.random.random() < chance

    def _read(self, read: ReadLog) -> None:
        if self._errs():
            self.input(self.context.on_log_read_failed, read, OSError("unreadable"))
            return
        data = read_bytes(self.replica.log, read.offset, read.up_to, read.max_bytes)
        entries, next_offset = self._decode(data, read.offset)
        self.input(self.context.on_log_read, read, entries, next_offset)

    def _on_high_watermark(self) -> None:
        """The replica is in the middle of something."""
        self.node.process.after(0, lambda: self.input(self.context.on_high_watermark))

    def _set_timer(self) -> None:
        deadline_ms = self.context.next_deadline_ms
        if deadline_ms is None or (self._tick_at is not None and self._tick_at <= deadline_ms):
            return
        self._tick_at = at_ms = deadline_ms
        self.node.process.after(max(0, at_ms - self.node.clock.now_ms), lambda: self._tick(at_ms))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._tick_at:
            self._tick_at = None
            self.input(self.context.on_tick)

"""What a coordinator of the simulation stands on: the shipped replica, on a disk that may fail.

The drivers of coordinators are the shipped ones (actors/coordinators), on the virtual loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.coordinators.coordinator_context import ContextState, CoordinatorContext
from bradbury.handlers.ports.replica_port import Appended
from bradbury.protocol.buffer import Buffer
from bradbury.protocol.errors import KafkaStorageError
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.producers.verification_guard import VerificationGuard

from ..virtual_loop import settle

if TYPE_CHECKING:
    from ..simulated_node import SimulatedNode
    from ..simulated_replica import SimulatedReplica


class CoordinatorReplica:
    """A led replica as its coordinator has it: appends are refused, or end in doubt, by chance."""

    def __init__(
        self,
        node: SimulatedNode,
        replica: SimulatedReplica,
        decode: Callable[[Buffer, int], tuple[list[Any], int]],
        on_append: Callable[[list[Any]], None],
    ) -> None:
        """`on_append`: told the records that are about to be written."""
        self._node, self._hosted = node, replica.hosted
        self._decode, self._on_append = decode, on_append
        self.park, self.unpark = self._hosted.park, self._hosted.unpark

    @property
    def log(self) -> PartitionLog:
        return self._hosted.log

    def append(self, batch: memoryview, *, guard: VerificationGuard | None = None) -> Appended:
        self._on_append(self._decode(batch, 0)[0])
        return self._in_doubt(lambda: self._hosted.append(batch, guard=guard))

    def append_marker(self, *values: Any, **rest: Any) -> Appended:
        return self._in_doubt(lambda: self._hosted.append_marker(*values, **rest))

    def _in_doubt(self, append: Callable[[], Appended]) -> Appended:
        node = self._node
        if node.errs():
            raise KafkaStorageError("full")
        is_doubtful = node.errs()
        appended = append()
        if not is_doubtful:
            return appended
        committed = node.loop.create_future()

        def failed(_: object = None) -> None:
            settle(committed, OSError("an fsync failed"))

        if appended.committed is None:
            failed()
        else:
            appended.committed.add_done_callback(failed)  # type: ignore[attr-defined]
        return appended._replace(committed=committed)


def is_idle(context: CoordinatorContext[Any]) -> bool:
    """Whether it serves, and nothing is on its way to the log."""
    return context.state is ContextState.ACTIVE and not context._pending

"""Log of a partition as its coordinator needs it."""

from __future__ import annotations

from typing import Protocol

from .coordinator_effects import CoordinatorLog


class LedReplica(Protocol):
    @property
    def log(self) -> CoordinatorLog: ...


class LedReplicaLog:
    """CoordinatorLog of a replica. Looked up at each call, as a directory move replaces it."""

    def __init__(self, replica: LedReplica) -> None:
        self._replica = replica

    @property
    def log_start_offset(self) -> int:
        return self._replica.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._replica.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._replica.log.high_watermark

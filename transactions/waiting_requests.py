"""AddPartitionsToTxn requests that wait for a transition of their transactional id to end.

Their number is bounded by the requests that connections may have in progress (MAX_PIPELINED of
actors/network/client_connection for each).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .transaction_metadata import Partitions


class AddPartitions(NamedTuple):
    request_id: int
    producer_id: int
    producer_epoch: int
    partitions: Partitions
    client_version: int


class WaitingRequests:
    """Waiting requests by transactional id, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[AddPartitions]] = {}

    def has(self, transactional_id: str) -> bool:
        return transactional_id in self._waiting

    def add(self, transactional_id: str, request: AddPartitions) -> bool:
        """Add a request. Returns whether it is the first one of the id."""
        waiting = self._waiting.setdefault(transactional_id, deque())
        waiting.append(request)
        return len(waiting) == 1

    def take(self, transactional_id: str) -> AddPartitions:
        waiting = self._waiting[transactional_id]
        request = waiting.popleft()
        if not waiting:
            del self._waiting[transactional_id]
        return request

    def take_all(self, transactional_id: str) -> tuple[AddPartitions, ...]:
        return tuple(self._waiting.pop(transactional_id, ()))

    def clear(self) -> None:
        self._waiting.clear()

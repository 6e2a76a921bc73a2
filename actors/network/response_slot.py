"""The place of one response in the order of its connection."""

from __future__ import annotations

from ...handlers.ports.request_metrics import RequestTrace
from ...handlers.server.dispatch import Chunks


class ResponseSlot(RequestTrace):
    """One response in the order of its connection, filled in later; see ClientConnection."""

    __slots__ = ("chunks", "end", "ready")

    def __init__(self, received_at: float, request_bytes: int) -> None:
        super().__init__(received_at, request_bytes)
        self.ready = False
        self.chunks: Chunks | None = None
        self.end = 0

"""The place of one response in the order of its connection, and the queue of what is unsent."""

from __future__ import annotations

from collections import deque
from typing import Final

from ...handlers.ports.request_metrics import RequestTrace
from ...handlers.server.dispatch import Chunks
from ...protocol.buffer import Buffer
from ...protocol.records.fetch_response import IN_MEMORY, Chunk

MOST_PIECES: Final = 64


class ResponseSlot(RequestTrace):
    """One response in the order of its connection, filled in later; see ClientConnection."""

    __slots__ = ("chunks", "end", "ready")

    def __init__(self, received_at: float, request_bytes: int) -> None:
        super().__init__(received_at, request_bytes)
        self.ready = False
        self.chunks: Chunks | None = None
        self.end = 0


def gather(unsent: deque[Chunk]) -> tuple[list[Buffer], int, bool]:
    """Pieces in memory at the head of the queue, for one system call: they, their size in bytes,
    and whether a file follows them.
    """
    pieces: list[Buffer] = []
    size = 0
    for chunk in unsent:
        if not isinstance(chunk, IN_MEMORY):
            return pieces, size, True
        pieces.append(chunk)
        size += len(chunk)
        if len(pieces) == MOST_PIECES:
            break
    return pieces, size, False


def drop(unsent: deque[Chunk], sent: int) -> None:
    """Take bytes that were sent off the head of the queue."""
    while sent:
        head = unsent[0]
        assert isinstance(head, IN_MEMORY)
        if sent < len(head):
            unsent[0] = memoryview(head)[sent:]
            return
        sent -= len(head)
        unsent.popleft()

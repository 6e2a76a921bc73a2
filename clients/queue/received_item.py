"""An item of a queue that is to be acknowledged, and the exceptions of Ray's queue."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .frames.queue_frames import Piece


class Empty(queue.Empty):
    """Raised if there is no item, or fewer than asked for."""


class Full(queue.Full):
    """Raised if the items would be more than `maxsize`."""


class ItemHolder(Protocol):
    """The connection over which an item has come."""

    def settle(self, pieces: Sequence[Piece]) -> None: ...
    def release(self, pieces: Sequence[Piece], delay_s: float) -> None: ...
    def extend(self, pieces: Sequence[Piece]) -> None: ...


@dataclass(frozen=True, slots=True)
class ReceivedItem:
    """An item, until `ack`, `nack` or the end of its lease.

    item: what was put.
    delivery_count: 1 the first time.
    offset, index: where it is: the record of the queue's topic, and the place in it.
    """

    item: Any
    delivery_count: int
    offset: int
    index: int
    connection: ItemHolder = field(repr=False, compare=False)

    def ack(self) -> None:
        """Acknowledge the item: it is consumed."""
        self.connection.settle([(self.offset, self.index, self.index + 1)])

    def nack(self, delay_s: float = 0.0) -> None:
        """Return the item for another delivery in `delay_s` seconds, or to the dead letters."""
        self.connection.release([(self.offset, self.index, self.index + 1)], delay_s)

    def extend(self) -> None:
        """Restart the lease of the item, for work that takes longer than `lease_s`."""
        self.connection.extend([(self.offset, self.index, self.index + 1)])

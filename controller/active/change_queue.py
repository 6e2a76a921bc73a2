"""Changes of the metadata, one at a time, in the order in which they came.

Each is decided on the newest image, appended on a majority, fsynced, and applied. Only then is the
next one decided, so that it builds on that. A change whose write has begun is completed even if its
caller no longer waits: otherwise the voters would have records that the image lacks.

Source: the controller's KafkaEventQueue, and QuorumController.ControllerWriteEvent in apache/kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.metadata.metadata_records import (
    MetadataRecord,
    encode_metadata_record,
    voters_in,
)
from ...cluster.quorum.voter import Candidate
from ...protocol.errors import NotController
from ...protocol.records.record_batch import stamp
from ...protocol.records.records import encode_records
from ...steps.replies import Refuse, Reply
from ..controller_effects import Instant
from ..metadata_leader import MetadataLeader

Then = Callable[[Any, Instant], None]
Decide = Callable[[MetadataImage], tuple[Sequence[MetadataRecord], Any]]
"""Decides a change: (records to write, answer once they are durable)."""


class _Change(NamedTuple):
    decide: Decide
    then: Then


class Write(NamedTuple):
    """A change that is being written. Its records are those in [offset, end_offset)."""

    records: Sequence[MetadataRecord]
    encoded: list[bytes]
    size: int
    """Bytes of their batch."""
    offset: int
    end_offset: int
    answer: Any
    then: Then


class ChangeQueue:
    """Changes that wait, the one that is being written, and the image that they have led to.

    waiting_for: what the controller needs before it accepts changes; None: it is active.
    """

    def __init__(self) -> None:
        self.me = Candidate()
        """Candidate that won the newest election; its epoch is in every batch."""
        self.image = MetadataImage()
        self.waiting_for: str | None = "its voters"
        self.write: Write | None = None
        self._changes: deque[_Change] = deque()
        self._leader: MetadataLeader | None = None

    @property
    def is_active(self) -> bool:
        return self.waiting_for is None

    def begin(self, me: Candidate, leader: MetadataLeader, image: MetadataImage) -> None:
        """Begin a controller epoch. `submit` accepts changes once `waiting_for` is None."""
        self.me, self._leader, self.image = me, leader, image

    def close(self, error: Exception) -> None:
        """Refuse all changes, also the one that is being written: it may be committed or not."""
        write, self.write = self.write, None
        changes, self._changes = list(self._changes), deque()
        instant = Instant(0, 0)
        for then in (*([write.then] if write else []), *(each.then for each in changes)):
            then(error, instant)

    def submit(self, decide: Decide, then: Then, now: Instant) -> None:
        """Submit a change; `then` gets its answer once the records are durable and published, or
        the exception that `decide` has raised, or NotController.
        """
        if self.waiting_for is not None:
            then(NotController(f"the controller is waiting for {self.waiting_for}"), now)
        else:
            self.enqueue(decide, then, now)

    def enqueue(self, decide: Decide, then: Then, now: Instant) -> None:
        """Submit one of the changes that make the controller active."""
        self._changes.append(_Change(decide, then))
        self.begin_next(now)

    def begin_next(self, now: Instant) -> None:
        """Decide changes until one is being written. To be called after each committed write."""
        while self._changes and self.write is None:
            change = self._changes.popleft()
            try:
                records, answer = change.decide(self.image)
                if records:
                    self._begin(records, answer, change.then, now)
                    return
            except Exception as error:  # noqa: BLE001 -- it is the answer
                answer = error
            change.then(answer, now)

    def _begin(
        self, records: Sequence[MetadataRecord], answer: Any, then: Then, now: Instant
    ) -> None:
        """Make the records durable on a majority."""
        assert self._leader is not None, "begin() comes first"
        encoded = [encode_metadata_record(record) for record in records]
        batch = encode_records([(now.wall_ms, None, value, ()) for value in encoded])
        offset = self.image.offset
        stamp(batch, base_offset=offset, leader_epoch=self.me.epoch)
        end_offset = self._leader.append(bytes(batch), len(records), now, voters=voters_in(records))
        self.write = Write(records, encoded, len(batch), offset, end_offset, answer, then)

    def take_committed(self) -> Write | None:
        """The change that was being written, applied to the image; None while it is not committed.

        The caller publishes and answers it, and then calls `begin_next`.
        """
        write = self.write
        if write is None or self._leader is None or self._leader.committed < write.end_offset:
            return None
        self.write = None
        self.image = self.image.apply(write.records, offset=write.end_offset)
        return write


def answering(ticket: Any, effects: list[Any]) -> Then:
    """A `then` that answers the ticket."""

    def then(answer: Any, _: Instant) -> None:
        if isinstance(answer, Exception):
            effects.append(Refuse(ticket, answer))
        else:
            effects.append(Reply(ticket, answer))

    return then

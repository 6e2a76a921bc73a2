"""Publishes metadata to polling nodes, and waits until nodes have applied it.

Nodes learn of changes by PollMetadata: a poll is parked until there is a change, or for a while. It
carries the offset that its node has applied; a change is answered when the nodes concerned have
applied it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ..cluster.control.controller_state import check_session
from ..cluster.control.poll_times import PollTimes
from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.metadata.metadata_records import encode_metadata_record
from ..protocol.errors import KafkaError, NotController
from ..steps.replies import Refuse, Reply
from .controller_calls import MetadataUpdate, PollMetadata
from .controller_effects import Instant

KEPT_CHANGES = 10_000


class _Parked(NamedTuple):
    ticket: Any
    poll: PollMetadata
    deadline_ms: int


class _Waiting(NamedTuple):
    """A caller that waits until these nodes have applied everything before the offset."""

    ticket: Any
    answer: Any
    node_ids: set[int]
    offset: int
    deadline_ms: int
    is_for_all: bool


class MetadataPublisher:
    """A step object of one controller, while it is active."""

    def __init__(self, epoch: int, effects: list[Any], *, poll_ms: int) -> None:
        self._epoch = epoch
        self._effects = effects
        self._poll_ms = poll_ms
        self._changes: deque[tuple[int, list[bytes]]] = deque(maxlen=KEPT_CHANGES)
        self._parked: list[_Parked] = []
        self._waiting: list[_Waiting] = []
        self.applied: dict[int, int] = {}
        """Offset that each node has applied, by node id."""
        self.polls = PollTimes()

    # --- news ------------------------------------------------------------------------------------

    def on_change(self, image: MetadataImage, offset: int, records: list[bytes]) -> None:
        """Called when these encoded records, from `offset` on, are committed and led to `image`."""
        self._changes.append((offset, records))
        parked, self._parked = self._parked, []
        for each in parked:
            self._answer(each, image)

    def on_poll(self, ticket: Any, poll: PollMetadata, image: MetadataImage, now: Instant) -> None:
        """Handle the poll of a node that is in service."""
        parked = _Parked(ticket, poll, now.now_ms + self._poll_ms)
        if poll.applied < image.offset:
            self._answer(parked, image)
        else:
            self._parked.append(parked)

    def _answer(self, parked: _Parked, image: MetadataImage) -> None:
        # The node may have died since it polled: only a new poll counts as contact. The change that
        # fences the node wakes its parked poll, too, and must not unfence it.
        try:
            check_session(image, parked.poll.node_id, parked.poll.incarnation)
        except KafkaError as error:
            self._effects.append(Refuse(parked.ticket, error))
        else:
            update = self._update_after(parked.poll.applied, image)
            self._effects.append(Reply(parked.ticket, update))

    def _update_after(self, applied: int, image: MetadataImage) -> MetadataUpdate:
        if applied == image.offset:
            return MetadataUpdate(self._epoch, image.offset, whole=False, records=[])
        if applied > image.offset or not self._changes or self._changes[0][0] > applied:
            records = [encode_metadata_record(record) for record in image.to_records()]
            return MetadataUpdate(self._epoch, image.offset, whole=True, records=records)
        news: list[bytes] = []
        for offset, encoded in self._changes:
            if offset + len(encoded) > applied:
                news += encoded[max(0, applied - offset) :]
        return MetadataUpdate(self._epoch, image.offset, whole=False, records=news)

    # --- what nodes have applied -----------------------------------------------------------------

    def on_applied(self, poll: PollMetadata, image: MetadataImage, now: Instant) -> None:
        """Note the offset that a polling node has applied."""
        node_id, offset = poll.node_id, poll.applied
        self.polls.on_poll(node_id, has_all=offset >= image.offset, now_ms=now.wall_ms)
        if self.applied.get(node_id) == offset:
            return
        self.applied[node_id] = offset
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if self._is_applied(each):
                self._effects.append(Reply(each.ticket, each.answer))
            else:
                self._waiting.append(each)

    def wait_applied(
        self,
        ticket: Any,
        answer: Any,
        node_ids: set[int],
        offset: int,
        timeout_ms: int,
        now: Instant,
        *,
        is_for_all: bool = False,
    ) -> None:
        """Answer when those nodes have applied the change, so that a client can use it at once; or
        at the timeout: the change stands all the same.

        is_for_all: refused, not answered, if the controller ends before that.
        """
        deadline_ms = now.now_ms + timeout_ms
        waiting = _Waiting(ticket, answer, node_ids, offset, deadline_ms, is_for_all)
        if timeout_ms <= 0 or self._is_applied(waiting):
            self._effects.append(Reply(ticket, answer))
        else:
            self._waiting.append(waiting)

    def _is_applied(self, waiting: _Waiting) -> bool:
        return all(self.applied.get(node_id, 0) >= waiting.offset for node_id in waiting.node_ids)

    # --- time ------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        # All are parked for the same time, so the first one is the next one.
        first = [self._parked[0].deadline_ms] if self._parked else []
        return min([*first, *(each.deadline_ms for each in self._waiting)], default=None)

    def on_tick(self, image: MetadataImage, now: Instant) -> None:
        while self._parked and now.now_ms >= self._parked[0].deadline_ms:
            self._answer(self._parked.pop(0), image)
        for each in [each for each in self._waiting if now.now_ms >= each.deadline_ms]:
            self._waiting.remove(each)
            self._effects.append(Reply(each.ticket, each.answer))

    def close(self, reason: str) -> None:
        """Close: polls are refused, so that nodes look for the next controller; committed changes
        stand.

        A change that is_for_all is refused, so that its caller asks the next controller, which
        knows the offsets of all nodes.
        """
        for parked in self._parked:
            self._effects.append(Refuse(parked.ticket, NotController(reason)))
        for waiting in self._waiting:
            if waiting.is_for_all:
                self._effects.append(Refuse(waiting.ticket, NotController(reason)))
            else:
                self._effects.append(Reply(waiting.ticket, waiting.answer))
        self._parked, self._waiting = [], []

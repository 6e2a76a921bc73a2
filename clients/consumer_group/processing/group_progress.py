"""Progress of each partition: offsets read, unfinished and committable.

Invariants:
    The commit point of a partition is its lowest unfinished offset or, if nothing is unfinished,
    the offset that is read next. It never moves back while the partition is held.
    A span that is finished after its partition was revoked changes nothing.
    Rows below the committed offset are read only if the log is another one: its topic was
    recreated, or it was truncated, and the consumer was reset. Progress begins there again.

A partition that is revoked in a rebalance is *suspended*, since it is often assigned again at once:
its processing continues, and if no member committed anything meanwhile, its progress is kept. If a
member has, or another member owns the partition, unfinished batches are dropped here.

Pure: no clock, no actor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ....protocol.topic_partition import TopicPartition
from .batch import Span


@dataclass(slots=True)
class _Partition:
    """Progress of one partition. position: next offset. unfinished: first offset by span."""

    position: int
    committed: int | None
    unfinished: dict[int, int] = field(default_factory=dict)
    suspended: bool = False


class Progress:
    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    # --- assignment --------------------------------------------------------------------------

    def on_assigned(self, key: TopicPartition, committed: int | None) -> int | None:
        """Add a partition, or resume it; return the offset to seek to, if not `committed`.

        Args:
            key: the partition.
            committed: the group's committed offset now; None if there is none.
        """
        kept = self._partitions.get(key)
        if kept is not None and kept.suspended and kept.committed == committed:
            kept.suspended = False
            return None if kept.position in {-1, committed} else kept.position
        self._partitions[key] = _Partition(-1 if committed is None else committed, committed)
        return None

    def suspend(self, keys: Iterable[TopicPartition]) -> None:
        """Suspend revoked partitions: nothing is committed until they are assigned again."""
        for key in keys:
            if key in self._partitions:
                self._partitions[key].suspended = True

    def drop_suspended(self) -> set[TopicPartition]:
        """Drop the partitions that were not assigned again; return them."""
        gone = {key for key, one in self._partitions.items() if one.suspended}
        for key in gone:
            del self._partitions[key]
        return gone

    # --- work --------------------------------------------------------------------------------

    def on_read(self, spans: Iterable[Span]) -> bool:
        """Mark spans of a poll as unfinished; whether a partition begins again with them."""
        was_reset = False
        for key, first, last, number in spans:
            one = self._partitions.get(key)
            if one is None:
                continue
            if one.committed is not None and first < one.committed:
                one = self._partitions[key] = _Partition(first, None, suspended=one.suspended)
                was_reset = True
            one.unfinished[number] = first
            one.position = max(one.position, last + 1)
        return was_reset

    def on_position(self, positions: Mapping[TopicPartition, int]) -> None:
        """Update positions, which may be past offsets without records."""
        for key, position in positions.items():
            one = self._partitions.get(key)
            if one is not None and not one.suspended:
                one.position = max(one.position, position)

    def rewind(self, spans: Iterable[Span]) -> None:
        """Drop spans, which will be read again."""
        for key, first, _, number in spans:
            one = self._partitions.get(key)
            if one is not None:
                one.unfinished.pop(number, None)
                one.position = min(one.position, first)

    def on_finished(self, spans: Iterable[Span]) -> None:
        for key, _, _, number in spans:
            one = self._partitions.get(key)
            if one is not None:
                one.unfinished.pop(number, None)

    def is_current(self, spans: Iterable[Span]) -> bool:
        """Whether any of these spans still belongs to this member."""
        return bool(self.current(spans))

    def current(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Spans that still belong to this member."""
        return tuple(
            span
            for span in spans
            if span.topic_partition in self._partitions
            and span.number in self._partitions[span.topic_partition].unfinished
        )

    # --- commits -----------------------------------------------------------------------------

    def to_commit(self) -> dict[TopicPartition, int]:
        """Commit points that have moved since the last commit."""
        return self.commit_points(())

    def commit_points(
        self, finished: Iterable[Span], *, all_of: bool = False
    ) -> dict[TopicPartition, int]:
        """Commit points if `finished` were finished; with `all_of`, also those not moved."""
        numbers = {span.number for span in finished}
        found = {}
        for key, one in self._partitions.items():
            left = [first for number, first in one.unfinished.items() if number not in numbers]
            point = min(left, default=one.position)
            if one.suspended or point < 0:
                continue
            if all_of or one.committed is None or point > one.committed:
                found[key] = point
        return found

    def is_held(self, key: TopicPartition) -> bool:
        """Whether the partition is assigned to this member now."""
        return key in self._partitions and not self._partitions[key].suspended

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for key, offset in offsets.items():
            if key in self._partitions:
                self._partitions[key].committed = offset

    def committed(self) -> dict[TopicPartition, int]:
        """Committed offsets of the partitions held."""
        return {
            key: one.committed
            for key, one in self._partitions.items()
            if one.committed is not None and not one.suspended
        }

    def offsets(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Position and committed offset of each partition held."""
        return {
            key: (one.position, one.committed)
            for key, one in self._partitions.items()
            if not one.suspended
        }

"""How far each partition is: what was read, what is unfinished, what may be committed.

What always holds:
    The commit point of a partition is its lowest unfinished offset, or, when nothing is unfinished,
    the offset that is read next. It never moves back while the partition is held.
    A span that is finished after its partition was revoked changes nothing.

A partition that is revoked in a rebalance is *suspended*, since it often comes straight back:
processing of it goes on, and if no member committed anything meanwhile, so does its progress. If
one has, or another member got it, what is unfinished is dropped here and done there.

Pure: no clock, no actor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...wire.record_metadata import TopicPartition
from .batch import Span


@dataclass(slots=True)
class _Partition:
    """position: of the next record to be read. unfinished: first offsets by span number."""

    position: int
    committed: int | None
    unfinished: dict[int, int] = field(default_factory=dict)
    suspended: bool = False


class Progress:
    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    # --- partitions come and go --------------------------------------------------------------

    def on_assigned(self, key: TopicPartition, committed: int | None) -> int | None:
        """Take a partition, or take it back; returns where to seek, if not to `committed`.

        Args:
            key: the partition.
            committed: what the group has stored now; None for nothing.
        """
        kept = self._partitions.get(key)
        if kept is not None and kept.suspended and kept.committed == committed:
            kept.suspended = False
            return None if kept.position in {-1, committed} else kept.position
        self._partitions[key] = _Partition(-1 if committed is None else committed, committed)
        return None

    def suspend(self, keys: Iterable[TopicPartition]) -> None:
        """Revoked in a rebalance: nothing of it is committed until it is assigned again."""
        for key in keys:
            if key in self._partitions:
                self._partitions[key].suspended = True

    def drop_suspended(self) -> set[TopicPartition]:
        """Forget what did not come back; returns it."""
        gone = {key for key, one in self._partitions.items() if one.suspended}
        for key in gone:
            del self._partitions[key]
        return gone

    # --- work --------------------------------------------------------------------------------

    def on_read(self, spans: Iterable[Span]) -> None:
        """Records were handed out: they are unfinished now."""
        for key, first, last, number in spans:
            one = self._partitions.get(key)
            if one is not None:
                one.unfinished[number] = first
                one.position = max(one.position, last + 1)

    def on_position(self, positions: Mapping[TopicPartition, int]) -> None:
        """Where reading goes on: past what holds no records, too."""
        for key, position in positions.items():
            one = self._partitions.get(key)
            if one is not None and not one.suspended:
                one.position = max(one.position, position)

    def rewind(self, spans: Iterable[Span]) -> None:
        """They will be read again."""
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
        """Whether any of these is still this member's to do."""
        return bool(self.current(spans))

    def current(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Those that are still this member's to do."""
        return tuple(
            span
            for span in spans
            if span.topic_partition in self._partitions
            and span.number in self._partitions[span.topic_partition].unfinished
        )

    # --- commits -----------------------------------------------------------------------------

    def to_commit(self) -> dict[TopicPartition, int]:
        """The commit points that have moved since the last commit."""
        return self.commit_points(())

    def commit_points(
        self, finished: Iterable[Span], *, all_of: bool = False
    ) -> dict[TopicPartition, int]:
        """The same when `finished` would be; with `all_of`, also those that have not moved."""
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
        """Whether it is this member's now."""
        return key in self._partitions and not self._partitions[key].suspended

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for key, offset in offsets.items():
            if key in self._partitions:
                self._partitions[key].committed = offset

    def committed(self) -> dict[TopicPartition, int]:
        """What is stored, of the partitions held."""
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

"""Batches of a function call: rows of a poll, with their partitions and offsets.

Invariants:
    The rows of one partition are in order of their offsets.
    A span begins at its first row's offset and is done when its batch is: rows of one poll may be
    distributed over several batches by key, so the spans of a partition overlap.

Pure: no clock, no actor.

Not here: progress and commits (group_progress), assignment to workers (dispatcher).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....protocol.columns.columns_arrow import Int32s
from ....protocol.columns.columns_loops import loops_for
from ....protocol.topic_partition import TopicPartition

Order = Literal["key", "partition"] | None

_GOLDEN: Final = 0x9E3779B1
"""Multiplier that spreads hashes again: keys of one partition have hashes with equal remainders."""


class Span(NamedTuple):
    """Offsets `first` to `last` (inclusive) of rows of one partition. number: unique."""

    topic_partition: TopicPartition
    first: int
    last: int
    number: int


@dataclass(slots=True, eq=False)
class Batch:
    """Rows for one call of the function.

    lane: batches of one lane are processed one after another; None: in any order.
    attempts: number of failed attempts, by an exception or the worker's death.
    """

    number: int
    table: pa.Table
    spans: tuple[Span, ...]
    lane: int | None = None
    attempts: int = 0

    @property
    def rows(self) -> int:
        count: int = self.table.num_rows
        return count

    @property
    def topic_partitions(self) -> set[TopicPartition]:
        return {span.topic_partition for span in self.spans}


@dataclass(slots=True)
class BatchMaker:
    """Splits polls into batches. lanes: number of lanes that ordered records are spread over.

    apart: whether each batch has rows of one partition only.
    """

    order: Order = None
    lanes: int = 1
    apart: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(2**62)))

    def cut(self, table: pa.Table) -> list[Batch]:
        """Split one poll into batches that are not empty.

        Without an order the poll is one batch; else there is one for each lane with rows.
        """
        parts = list(_by_partition(table))
        if self.order is None and self.apart:
            return [self._batch([part], None) for part in parts]
        if self.order is None:
            return [self._batch(parts, None)] if parts else []
        if self.order == "partition":
            return [self._batch([(key, rows)], _lane_of(key, self.lanes)) for key, rows in parts]
        by_lane: dict[int, list[tuple[TopicPartition, pa.Table]]] = {}
        for key, rows in parts:
            lanes = lanes_of_keys(rows.column("key"), self.lanes)
            for lane in np.unique(lanes).tolist():
                chosen = rows.filter(pa.array(lanes == lane))
                by_lane.setdefault(lane, []).append((key, chosen))
        if self.apart:
            return [
                self._batch([part], lane) for lane, rows in sorted(by_lane.items()) for part in rows
            ]
        return [self._batch(rows, lane) for lane, rows in sorted(by_lane.items())]

    def merge(self, batches: list[Batch]) -> Batch:
        """Merge batches of the same lane into one, in order."""
        if len(batches) == 1:
            return batches[0]
        table = pa.concat_tables([batch.table for batch in batches])
        spans = tuple(span for batch in batches for span in batch.spans)
        return Batch(next(self._numbers), table, spans, batches[0].lane)

    def _batch(self, parts: list[tuple[TopicPartition, pa.Table]], lane: int | None) -> Batch:
        spans = []
        for key, rows in parts:
            offsets = rows.column("offset")
            first, last = offsets[0].as_py(), offsets[-1].as_py()
            spans.append(Span(key, first, last, next(self._numbers)))
        table = parts[0][1] if len(parts) == 1 else pa.concat_tables([rows for _, rows in parts])
        return Batch(next(self._numbers), table, tuple(spans), lane)


def lanes_of_keys(keys: Any, lanes: int) -> Int32s:
    """Lane of each key: equal keys have equal lanes. Records without a key are spread round-robin.

    Cost: 20 ns a key of 16 bytes once the kernels are loaded, 2 us before.
    """
    column: Any = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(column, pa.ChunkedArray):  # result of combine_chunks for no or many chunks
        column = pa.concat_arrays(column.chunks)
    hashes: Any = loops_for(len(column)).hash_keys(column)  # Kafka's murmur2; -1 for no key
    mixed: npt.NDArray[np.uint64] = hashes.astype(np.uint64) * np.uint64(_GOLDEN)
    found = ((mixed & np.uint64(0xFFFFFFFF)) >> np.uint64(16)) % np.uint64(lanes)
    turns = np.arange(len(column), dtype=np.uint64) % np.uint64(lanes)
    return np.where(hashes < 0, turns, found).astype(np.int32)


def _lane_of(key: TopicPartition, lanes: int) -> int:
    return (sum(key.topic.encode()) + key.partition) % lanes


def _by_partition(table: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Yield the rows of each partition, in order of their first row."""
    found: dict[TopicPartition, list[pa.Table]] = {}
    for rows in table.to_batches():
        if not rows.num_rows:
            continue
        for start, end in _runs(rows):
            key = TopicPartition(
                rows.column("topic")[start].as_py(), rows.column("partition")[start].as_py()
            )
            piece = pa.Table.from_batches([rows.slice(start, end - start)])
            found.setdefault(key, []).append(piece)
    for key, pieces in found.items():
        yield key, pa.concat_tables(pieces)


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield row ranges of equal partition number: usually one, as polls have a piece for each."""
    partitions: Any = rows.column("partition").to_numpy()
    changes = np.flatnonzero(np.diff(partitions)) + 1
    bounds = [0, *changes.tolist(), rows.num_rows]
    for start, end in pairwise(bounds):
        yield from _split_topics(rows.column("topic"), start, end)


def _split_topics(topics: Any, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a row range by topic, as partitions of two topics may have the same number."""
    codes = topics.slice(start, end - start).dictionary_encode().indices
    changes = np.flatnonzero(np.diff(codes.to_numpy())) + 1
    bounds = [start, *(start + change for change in changes.tolist()), end]
    yield from pairwise(bounds)


def spans_text(spans: Iterable[Span]) -> str:
    """The spans as text: "flights-0 offsets 100 to 199, flights-1 ..."."""
    return ", ".join(
        f"{span.topic_partition} offsets {span.first} to {span.last}" for span in spans
    )

"""Datasource that plans a read, and the task of a read.

Invariants:
    Starts and ends are fixed when the Dataset is made: executed again, after a failure or a second
    time, it has the same records.
    A task outputs blocks as it reads: its memory is bounded by RangeReader, not by its ranges.
    Columns that no downstream operator needs are not built; filters on topic, partition, offset and
    timestamp exclude ranges (range_predicate).

Source: ray/data/_internal/datasource/kafka_datasource.py (Ray 2.60).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.range_reader import RangeReader
from ..ranges.reading_client import load_kernels, reading_client
from ..ranges.topic_columns import SCHEMA, topic_table
from ..ranges.topic_offsets import ranges_since, split_ranges
from ..ranges.value_decoder import ValueDecoder
from .range_predicate import columns_of, least_timestamp, narrowed

ROWS_ALONE: Final = "__bsp_stub"
"""Column by which Ray counts the rows of a block without columns (its arrow_block)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """Settings shared by all tasks of a read; pickled.

    bootstrap: "host:port,...", as found by the driver.
    topic_ids: ids of the topics when their ranges were chosen.
    record_bytes: average size of a record, for estimates.
    """

    bootstrap: str
    limits: ReadLimits
    decoder: ValueDecoder
    record_bytes: float
    topic_ids: Mapping[str, str]


class TopicDatasource(Datasource):
    """Datasource of some ranges. Ray Data requests its tasks each time it executes the Dataset."""

    def __init__(
        self, read: TopicRead, ranges: Sequence[PartitionRange], columns: Sequence[str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._projection_map: dict[str, str] | None = None  # not set by Ray's __init__
        self._read = read
        self._ranges = list(ranges)
        self._columns = list(columns)

    def get_name(self) -> str:
        return "Topic"

    def estimate_inmemory_data_size(self) -> int:
        return int(sum(one.size for one in self._selected()) * self._read.record_bytes)

    def supports_projection_pushdown(self) -> bool:
        return not self._read.decoder.repeats_rows  # otherwise columns depend on the values

    def supports_predicate_pushdown(self) -> bool:
        return not self._read.decoder.repeats_rows

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        read, predicate = self._read, self.get_current_predicate()
        chosen = self._get_data_columns()
        columns = self._columns if chosen is None else chosen
        pieces: list[list[PartitionRange]] = [
            [one] for one in split_ranges(self._selected(), parallelism)
        ]
        return [
            ReadTask(
                RangesRead(read, piece, tuple(columns), predicate),
                metadata_of(read, piece),
                schema=schema_of(read, columns),
                per_task_row_limit=per_task_row_limit,
            )
            for piece in pieces or [[]]
        ]

    def _selected(self) -> list[PartitionRange]:
        predicate = self.get_current_predicate()
        if predicate is None:
            return self._ranges
        ranges = narrowed(self._ranges, predicate)
        timestamp = least_timestamp(predicate)
        if timestamp is None or timestamp < 0 or not ranges:
            return ranges
        client = reading_client(self._read.bootstrap, self._read.limits.fetch)
        return ranges_since(client, ranges, timestamp)


def metadata_of(read: TopicRead, ranges: Sequence[PartitionRange]) -> BlockMetadata:
    return BlockMetadata(
        num_rows=None,  # compacted records and markers have offsets, too
        size_bytes=int(sum(one.size for one in ranges) * read.record_bytes),
        exec_stats=None,
        input_files=tuple(f"{one.topic}-{one.partition}[{one.start}, {one.end})" for one in ranges),
    )


def schema_of(read: TopicRead, columns: Iterable[str]) -> pa.Schema | None:
    """Schema of blocks; None: it depends on the values."""
    fields = []
    for name in columns:
        of_type = SCHEMA.field(name).type
        if name == "value":
            of_type = read.decoder.type_of(of_type)
            if of_type is None:
                return None
        fields.append(pa.field(name, of_type))
    return pa.schema(fields)


class RangesRead(Callable[[], Iterable[pa.Table]]):  # type: ignore[misc]
    """Read task, run in a worker of Ray."""

    def __init__(
        self,
        read: TopicRead,
        ranges: Sequence[PartitionRange],
        columns: tuple[str, ...],
        predicate: Any = None,
    ) -> None:
        self._read = read
        self._ranges = ranges
        self._columns = columns
        self._predicate = predicate

    def __call__(self) -> Iterator[pa.Table]:
        read, predicate = self._read, self._predicate
        schema = schema_of(read, self._columns)
        if not self._ranges and self._columns and schema is not None:
            yield schema.empty_table()  # no records, but the columns that they would have
            return
        needed = list(self._columns) or ["offset"]
        if predicate is not None:
            needed += sorted(columns_of(predicate).difference(needed))
            predicate = predicate.to_pyarrow()
        client = reading_client(read.bootstrap, read.limits.fetch)
        load_kernels(sum(one.size for one in self._ranges))
        with RangeReader(client, read.limits, topic_ids=read.topic_ids) as reader:
            for decoded in reader.read(self._ranges):
                if not len(decoded):
                    continue
                table = read.decoder.decode(topic_table(decoded, needed), decoded)
                if predicate is not None:
                    table = table.filter(predicate)
                if not len(table):
                    continue
                if not self._columns:
                    table = pa.table({ROWS_ALONE: pa.nulls(len(table))})
                elif len(needed) != len(self._columns):
                    table = table.select(self._columns)
                yield table

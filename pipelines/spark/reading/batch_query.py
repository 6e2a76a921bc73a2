"""Readers of a batch query: the ranges of each task, and the rows of one task.

    BatchQueryReader       one query over [starting, ending)
    PushdownBatchReader    the same, narrowed by filters on topic, partition, offset, timestamp
    TaskRanges             the ranges of one task, pickled

Where each is called (driver, planner, executor): docs/spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ...ranges.partition_range import DataLoss, PartitionRange
from ...ranges.range_reader import RangeReader
from ...ranges.reading_client import load_kernels, reading_client
from ..options.spark_options import ReadOptions
from ..tasks import worker
from ..tasks.arrow import ArrowRows
from ..tasks.spark_failure import errors_in_one_line
from .offset_reader import OffsetReader
from .offsets import Offsets, plan_tasks, ranges_between

logger = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TaskRanges(InputPartition):
    """Ranges that one task reads, in order."""

    def __init__(self, ranges: tuple[PartitionRange, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"TaskRanges({', '.join(map(str, self.ranges))})"


def read_ranges(
    schema: StructType, options: ReadOptions, partition: InputPartition
) -> Iterator[Any]:
    """The rows of one task as Arrow batches. Runs in an executor's Python worker."""
    if not isinstance(partition, TaskRanges):
        return  # Spark's placeholder in a plan without tasks
    with errors_in_one_line():
        client = reading_client(options.bootstrap, options.fetch)
        load_kernels(sum(one.size for one in partition.ranges))
        rows = ArrowRows(schema, options.batch_rows, options.value_decoder)
        worker.freeze()
        with RangeReader(client, options.limits) as reader:
            for decoded in reader.read(partition.ranges):
                yield from rows.batches(decoded)


def plan(ranges: Iterable[PartitionRange], options: ReadOptions) -> list[TaskRanges]:
    return [
        TaskRanges(task)
        for task in plan_tasks(
            list(ranges),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            pack_rows=options.batch_rows,
        )
    ]


class BatchQueryReader(DataSourceReader):
    """Reader of one batch query."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options

    @errors_in_one_line()
    def partitions(self) -> list[InputPartition]:
        return list(plan(self.ranges(), self._options))

    def ranges(self) -> list[PartitionRange]:
        """Offset ranges to read. Raises ValueError, UnknownTopicOrPartition, DataLoss."""
        return self._ranges(self._offset_reader())

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._schema, self._options, partition)

    def _offset_reader(self) -> OffsetReader:
        client = reading_client(self._options.bootstrap, self._options.fetch)
        return OffsetReader(client, self._options)

    def _ranges(self, reader: OffsetReader) -> list[PartitionRange]:
        options = self._options
        assert options.ending is not None
        partitions = reader.partitions()
        start = reader.resolve(options.starting, partitions, ending=False)
        end = reader.resolve(options.ending, partitions, ending=True)
        return ranges_between(self._still_there(reader, start, end), end)

    def _still_there(self, reader: OffsetReader, start: Offsets, end: Offsets) -> Offsets:
        """`start`, raised to the log start offset where it is lower. Raises DataLoss."""
        first = reader.earliest(start)
        for key, offset in start.items():
            if offset > end[key]:
                raise ValueError(
                    f"the start offset {offset} of {key} is above its end offset {end[key]}"
                )
            if offset < first[key]:
                text = f"offset {offset} of {key} was deleted: the log begins at {first[key]}"
                if self._options.fail_on_data_loss:
                    raise DataLoss(f"{text}. {self._options.limits.data_loss_remedy}")
                logger.warning("%s; failOnDataLoss is false, so reading starts there", text)
        return {key: max(offset, first[key]) for key, offset in start.items()}


class PushdownBatchReader(BatchQueryReader):
    """Reader of a batch query narrowed by its filters.

    Filters on topic, partition and offset select ranges exactly. A lower bound on timestamp raises
    the start by the time index, and is applied by Spark as well.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._narrowing: list[Narrowing] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 -- Spark's
        for one in filters:
            narrowing = narrowing_of(one)
            if narrowing is not None:
                self._narrowing.append(narrowing)
            if narrowing is None or not narrowing.exact:
                yield one

    def _ranges(self, reader: OffsetReader) -> list[PartitionRange]:
        ranges = [
            one._replace(start=max(one.start, low), end=min(one.end, high))
            for one in super()._ranges(reader)
            for low, high in [_offset_bounds(self._narrowing)]
            if all(narrowing.admits(one) for narrowing in self._narrowing)
        ]
        ranges = [one for one in ranges if one.size > 0]
        since_ms = max(
            (one.since_ms for one in self._narrowing if one.since_ms is not None), default=None
        )
        if since_ms is None or not ranges:
            return ranges
        found = reader.at_times({one.topic_partition: since_ms for one in ranges})
        moved = [
            one._replace(start=max(one.start, found[one.topic_partition]))
            for one in ranges
            if found[one.topic_partition] >= 0
        ]
        return [one for one in moved if one.size > 0]


class Narrowing(NamedTuple):
    """Restriction of ranges by one filter. exact: Spark need not apply the filter again."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    low: int | None = None
    high: int | None = None
    since_ms: int | None = None
    exact: bool = True

    def admits(self, one: PartitionRange) -> bool:
        return (self.topics is None or one.topic in self.topics) and (
            self.partitions is None or one.partition in self.partitions
        )


def narrowing_of(one: Filter) -> Narrowing | None:
    """Restriction by a filter; None: it does not restrict ranges."""
    column = getattr(one, "attribute", None)
    value = getattr(one, "value", None)
    if isinstance(one, IsNotNull) and column in (("topic",), ("partition",), ("offset",)):
        return Narrowing()  # never null
    if isinstance(one, EqualTo | In) and column in (("topic",), ("partition",)):
        values = frozenset(one.value if isinstance(one, In) else (one.value,))
        if column == ("topic",):
            return Narrowing(topics=values)
        return Narrowing(partitions=values)
    if column == ("offset",) and isinstance(value, int):
        match one:
            case EqualTo():
                return Narrowing(low=value, high=value + 1)
            case GreaterThan():
                return Narrowing(low=value + 1)
            case GreaterThanOrEqual():
                return Narrowing(low=value)
            case LessThan():
                return Narrowing(high=value)
            case LessThanOrEqual():
                return Narrowing(high=value + 1)
    bounds_time = isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual)
    if column == ("timestamp",) and bounds_time and isinstance(value, datetime) and value.tzinfo:
        since_ms = (value - _EPOCH) // timedelta(milliseconds=1)
        return Narrowing(since_ms=max(0, since_ms), exact=False)
    return None


def _offset_bounds(narrowing: list[Narrowing]) -> tuple[int, int]:
    low = max((one.low for one in narrowing if one.low is not None), default=0)
    high = min((one.high for one in narrowing if one.high is not None), default=2**63 - 1)
    return low, high

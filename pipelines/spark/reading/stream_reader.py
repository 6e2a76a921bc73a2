"""Reader of micro-batches: start of a stream, end of each batch, ranges of its tasks.

    one long-lived instance in the driver    initialOffset, latestOffset, partitions, commit
    a pickled copy in every task             read

Invariants:
    partitions(start, end) depends on its arguments and the options alone.
    An end never decreases, unless records were deleted and failOnDataLoss is false.
    The first batch's end contains its start (`@initial`, see offsets), which Spark does not store.
    Without new records `latestOffset` returns `start` itself, after a short long poll: Spark calls
    it a hundred times a second, which results in five requests.

Not here: commits to a group (group_commits).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ....protocol.errors import UnknownTopicOrPartition
from ....protocol.topic_partition import TopicPartition
from ...ranges.partition_range import DataLoss, recreated_topics
from ...ranges.reading_client import reading_client
from ..options.spark_options import ReadOptions
from ..tasks.spark_failure import errors_in_one_line
from .batch_query import plan, read_ranges
from .group_commits import GroupCommits
from .offset_reader import OffsetReader
from .offsets import (
    Offsets,
    backlog,
    begin_again,
    from_json,
    initial_of,
    must_wait,
    ranges_between,
    rate_limit,
    recreated_of,
    to_json,
    topic_ids_of,
)

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Source of one streaming query."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        self._offset_reader: OffsetReader | None = None
        self._initial: dict[str, Any] | None = None
        self._frozen_end: Offsets | None = None
        self._latest: Offsets = {}
        self._recreated: Offsets = {}
        """Start offsets of topics found to be recreated, for the batch that is planned."""
        self._was_idle = False
        self._triggered_at: float | None = None
        self._commits: GroupCommits | None = None

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's
        if self._initial is None:
            reader = self._reader()
            partitions = reader.partitions()
            self._initial = to_json(
                reader.resolve(self._options.starting, partitions, ending=False)
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMaxRows(2**62)  # not ReadAllAvailable, which means Trigger.Once
        return ReadAllAvailable()

    @errors_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's
        self._frozen_end = self._reader().latest(self._reader().partitions(), known={})

    @errors_in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = from_json(start)
        is_first = start == self._initial
        if not is_first:
            self._commit(begun)  # the last batch is done; Spark calls `commit` later or never
        former_ids = topic_ids_of(start)
        self._recreated = {}
        end = self._available(begun, former_ids, may_wait=not is_first)
        begun = begin_again(begun, self._recreated)
        self._latest = end
        count = backlog(begun, end)
        limited = not isinstance(limit, ReadAllAvailable)
        if limited and self._frozen_end is None and self._must_wait(count):
            end = begun
        elif limited and isinstance(limit, ReadMaxRows):
            end = rate_limit(begun, end, limit.max_rows)
        topics = {key.topic for key in end}
        ids = {**former_ids, **self._reader().topic_ids}
        ids = {topic: one for topic, one in ids.items() if topic in topics}
        if is_first:
            return to_json(end, initial=begun, topic_ids=ids)
        if end == begun and not self._recreated:
            self._was_idle = True
            if self._frozen_end is not None:
                self.stop()  # Trigger.AvailableNow ends with this answer, and the process with it
            return start
        self._was_idle = False
        self._triggered_at = time.monotonic()
        return to_json(end, topic_ids=ids, recreated=self._recreated)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's
        return to_json(self._latest) if self._latest else None

    @errors_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun = initial_of(end)
        if begun is None:
            begun = begin_again(from_json(start), recreated_of(end))
        return list(plan(ranges_between(begun, from_json(end)), self._options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._schema, self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit offsets to a group with commitOffsets; the checkpoint has them already."""
        self._commit(from_json(end))

    def stop(self) -> None:
        """Finish commits. The process, with its client's daemon thread, ends with the query; Spark
        may end it without calling this.
        """
        if self._commits is not None:
            self._commits.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_offset_reader": None, "_commits": None}

    def _commit(self, offsets: Offsets) -> None:
        group = self._options.commit_group
        if group is not None:
            if self._commits is None:
                client = reading_client(self._options.bootstrap, self._options.fetch)
                self._commits = GroupCommits(client, group)
            self._commits.commit(offsets)

    def _reader(self) -> OffsetReader:
        if self._offset_reader is None:
            client = reading_client(self._options.bootstrap, self._options.fetch)
            self._offset_reader = OffsetReader(client, self._options)
        return self._offset_reader

    def _must_wait(self, count: int) -> bool:
        since = self._triggered_at
        return must_wait(
            count,
            self._options.min_offsets_per_trigger,
            since_last_trigger_ms=None if since is None else int((time.monotonic() - since) * 1000),
            max_delay_ms=self._options.max_trigger_delay_ms,
        )

    def _available(
        self, begun: Offsets, former_ids: Mapping[str, str], *, may_wait: bool
    ) -> Offsets:
        """End offset of each partition now, or at the start of Trigger.AvailableNow."""
        reader = self._reader()
        if self._frozen_end is not None:
            self._look_at_topics(reader, former_ids, self._frozen_end)
            return self._checked(begun, dict(self._frozen_end))
        waits = may_wait and bool(begun)
        if waits and self._was_idle:  # beyond the last known ends: a batch may be delayed
            reader.wait_beyond({**begun, **self._latest})
        end = self._end_now(reader, begun, former_ids)
        if waits and not self._was_idle and end == begun:
            reader.wait_beyond(begun)
            end = self._end_now(reader, begun, former_ids)
        return end

    def _end_now(
        self, reader: OffsetReader, begun: Offsets, former_ids: Mapping[str, str]
    ) -> Offsets:
        try:
            partitions = reader.partitions(max_age_ms=self._options.fetch.metadata_max_age_ms)
            self._look_at_topics(reader, former_ids, partitions)
            end = reader.latest(partitions, known=begin_again(begun, self._recreated))
        except UnknownTopicOrPartition as error:
            self._lose(f"{error}, but the query has read from it")
            return begun
        return self._checked(begun, end)

    def _look_at_topics(
        self,
        reader: OffsetReader,
        former_ids: Mapping[str, str],
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Find topics recreated since the last batch: they start at their earliest offsets."""
        anew = set(recreated_topics(former_ids, reader.topic_ids))
        anew -= {key.topic for key in self._recreated}  # reported already
        if anew:
            self._lose(f"{', '.join(sorted(anew))} was deleted and recreated since it was read")
            starts = reader.earliest([key for key in partitions if key.topic in anew])
            self._recreated = {**self._recreated, **starts}

    def _checked(self, begun: Offsets, end: Offsets) -> Offsets:
        begun = begin_again(begun, self._recreated)
        gone = sorted(begun.keys() - end.keys())
        if gone:
            self._lose(f"{', '.join(map(str, gone))} no longer exist")
        for key, last in end.items():
            if last < begun.get(key, 0):
                self._lose(f"the log end offset of {key} decreased from {begun[key]} to {last}")
        return end

    def _lose(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{text}. {self._options.limits.data_loss_remedy}")
        logger.warning("%s; failOnDataLoss is false, so the query continues", text)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Source of a stream with invalid options: each of its methods raises the error.

    An exception raised by streamReader itself is lost: Spark's runner of streaming sources then
    fails with its own UnboundLocalError.
    """

    def __init__(self, error: ValueError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()

    @errors_in_one_line()
    def _refuse(self) -> NoReturn:
        raise self._error

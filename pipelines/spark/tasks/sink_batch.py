"""State of exactly-once writes: the batch of a sink that a task writes, and what is done.

    group  spark-{sinkId}-{partition}   last batch of that task, committed with its rows
    group  spark-{sinkId}               last batch that all tasks have completed, and their number

Both are committed offsets of MARKERS: the offset is the batch id, its metadata the rest as JSON.
MARKERS is a topic without records: the topics that rows are written to may differ from batch to
batch, and may be deleted, with all offsets committed for them; and as offsets of a topic with
records, batch ids would look like lag.

Invariants:
    A task writes the rows of a batch only if its own marker is of an earlier batch, and not all
    tasks have completed the batch.
    A repeated batch must have the same rows; otherwise it is refused.
    Tasks do not know their number, so a change of it is detected by its effects: different rows, a
    task that had no rows before, and, when all are done, by the driver, which knows the number.
    Only the first batch of a run may have been begun by an earlier one. Its transactions are
    committed by the driver, when it has seen that every task that was done then is repeated.

Not here: requests to the cluster, and writing (transactional_sink).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ....protocol.topic_partition import TopicPartition
from .spark_failure import ReplayRefused

MARKERS: Final = TopicPartition("__bradbury_spark", 0)

_REMEDY: Final = (
    "Run the query as before (the same tasks, rows that depend on the input alone), or give a new"
    " sinkId: then this batch is written in full, and its rows in the topic are duplicated"
)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of one sink.

    query_id: of the streaming query that the batch belongs to; "" outside of streaming queries.
    is_private: the sink id was made for one job, so no batch is repeated after its end.
    run: id of the query's run, in which no batch comes twice, or of the batch write.
    """

    sink_id: str
    batch_id: int
    query_id: str
    is_private: bool = False
    run: str = ""

    @property
    def group(self) -> str:
        return f"spark-{self.sink_id}"

    def task_id(self, partition: int) -> str:
        """Transactional id of a task, and name of its group."""
        return f"{self.group}-{partition}"

    def check_query(self, query_id: str) -> None:
        """Raise ReplayRefused if earlier batches were written by another query.

        Batch ids of a new query start again at 0, and would be mistaken for completed batches.
        """
        if query_id != self.query_id:
            raise ReplayRefused(
                f"sinkId {self.sink_id!r} was used by {_named(query_id)} and is now used by "
                f"{_named(self.query_id)}, which has other batch ids. Was the checkpoint deleted?"
                " Give a new sinkId"
            )

    def check_order(self, last: int) -> None:
        """Raise ReplayRefused if a batch write comes after one with a higher number.

        Whether it was written before, and with which rows, is not known any more. A streaming query
        that is restarted from an older checkpoint repeats what it has planned there.
        """
        if not self.query_id and last > self.batch_id:
            raise ReplayRefused(
                f"sinkId {self.sink_id!r} has written batchId {last}, and batchId {self.batch_id} "
                "is lower: numbers rise from write to write. Give this write a higher batchId, "
                "or, if it brings what is older, a sinkId of its own"
            )


@dataclass(frozen=True, slots=True)
class TaskMarker:
    """Record of what a task wrote of a batch. size: bytes of keys and values. run: as SinkBatch."""

    batch_id: int
    query_id: str
    topic: str | None
    row_count: int
    size: int
    run: str = ""

    @property
    def metadata(self) -> str:
        return json.dumps(
            {
                "query": self.query_id,
                "topic": self.topic,
                "rows": self.row_count,
                "bytes": self.size,
                "run": self.run,
            },
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, offset: int, metadata: str) -> TaskMarker:
        found = _object(metadata)
        return cls(
            offset,
            str(found.get("query", "")),
            found.get("topic"),
            int(found.get("rows", -1)),
            int(found.get("bytes", -1)),
            str(found.get("run", "")),
        )


@dataclass(frozen=True, slots=True)
class BatchMarker:
    """Record of a batch that all its tasks have completed. run: as SinkBatch."""

    batch_id: int
    query_id: str
    task_count: int
    run: str = ""

    @property
    def metadata(self) -> str:
        return json.dumps(
            {"query": self.query_id, "tasks": self.task_count, "run": self.run},
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, offset: int, metadata: str) -> BatchMarker:
        found = _object(metadata)
        return cls(
            offset,
            str(found.get("query", "")),
            int(found.get("tasks", -1)),
            str(found.get("run", "")),
        )


def may_be_repeated(batch: SinkBatch, all_done: BatchMarker | None) -> bool:
    """Whether an earlier run may have begun the batch: unless this one has completed a former."""
    is_first = all_done is None or all_done.run != batch.run
    return is_first and not batch.is_private


def is_done(
    batch: SinkBatch, partition: int, task: TaskMarker | None, all_done: BatchMarker | None
) -> bool:
    """Whether this task's rows of the batch are in the log.

    Raises:
        ReplayRefused: the task had no rows of the batch, or another query uses the sink, or a batch
            write has a lower number than one before it.
    """
    for marker in (task, all_done):
        if marker is not None:
            batch.check_query(marker.query_id)
            batch.check_order(marker.batch_id)
    if task is not None and task.batch_id >= batch.batch_id:
        return True
    if all_done is not None and all_done.batch_id >= batch.batch_id:
        count = f" by {all_done.task_count} tasks" if all_done.batch_id == batch.batch_id else ""
        raise ReplayRefused(
            f"batch {batch.batch_id} of sink {batch.sink_id!r} was written{count}; task "
            f"{partition} had no rows of it then, and has some now. {_REMEDY}"
        )
    return False


def check_same_rows(
    batch: SinkBatch, partition: int, marker: TaskMarker, come_again: TaskMarker
) -> None:
    """Raise ReplayRefused if a completed task is repeated with other rows.

    Number of rows and bytes are compared: a shuffle does not keep the order.
    """
    if marker.batch_id != batch.batch_id or marker == replace(come_again, run=marker.run):
        return
    if marker.topic != come_again.topic:
        raise ReplayRefused(
            f"sinkId {batch.sink_id!r} has written batch {batch.batch_id} to "
            f"{marker.topic or 'the topics of its rows'}, not to "
            f"{come_again.topic or 'the topics of its rows'}. Give each writer its own sinkId"
        )
    raise ReplayRefused(
        f"task {partition} has written {_amount(marker)} of batch {batch.batch_id} of sink "
        f"{batch.sink_id!r}, and now has {_amount(come_again)}: the number of tasks has changed, "
        f"the rows depend on more than the input, or two writers share the sinkId. {_REMEDY}"
    )


def check_same_tasks(batch: SinkBatch, before: int, now: int) -> None:
    """Raise ReplayRefused if a batch is repeated with another number of tasks."""
    if before != now:
        raise ReplayRefused(
            f"batch {batch.batch_id} of sink {batch.sink_id!r} was written by {before} tasks and "
            f"is repeated with {now}. {_REMEDY}"
        )


def check_all_repeated(
    batch: SinkBatch, done: Mapping[int, TaskMarker], repeated: Collection[int], count: int
) -> None:
    """Raise ReplayRefused if a task that an earlier run completed is not repeated now.

    Args:
        done: last marker of each task, by its partition.
        repeated: partitions of the tasks that have found their rows in the log.
        count: number of tasks now.
    """
    for partition, marker in sorted(done.items(), reverse=True):
        if marker.batch_id != batch.batch_id:
            continue
        if partition >= count:
            check_same_tasks(batch, partition + 1, count)
        if marker.run != batch.run and partition not in repeated:
            raise ReplayRefused(
                f"task {partition} has written {_amount(marker)} of batch {batch.batch_id} of sink "
                f"{batch.sink_id!r}, and has none now: the number of tasks has changed, or the "
                f"rows depend on more than the input. {_REMEDY}"
            )


def _amount(marker: TaskMarker) -> str:
    return f"{marker.row_count} rows with {marker.size} bytes"


def _named(query_id: str) -> str:
    return f"query {query_id}" if query_id else "batch writes"


def _object(metadata: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

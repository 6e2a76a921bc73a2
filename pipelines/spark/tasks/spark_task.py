"""The current Spark task, as seen by its Python worker: partition, batch and input.

Invariants:
    A task has all its rows only if Spark's end marker follows them. An executor that is killed, or
    whose task fails before it, closes the connection between two Arrow batches: to pyarrow that is
    a normal end. A commit would then lose the remaining rows.

All of this is internal to Spark: local properties of streaming queries (StreamExecution), and the
integer that follows a task's input (BasePythonRunner.Writer.close; SpecialLengths.END_OF_STREAM).
tests/pipelines checks it; if it is not as expected, exactly-once is refused.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import IO, Final, cast

from pyspark import TaskContext

from .spark_failure import ExactlyOnceUnavailable

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_WORKER: Final = "pyspark/worker.py"


@dataclass(frozen=True, slots=True)
class SparkTask:
    """A Spark task.

    batch_id, query_id: None outside of a streaming query. run_id: of the query since its start; a
    failed batch is not repeated in the same run. input: stream of the task's rows.
    """

    partition: int
    batch_id: int | None
    query_id: str | None
    run_id: str | None
    input: IO[bytes]

    def has_all_input(self) -> bool:
        """Whether the end marker follows the rows. Blocks until there is more input or its end.

        To be called only after the iterator of rows has ended.
        """
        return bool(self.input.peek(1))  # type: ignore[attr-defined]


def current_task() -> SparkTask:
    """The task that this thread runs.

    Raises:
        ExactlyOnceUnavailable: this version of Spark does not provide what is needed.
    """
    context = TaskContext.get()
    stream = _input()
    if context is None or stream is None or not hasattr(stream, "peek"):
        raise ExactlyOnceUnavailable("this version of Spark does not let a task access its input")
    batch_id = context.getLocalProperty(_BATCH_ID)
    return SparkTask(
        context.partitionId(),
        None if batch_id is None else int(batch_id),
        context.getLocalProperty(_QUERY_ID),
        context.getLocalProperty(_RUN_ID),
        stream,
    )


def _input() -> IO[bytes] | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "main" and code.co_filename.replace("\\", "/").endswith(_WORKER):
            return cast("IO[bytes] | None", frame.f_locals.get("infile"))
        frame = frame.f_back
    return None

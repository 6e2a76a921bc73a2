"""What a task of Spark is, as its Python worker sees it: which part of which batch, and its input.

What always holds:
    A task counts as having all its rows only when Spark has said so behind them. An executor that
    is killed, or whose task fails before it, closes the connection between two Arrow batches: to
    pyarrow that is a normal end. What commits then has lost the rest for good.

All of this is internal to Spark: local properties of streaming queries (StreamExecution), and the
integer that follows a task's input (BasePythonRunner.Writer.close; SpecialLengths.END_OF_STREAM).
tests/pipelines pins it; where it is not as expected, exactly-once is refused.
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
    """batch_id, query_id: None outside of a streaming query. run_id: the query's since its start;
    a batch that has failed never comes again in the same run.
    """

    partition: int
    batch_id: int | None
    query_id: str | None
    run_id: str | None
    input: IO[bytes]

    def has_all_input(self) -> bool:
        """Whether the rows ended because there are no more. Waits for what is behind them.

        Only after the iterator has ended.
        """
        return bool(self.input.peek(1))  # type: ignore[attr-defined]


def current_task() -> SparkTask:
    """The task that this thread runs.

    Raises:
        ExactlyOnceUnavailable: this Spark does not say what is needed.
    """
    context = TaskContext.get()
    stream = _input()
    if context is None or stream is None or not hasattr(stream, "peek"):
        raise ExactlyOnceUnavailable("this version of Spark does not show a task its input")
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

"""Runner of flows whose steps are Spark SQL and PySpark: one streaming query for each target.

Progress is kept in Spark's checkpoints, one for each target. Topics are written exactly once by our
sink, Parquet tables by Spark's file sink, other tables by flow_tables.

Not here: how targets of steps that read no stream are written (batch_targets).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ...clients.schemas.registry_request import RegistryFailed
from ..ranges.fetch_options import FetchOptions
from ..ranges.reading_client import reading_client
from ..spark.job_session import job_session
from ..spark.query_lag import offsets_behind
from ..spark.topic_view import topic_view
from .batch_targets import cancelled_by, write_batch
from .flow import Flow, FlowFailed, FlowSource, FlowStep, FlowTarget
from .flow_progress import FlowProgress
from .flow_tables import MOST_OFFSETS, batch_writer
from .flow_topics import check_topics_of
from .target_records import records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = 0.5


class SparkFlow:
    """Runner of one flow with Spark.

    Use as a context manager: a Spark session that it created ends with it.
    """

    def __init__(self, flow: Flow, servers: str) -> None:
        self._flow = flow
        self._servers = servers
        self._session = ExitStack()
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, dict[int, int]] = {}
        self._frames: dict[str, DataFrame] = {}
        self._batches: dict[str, bool] = {}
        """Targets that are written once in a run, and whether they have been written."""
        self._cached: dict[str, DataFrame] = {}
        self._failures: dict[str, Exception] = {}
        """Exceptions of batches written by flow_tables, by target."""

    def __enter__(self) -> Self:
        session = job_session(f"flow-{self._flow.name}", self._servers, self._flow.executors)
        self._spark = self._session.enter_context(session)
        return self

    def __exit__(self, *_: object) -> None:
        for query in self._queries.values():
            if query.isActive:
                query.stop()
        for frame in self._cached.values():  # the session may be the caller's, and stay
            frame.unpersist()
        self._session.close()

    def run(
        self,
        stopped: threading.Event,
        on_progress: Callable[[Sequence[FlowProgress]], None],
        *,
        once: bool,
    ) -> list[FlowProgress]:
        """Start the queries, write the batch targets, and wait until the queries end.

        It ends early when `stopped` is set.
        Raises FlowFailed: a part of the flow is invalid, or a query failed.
        """
        client = reading_client(
            self._servers, FetchOptions(client_id=f"bradbury-flow-{self._flow.name}")
        )
        check_topics_of(self._flow, client)
        for source in self._flow.sources:
            with _named(f"sources.{source.name}"):
                self._keep(source.name, self._source(source))
        for step in self._flow.steps:
            with _named(f"steps.{step.name}"):
                self._keep(step.name, self._made(step))
        for target in self._flow.targets:
            with _named(f"targets.{target.name}"):
                if self._frames[target.of].isStreaming:
                    self._queries[target.name] = self._started(target, once=once)
                else:
                    self._batches[target.name] = False
        self._write_batches(stopped, on_progress)
        while any(query.isActive for query in self._queries.values()):
            if stopped.wait(LOOK_SECONDS):
                break
            self._raise_failures()
            on_progress(self._progress())
        for query in self._queries.values():
            query.stop()
        self._raise_failures()
        found = self._progress()
        on_progress(found)
        return found

    def _write_batches(
        self,
        stopped: threading.Event,
        on_progress: Callable[[Sequence[FlowProgress]], None],
    ) -> None:
        batches = [target for target in self._flow.targets if target.name in self._batches]
        if len(batches) > 1:  # a step of several targets, or of later steps, is computed once
            for name in {target.of for target in batches}:
                self._cached[name] = self._frames[name].cache()
        for target in batches:
            if stopped.is_set():
                return
            on_progress(self._progress())
            try:
                with (
                    _named(f"targets.{target.name}"),
                    cancelled_by(stopped, self._spark, f"{self._flow.name}-{target.name}"),
                ):
                    write_batch(self._frames[target.of], target)
            except FlowFailed:
                if stopped.is_set():
                    return  # cancelled
                raise
            self._batches[target.name] = True

    def _keep(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self._frames[name] = frame

    def _made(self, step: FlowStep) -> DataFrame:
        if step.sql is not None:
            return self._spark.sql(step.sql)
        assert step.python is not None
        frame = step.python(*(self._frames[each] for each in step.of))
        if not hasattr(frame, "createOrReplaceTempView"):
            raise ValueError(f"the function returned {frame!r}; return a DataFrame")
        return frame  # type: ignore[no-any-return]  # has a DataFrame's methods

    def _source(self, source: FlowSource) -> DataFrame:
        if source.table is not None:
            return self._spark.read.parquet(source.table)
        assert source.topic is not None
        # An aborted record has no effect, as with Ray Data; an option of the user's own wins.
        start: dict[str, object] = {"kafka.isolation.level": "read_committed"}
        if source.stream:
            start["startingOffsets"] = "earliest"
            if any(target.format != "parquet" for target in self._flow.targets):
                start["maxOffsetsPerTrigger"] = MOST_OFFSETS
        frame = topic_view(
            self._spark,
            source.topic,
            name=source.name,
            value=source.value,
            schema=source.schema,
            schema_registry=source.schema_registry,
            columns=source.columns,
            key=source.key,
            stream=source.stream,
            options={**start, **source.options},
        )
        if source.watermark is None:
            return frame
        column = "timestamp" if source.value in ("raw", "utf8") else "_timestamp"
        return frame.withWatermark(column, source.watermark)

    def _started(self, target: FlowTarget, *, once: bool) -> StreamingQuery:
        frame = self._frames[target.of]
        if target.topic is not None:
            writer = records_of(frame, target).writeStream.format("bradbury")
            writer = writer.option("topic", target.topic)
        elif target.format != "parquet":
            failed = partial(self._failures.__setitem__, target.name)
            writer = frame.writeStream.foreachBatch(batch_writer(self._flow.name, target, failed))
        else:
            writer = frame.writeStream.format("parquet").option("path", target.table)
            if target.partition_by:
                writer = writer.partitionBy(*target.partition_by)
        checkpoint = str(Path(self._flow.checkpoint) / target.name)
        if "://" in self._flow.checkpoint:
            checkpoint = f"{self._flow.checkpoint.rstrip('/')}/{target.name}"
        writer = writer.option("checkpointLocation", checkpoint).outputMode(target.output_mode)
        writer = writer.queryName(f"{self._flow.name}-{target.name}")
        if once:
            writer = writer.trigger(availableNow=True)
        elif self._flow.trigger is not None:
            writer = writer.trigger(processingTime=self._flow.trigger)
        return writer.start()

    def _raise_failures(self) -> None:
        for name, query in self._queries.items():
            error = None if query.isActive else query.exception()
            if error is not None:
                raise FlowFailed(f"targets.{name}: {_line(self._failures.get(name, error))}")

    def _progress(self) -> list[FlowProgress]:
        found = []
        for target in self._flow.targets:
            name, query = target.name, self._queries.get(target.name)
            if query is None:
                is_written = self._batches[name]
                behind = 0 if is_written else None
                found.append(FlowProgress(name, None, int(is_written), behind, 0.0))
                continue
            seen = self._seen.setdefault(name, {})
            last: Any = None
            for last in query.recentProgress:
                # Progress of an idle trigger has the id of the next batch and no rows.
                rows = int(last["numInputRows"])
                seen[int(last["batchId"])] = max(rows, seen.get(int(last["batchId"]), 0))
            found.append(
                FlowProgress(
                    name,
                    sum(seen.values()),
                    sum(rows > 0 for rows in seen.values()),
                    None if last is None else _behind(last),
                    0.0 if last is None else float(last["processedRowsPerSecond"] or 0.0),
                )
            )
        return found


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Turns errors in one part of the flow into a FlowFailed that names the part."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:  # a job that failed or was cancelled
        raise FlowFailed(f"{where}: {_line(error.java_exception.getMessage())}") from None
    except (PySparkException, RegistryFailed, ValueError) as error:
        raise FlowFailed(f"{where}: {_line(error)}") from None


def _behind(progress: Any) -> int | None:
    """Offsets that are available but not processed, of all sources; None if not known."""
    behind = 0
    for source in offsets_behind(progress):
        if source is None:
            return None
        behind += sum(source.values())
    return behind


def _line(error: object) -> str:
    """Text of an error in one line, without the stack trace of Java or Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] if lines else type(error).__name__

"""Targets of a flow whose rows depend on no stream: computed once in a run, and written whole.

    topic      all rows are appended; without a transaction, so a task that Spark repeats writes its
               rows again
    parquet    the directory is overwritten, by the executors if they share a disk with the driver
               or the path is a URL, else by the driver
    delta, iceberg    the table's rows are replaced in one commit

So after a run that was killed, it suffices to run the flow again.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..spark.executors import executors_are_here
from .flow import FlowTarget
from .flow_tables import in_utc, table_of
from .target_records import records_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOOK_SECONDS: Final = 0.2


def write_batch(frame: DataFrame, target: FlowTarget) -> None:
    """Compute the rows and write them. Raises FlowFailed, ValueError, OSError, PySparkException."""
    if target.topic is not None:
        records = records_of(frame, target).write.format("bradbury").option("topic", target.topic)
        records.mode("append").save()
        return
    assert target.table is not None
    if target.format != "parquet":
        table_of(target).replace(in_utc(frame.toArrow()))
    elif "://" in target.table or executors_are_here(frame.sparkSession):
        writer = frame.write.mode("overwrite")
        if target.partition_by:
            writer = writer.partitionBy(*target.partition_by)
        writer.parquet(target.table)
    else:
        _write_here(frame.toArrow(), Path(target.table), target.partition_by)


def _write_here(rows: pa.Table, folder: Path, partition_by: tuple[str, ...]) -> None:
    import pyarrow.parquet as pq

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if partition_by:
        pq.write_to_dataset(rows, folder, partition_cols=list(partition_by))
    else:
        pq.write_table(rows, folder / "part-0.parquet")


@contextmanager
def cancelled_by(stopped: threading.Event, session: SparkSession, group: str) -> Iterator[None]:
    """Context whose Spark jobs are cancelled when `stopped` is set. group: a name of the jobs."""
    context = session.sparkContext
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_SECONDS):
            if stopped.is_set():
                context.cancelJobGroup(group)  # also a job that starts after the first call

    watcher = threading.Thread(target=watch, name=f"cancels {group}", daemon=True)
    context.setJobGroup(group, f"batch of {group}", interruptOnCancel=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        for name in ("id", "description"):
            context.setLocalProperty(f"spark.jobGroup.{name}", None)  # type: ignore[arg-type]

"""`bradbury.load`: loads new records of topics into a table, each exactly once.

    bradbury.load("flights", "/data/flights", partition_by="day")

Run again, it resumes where the last load ended: the loaded offsets are stored in the table and
committed with the rows. However a load ends, after the next one the table has every record once.

Invariants: a commit covers ranges whose ends were fixed before they were read, so reading
them again gives the same records.

The calling process commits. It also reads rows and writes files, unless tasks of Spark or Ray do:
see load_engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Unpack

from ...clients.security.security_options import SecurityOptions, given_security
from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.bootstrap_servers import format_servers
from ...clients.wire.cluster_client import ClusterClient
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import DataLoss, PartitionRange, ReadLimits
from ..ranges.read_arguments import (
    ALLOW_DATA_LOSS_OF_COMMANDS,
    read_limits,
    servers_of,
    topic_names,
)
from ..ranges.reading_client import reading_client
from ..ranges.topic_offsets import Offset, resolve_ranges
from ..ranges.value_decoder import Decoder, ValueDecoder
from .compaction import TARGET_FILE_SIZE_BYTES, CompactionRules, compaction_rules
from .delta_target import DeltaTarget
from .iceberg_target import IcebergTarget
from .load_engine import Executors, LoadEngine, check_engine, load_engine
from .load_rows import LoadRows
from .load_target import LoadTarget
from .load_task import LoadTask, share_out
from .loaded_offsets import LoadedOffsets, next_ranges
from .parquet_target import ParquetTarget
from .table_files import WrittenFile

FORMATS: Final = ("parquet", "delta", "iceberg")
LOOK_SECONDS: Final = 1.0
METADATA_TIMEOUT_MS: Final = 65_000


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Progress after a commit. records, commits: of this call. behind: offsets not loaded yet.

    compacted_files: small files that were merged into larger ones.
    """

    records: int
    commits: int
    behind: int
    compacted_files: int = 0


def load(
    topics: str | Sequence[str],
    to: str,
    *,
    format: str = "parquet",  # noqa: A002 -- as Spark's and Ray's writers have it
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    partition_by: str | None = None,
    columns: Sequence[str] | None = None,
    value_decoder: str | Decoder = "raw",
    value_schema: Any = None,
    schema_registry: str | None = None,
    start_offset: Offset = "earliest",
    bootstrap_servers: str | Sequence[str] | None = None,
    isolation_level: str = "read_committed",
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 120_000,
    local_files: bool = False,
    commit_records: int = 5_000_000,
    continuous: bool = False,
    commit_interval_s: float = 60.0,
    compact: bool = False,
    compact_after: int | None = None,
    target_file_size_bytes: int = TARGET_FILE_SIZE_BYTES,
    stop: threading.Event | None = None,
    engine: str = "local",
    tasks: int | None = None,
    executors: int | None = None,
    executor_cores: int | None = None,
    executor_memory: str | None = None,
    on_progress: Callable[[LoadProgress], None] = lambda progress: None,
    **security: Unpack[SecurityOptions],
) -> LoadProgress:
    """Append new records of topics to a table; returns when all that existed at the call are in it.

    Args:
        topics: one or several names; all go into the same table.
        to: a directory; with format="delta" also a URL that delta-rs supports; with
            format="iceberg" namespace.table.
        format: "parquet", "delta" (the extra [delta]) or "iceberg" (the extra [iceberg]).
        catalog, catalog_properties: the Iceberg catalog for PyIceberg: a name of ~/.pyiceberg.yaml,
            or type, uri, warehouse and so on, or both.
        partition_by: "day" or "hour" of the record's timestamp, in UTC; adds a column of that name.
        columns: columns to load, of offset, key, value, topic, partition, timestamp (microseconds,
            UTC), timestamp_type, headers; None: all.
        value_decoder, value_schema, schema_registry: as for `read_topic`, except "arrow" and
            functions. The latest schema is that of the beginning of the call.
        start_offset: start of partitions that were never loaded; as for `read_topic`.
        isolation_level: "read_committed", or "read_uncommitted".
        fail_on_data_loss: False: records deleted by retention before they were loaded are skipped,
            and a topic that was recreated is loaded from its beginning.
        local_files: where a partition's leader is on this machine and its files may be read, read
            those instead of fetching from the broker.
        commit_records: most records of a commit, about; an interrupted load repeats one commit.
        continuous: continue until `stop` is set, or forever; with a commit after
            `commit_interval_s` seconds at the latest if there are new records.
        compact: True: load nothing, only make large files of the small ones of a table that was
            loaded; no broker is contacted; columns, values and partition_by are the table's own.
        compact_after: number of small files of a day, an hour or the whole table from which they
            become one after a commit; 0: never; None: 8 with delta, 0 with the others, whose
            readers may notice (docs/pipelines.md). With compact=True: by default from 2 on.
        target_file_size_bytes: size of compacted files; files below three quarters of it are small.
        engine: where records are read and files are written: "local", in this process; "spark", by
            Spark's executors; "ray", by tasks of the Ray cluster. With the last two and parquet,
            `to` must be a directory that is mounted on all nodes.
        tasks: number of Spark or Ray tasks for each commit; by default the number of cores.
        executors: number of Spark executors to start in the Ray cluster for this call; None: the
            active session runs the tasks or, if there is none, a new one in this process.
        executor_cores: tasks, and CPUs, of each of these executors; by default 1.
        executor_memory: memory of each of them, at least "450m"; by default "1g".
        on_progress: called after each commit.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid.
        LoadFailed: another load writes to the table, or the table has other columns; or a task of
            Spark or Ray failed.
        SparkUnavailable, UpError: the engine is not available; one line with cause and remedy.
        DataLoss: records were deleted before they were loaded.
        NotInRegistry, RegistryFailed: the schema registry has no such schema, or does not answer.
        UnknownTopicOrPartition, ConnectionFailed, KafkaError, OSError.
    """
    if format not in FORMATS:
        raise ValueError(f"format is {format!r}; use {' or '.join(FORMATS)}")
    if format != "iceberg" and (catalog is not None or catalog_properties):
        raise ValueError(f"a catalog needs the format iceberg, not {format}")
    if format == "iceberg" and not all(to.rpartition(".")[::2]):
        raise ValueError(f"{to!r} does not name a table of a catalog; use namespace.table")
    if format == "parquet" and "://" in to:
        # Otherwise a folder of that name would be created in the working directory.
        raise ValueError(
            f"{to!r} is not a local directory, which parquet needs; use the format delta"
        )

    if format != "iceberg" and "://" not in to:
        to = str(Path(to).absolute())  # tasks on Ray have another working directory

    started = Executors(executors, executor_cores, executor_memory)
    check_engine(engine, tasks, started)
    if compact and (continuous or engine != "local"):
        raise ValueError(
            "compact=True loads nothing and runs in this process: leave out continuous and engine; "
            "compact_after compacts while it loads"
        )
    rules = compaction_rules(format, compact, compact_after, target_file_size_bytes)

    def target(schema: Any) -> LoadTarget:
        if format == "iceberg":
            return IcebergTarget(
                to, schema, partition_by, catalog=catalog, properties=catalog_properties
            )
        return (DeltaTarget if format == "delta" else ParquetTarget)(to, schema, partition_by)

    if commit_records < 1 or commit_interval_s <= 0:
        raise ValueError(
            f"commit_records={commit_records}, commit_interval_s={commit_interval_s}: "
            "use more than 0"
        )
    if compact:
        assert rules is not None
        with target(None) as table:
            table.loaded((), {})  # completes an interrupted commit
            return LoadProgress(0, 0, 0, table.compact(rules))
    names = topic_names(topics)
    decoder = ValueDecoder(value_decoder, value_schema, registry=schema_registry, topics=names)
    rows = LoadRows(columns, decoder, partition_by)
    limits = read_limits(
        isolation_level,
        "bradbury-load",
        poll_timeout_ms=poll_timeout_ms,
        fail_on_data_loss=fail_on_data_loss,
        allow_data_loss=ALLOW_DATA_LOSS_OF_COMMANDS,
        local_files=local_files,
        security=given_security(security),
    )
    client = reading_client(servers_of(bootstrap_servers), limits.fetch)
    with (
        target(rows.schema) as table,  # first: its errors are found quickly
        load_engine(engine, tasks, started, client) as runs,
    ):
        one = _Load(client, names, limits, rows, runs, start_offset, commit_records, rules)
        one.run(table, on_progress)
        stopped = stop or threading.Event()
        while continuous and not stopped.wait(LOOK_SECONDS):
            one.run(table, on_progress, wait_s=commit_interval_s, stopped=stopped)
    return one.progress


class _Load:
    """State of one call of `load`."""

    def __init__(
        self,
        client: ClusterClient,
        topics: list[str],
        limits: ReadLimits,
        rows: LoadRows,
        engine: LoadEngine,
        start_offset: Offset,
        commit_records: int,
        compaction: CompactionRules | None,
    ) -> None:
        self._client = client
        self._topics = topics
        self._limits = limits
        self._rows = rows
        self._engine = engine
        self._start_offset = start_offset
        self._commit_records = commit_records
        self._compaction = compaction
        self._loaded: LoadedOffsets | None = None
        self._ids: dict[str, str] = {}
        """Ids of the topics when the ranges were looked up, by name."""
        self.progress = LoadProgress(0, 0, 0)

    def run(
        self,
        target: LoadTarget,
        on_progress: Callable[[LoadProgress], None],
        *,
        wait_s: float = 0.0,
        stopped: threading.Event | None = None,
    ) -> None:
        """Load all records up to the current ends.

        wait_s: seconds to wait for more records if there are fewer than `commit_records`.
        """
        deadline = time.monotonic() + wait_s
        ranges = self._new_ranges(target)
        while wait_s and 0 < _size(ranges) < self._commit_records:
            left = deadline - time.monotonic()
            if left <= 0 or (stopped is not None and stopped.wait(min(LOOK_SECONDS, left))):
                break
            ranges = self._new_ranges(target)
        ends = {one.topic_partition: one.end for one in ranges}
        while _size(ranges):
            part = next_ranges(ranges, self._commit_records)
            assert self._loaded is not None
            after = self._loaded.after(part, self._ids)
            files = self._write(target, part, after)
            self._loaded = after
            ranges = [
                one._replace(start=after.offsets.get(one.topic_partition, one.start))
                for one in ranges
            ]
            self.progress = replace(
                self.progress,
                records=self.progress.records + sum(file.rows for file in files),
                commits=self.progress.commits + 1,
                behind=_size(ranges),
            )
            on_progress(self.progress)
            if self._compaction is not None:
                count = target.compact(self._compaction, {file.value for file in files})
                self.progress = replace(
                    self.progress, compacted_files=self.progress.compacted_files + count
                )
        assert all(one.end == ends[one.topic_partition] for one in ranges)

    def _write(
        self, target: LoadTarget, part: list[PartitionRange], after: LoadedOffsets
    ) -> list[WrittenFile]:
        """Load `part` in one commit; returns the files of the commit."""
        place, servers = target.begin(), format_servers(self._client.bootstrap)
        tasks = [
            LoadTask(number, servers, ranges, self._rows, self._limits, place)
            for number, ranges in enumerate(share_out(part, self._engine.task_count))
        ]
        try:
            files = self._engine.run(tasks)
        except BaseException:
            target.discard([])
            raise
        target.commit(files, after)
        return files

    def _new_ranges(self, target: LoadTarget) -> list[PartitionRange]:
        """Ranges from the loaded offsets to the current ends of the topics."""
        counts = self._client.run(self._partition_counts(), METADATA_TIMEOUT_MS)
        if self._loaded is None:
            keys = [TopicPartition(name, n) for name, count in counts.items() for n in range(count)]
            self._loaded = target.loaded(keys, self._topic_ids())
        self._ids = self._topic_ids()
        anew = self._made_again(self._loaded)
        self._loaded = self._loaded.without(anew)
        ranges = resolve_ranges(
            self._client,
            self._topics,
            self._start_offset,
            "latest",
            self._limits,
            keep_empty=True,
            committed=self._loaded.offsets,
        )
        # All partitions of a recreated topic start over, also those without records yet: the
        # loaded offsets of the former topic must not apply to them.
        begun = [one._replace(end=one.start) for one in ranges if one.topic in anew]
        self._loaded = self._loaded.after(begun, self._ids)
        return ranges

    def _partition_counts(self) -> Steps[dict[str, int]]:
        self._client.want(self._topics)
        yield from wait(self._client.refresh())
        counts = {}
        for name in self._topics:
            try:
                view = yield from self._client.topic(name)
            except UnknownTopicOrPartition:
                raise UnknownTopicOrPartition(
                    f"topic {name!r} does not exist; `bradbury topics list` shows those that do"
                ) from None
            counts[name] = len(view.partitions)
        return counts

    def _made_again(self, loaded: LoadedOffsets) -> list[str]:
        """Topics recreated since they were loaded. Raises DataLoss with fail_on_data_loss."""
        anew = loaded.made_again(self._ids)
        if anew and self._limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {anew[0]!r} was deleted and recreated since it was loaded. Load into "
                "another table, or, to append the new topic from its beginning, "
                f"{self._limits.allow_data_loss}"
            )
        return anew

    def _topic_ids(self) -> dict[str, str]:
        return self._client.view.topic_ids(self._topics)


def _size(ranges: Sequence[PartitionRange]) -> int:
    return sum(one.size for one in ranges)

"""`bradbury.replay`: writes the rows of a table to a topic, the reverse of `bradbury.load`.

    bradbury.replay("/data/flights", "flights-again")

Each row is written exactly once: positions are kept in the topic's cluster and committed with the
records in one transaction, and a replay that is run again resumes there. When all of a loaded, a
Delta or an Iceberg table is in the topic, the next run writes the rows added since; a continuous
one looks for them every few seconds.

Invariants:
    The rows of one call are in the order of the table, however earlier calls ended.
    One replay of a name at a time: another that starts fences the former (its transactional id).
    This runs in the calling process, with neither Ray nor Spark.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Unpack

import pyarrow as pa

from ...clients.admin.admin import Admin, TopicDescription
from ...clients.producer.producer import Producer
from ...clients.security.security_options import SecurityOptions, as_given, given_security
from ...protocol.errors import TransactionAbortable, UnknownTopicOrPartition
from ..ranges.partition_range import ReadLimits
from ..ranges.read_arguments import read_limits, servers_of
from ..ranges.reading_client import load_kernels
from .delta_source import DeltaSource
from .iceberg_source import IcebergSource
from .ordered_rows import ordered_rows
from .parquet_source import ParquetSource, parquet_source
from .replay_positions import (
    ReplayPosition,
    make_positions_topic,
    read_position,
    write_position,
)
from .replayed_columns import ReplayedColumns
from .table_source import ReplayFailed, TablePart, TableSource, natural_order

FORMATS: Final = ("parquet", "delta", "iceberg")
PIECE_ROWS: Final = 50_000
COMMIT_BYTES: Final = 256 * 1024 * 1024
OPEN_SECONDS: Final = 60.0
"""Seconds after which a transaction is committed, regardless of its size."""
TRANSACTION_MS: Final = 900_000
MOST_RECORD_BYTES: Final = 128 * 1024**2
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress after a commit.

    records, commits: of this call. behind: rows of the table that are not in the topic yet.
    """

    records: int
    commits: int
    behind: int


def replay(
    table: str,
    to: str,
    *,
    format: str | None = None,  # noqa: A002 -- as Spark's and Ray's readers have it
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    key: str | None = None,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    keep_partitions: bool = False,
    order_by: str | Sequence[str] | None = None,
    name: str | None = None,
    commit_records: int = 500_000,
    compression_type: str = "none",
    bootstrap_servers: str | Sequence[str] | None = None,
    poll_timeout_ms: int = 120_000,
    continuous: bool = False,
    look_interval_s: float = 5.0,
    stop: threading.Event | None = None,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    **security: Unpack[SecurityOptions],
) -> ReplayProgress:
    """Write a table's rows as records; returns when those that existed at the call are written.

    Args:
        table: a directory written by `load`, any other Parquet files (also s3://... and gs://...),
            a Delta table, or namespace.table of an Iceberg catalog.
        to: an existing topic.
        format: "parquet", "delta" or "iceberg"; None: Delta if there is a `_delta_log`, else
            Parquet.
        catalog, catalog_properties: the Iceberg catalog for PyIceberg; see `load`.
        key: name of a column; numbers, dates and times become text. None: the column `key`, if it
            has a suitable type; "": no key.
        value: name of a column: bytes or text as they are, others as JSON. None: column `value`.
        columns: names of the columns of which the value is a JSON object; the default without a
            column `value` is all.
        timestamp, headers: names of columns, by default these; "": none. Without timestamp: the
            current time.
        keep_partitions: True: each row goes to the partition in its column `partition`; False: by
            its key, as with Kafka's clients.
        order_by: names of columns. None: `offset` if there is such a column, else the order of the
            files.
        name: name of this replay, under which its position is kept. None: made of table and topic.
        commit_records: most records of a transaction, about.
        compression_type: none, gzip, snappy, lz4 or zstd.
        continuous: follow rows added to the table until `stop` is set, or forever; looks for them
            every `look_interval_s` seconds. Not for other Parquet files, where new rows cannot be
            detected.
        on_progress: called after each commit.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid.
        ReplayFailed: the table has changed since its replay began, or is not a table; the
            brokers aborted a transaction.
        UnknownTopicOrPartition: the topic does not exist.
        ProducerFenced: another replay of this name has started.
        ConnectionFailed, RequestTimedOut, KafkaError, OSError: no partial transaction is
            committed; a new call resumes.

        Cost: rows that must be sorted are in memory up to 256 MB, beyond that in TMPDIR.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"format is {format!r}; use parquet, delta or iceberg")
    if format != "iceberg" and (catalog is not None or catalog_properties):
        raise ValueError("a catalog needs the format iceberg")
    if commit_records < 1:
        raise ValueError(f"commit_records={commit_records}: use more than 0")
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(f'name is {name!r}; use letters, digits, ".", "_" and "-"')
    if look_interval_s <= 0:
        raise ValueError(f"look_interval_s={look_interval_s}: use more than 0")

    def opened() -> tuple[TableSource, ReplayedColumns]:
        source: TableSource
        if format == "iceberg":
            source = IcebergSource(table, catalog=catalog, properties=catalog_properties)
        elif format == "delta" or (format is None and (Path(table) / "_delta_log").is_dir()):
            source = DeltaSource(table)
        else:
            source = parquet_source(table)
        if continuous and isinstance(source, ParquetSource):
            raise ValueError(
                f"continuous: {table} was not written by a load and is not a Delta or Iceberg "
                "table, so new rows in it cannot be detected; set continuous to false"
            )
        chosen = ReplayedColumns(
            source.schema,
            key=key,
            value=value,
            columns=columns,
            timestamp=timestamp,
            headers=headers,
            keep_partitions=keep_partitions,
        )
        return source, chosen

    source, _ = found = opened()
    limits = read_limits(
        "read_committed",
        "bradbury-replay",
        poll_timeout_ms=poll_timeout_ms,
        fail_on_data_loss=True,
        security=given_security(security),
    )
    one = _Replay(
        found,
        to,
        _order(source.schema, order_by),
        name or default_name(table, to, format),
        min(commit_records, 1_000_000_000),
        servers_of(bootstrap_servers),
        limits,
    )
    look = (opened, look_interval_s) if continuous else None
    return one.run(compression_type, on_progress, stop or threading.Event(), look)


def default_name(table: str, to: str, table_format: str | None = None) -> str:
    """Default name of a replay."""
    if table_format == "iceberg" or "://" in table:
        place = table
    else:
        place = str(Path(table).resolve())
    return f"{to}-{hashlib.sha256(place.encode()).hexdigest()[:12]}"


def _order(schema: Any, order_by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Columns to order by. Raises ValueError: a column does not exist, or has no order."""
    if order_by is None:
        return tuple(natural_order(schema))
    names = [order_by] if isinstance(order_by, str) else list(order_by)
    for name in names:
        if name not in schema.names:
            raise ValueError(
                f"order_by: there is no column {name!r}; there are {', '.join(schema.names)}"
            )
        if pa.types.is_nested(schema.field(name).type):
            raise ValueError(
                f"order_by: column {name!r} is {schema.field(name).type}, which has no order"
            )
    return tuple(names)


class _Replay:
    """State of one call of `replay`."""

    def __init__(
        self,
        opened: tuple[TableSource, ReplayedColumns],
        to: str,
        order: tuple[str, ...],
        name: str,
        commit_records: int,
        servers: str,
        limits: ReadLimits,
    ) -> None:
        self._source, self._columns = opened
        self._to = to
        self._order = order
        self._name = name
        self._commit_records = commit_records
        self._servers = servers
        self._limits = limits
        self._behind = 0
        self._position: ReplayPosition | None = None
        self._progress = ReplayProgress(0, 0, 0)

    def run(
        self,
        compression_type: str,
        on_progress: Callable[[ReplayProgress], None],
        stopped: threading.Event,
        look: tuple[Callable[[], tuple[TableSource, ReplayedColumns]], float] | None,
    ) -> ReplayProgress:
        """Run the replay. look: opens the table again, and seconds between calls; None: once."""
        security = as_given(self._limits.fetch.security)
        with (
            Admin(self._servers, **security) as admin,
            Producer(
                self._servers,
                transactional_id=f"bradbury-replay-{self._name}",
                transaction_timeout_ms=TRANSACTION_MS,
                compression_type=compression_type,
                # The topic enforces its own limit: max.message.bytes.
                max_request_size=MOST_RECORD_BYTES,
                buffer_memory=2 * MOST_RECORD_BYTES,
                client_id="bradbury-replay",
                **security,
            ) as producer,
        ):
            topic = self._topic(admin)
            topic_id, partition_count = str(topic.topic_id), len(topic.partitions)
            make_positions_topic(admin, min(len(one.replicas) for one in topic.partitions))
            # Aborts a former replay's transaction, so that the position read next is final.
            producer.init_transactions()
            self._position = read_position(self._servers, self._name, self._limits)
            try:
                self._write(producer, topic_id, partition_count, on_progress, stopped)
                while look is not None and not stopped.wait(look[1]):
                    self._source, self._columns = look[0]()
                    self._write(producer, topic_id, partition_count, on_progress, stopped)
                return self._progress
            except TransactionAbortable as error:
                raise ReplayFailed(
                    f"the brokers aborted a transaction of {self._name!r}, maybe as another "
                    f"replay of this name has started; run it again to resume ({error})"
                ) from None

    def _topic(self, admin: Admin) -> TopicDescription:
        try:
            (described,) = admin.describe_topics([self._to])
        except UnknownTopicOrPartition:
            raise UnknownTopicOrPartition(
                f"topic {self._to!r} does not exist; create it with `bradbury topics create "
                f"{self._to}`"
            ) from None
        return described

    def _check(self, position: ReplayPosition, topic_id: str) -> None:
        """Check a position. Raises ReplayFailed: it is of another table or topic."""
        anew = "use another --name to replay all of it"
        if position.to != self._to:
            raise ReplayFailed(
                f"{self._name!r} is a replay into topic {position.to!r}; use another --name"
            )
        if position.topic_id != topic_id:
            raise ReplayFailed(
                f"topic {self._to!r} was deleted and recreated since {self._name!r} wrote to "
                f"it; {anew}"
            )
        if position.table not in ("", self._source.table_id):  # older loads gave none
            raise ReplayFailed(
                f"the table is not the one that {self._name!r} began to replay: it was "
                f"recreated, or its files have changed; {anew}"
            )
        if not position.done and position.order != self._order:
            raise ReplayFailed(
                f"{self._name!r} was started in the order of "
                f"{', '.join(position.order) or 'the files'}; finish it in that order, or use "
                "another --name"
            )

    def _begun(self, position: ReplayPosition) -> TablePart:
        """The part in which the last call ended. Raises ReplayFailed: its files have changed."""
        part = self._source.part(position.part, is_whole=position.whole)
        if part is None or part.digest != position.digest:
            raise ReplayFailed(
                f"files of the table that {self._name!r} has not replayed completely were changed "
                "or removed; restore them, or use another --name to replay all of it"
            )
        return part

    def _pieces(
        self, position: ReplayPosition | None, topic_id: str
    ) -> Iterator[tuple[Any, ReplayPosition]]:
        """Rows in order, each piece with the position after it."""
        parts = [*self._source.parts(None if position is None else position.part)]
        counts = [part.dataset.count_rows() for part in parts]  # metadata is enough for that
        later = sum(counts)
        if position is not None and not position.done:
            yield from self._rows(self._begun(position), topic_id, position.rows, later)
        for part, count in zip(parts, counts, strict=True):
            later -= count
            yield from self._rows(part, topic_id, 0, later)

    def _rows(
        self, part: TablePart, topic_id: str, skipped: int, later: int
    ) -> Iterator[tuple[Any, ReplayPosition]]:
        """Rows of a part after the first `skipped`. later: number of those of later parts."""
        needed = self._columns.needed
        scanned = part.dataset.to_batches(columns=list(dict.fromkeys([*needed, *self._order])))
        batches = (each for each in scanned if each.num_rows)
        total = part.dataset.count_rows()
        at = ReplayPosition(
            self._source.table_id,
            self._to,
            topic_id,
            part.number,
            part.is_whole,
            0,
            False,
            part.digest,
            self._order,
        )
        rows = ordered_rows(batches, self._order) if self._order else batches
        most = min(PIECE_ROWS, self._commit_records)
        count = 0
        for batch in rows:
            start = max(0, skipped - count)
            for first in range(start, batch.num_rows, most):
                piece = batch.slice(first, most)
                done = count + first + piece.num_rows
                self._behind = total - done + later
                yield piece, replace(at, rows=done, done=done == total)
            count += batch.num_rows

    def _write(
        self,
        producer: Producer,
        topic_id: str,
        partition_count: int,
        on_progress: Callable[[ReplayProgress], None],
        stopped: threading.Event,
    ) -> None:
        """Write the rows after the position. `stopped` ends it at the next commit."""
        if self._position is not None:
            self._check(self._position, topic_id)
        pieces = self._pieces(self._position, topic_id)
        partition = "partition" if self._columns.keeps_partitions else None
        piece = next(pieces, None)
        while piece is not None and not stopped.is_set():
            count = size = 0
            is_full = False
            began = time.monotonic()
            with producer.transaction():
                while piece is not None and not is_full:
                    batch, position = piece
                    load_kernels(batch.num_rows)
                    records = self._columns.records(batch, partition_count)
                    producer.send_batch(self._to, records, partition=partition)
                    count += batch.num_rows
                    size += records.nbytes
                    behind = self._behind
                    elapsed = time.monotonic() - began
                    is_full = (
                        count >= self._commit_records
                        or size >= COMMIT_BYTES
                        or elapsed > OPEN_SECONDS
                        or stopped.is_set()
                        # The next part may have to be sorted first, which takes time.
                        or (position.done and elapsed > 1)
                    )
                    if not is_full:
                        piece = next(pieces, None)
                write_position(producer, self._name, position)
            self._position = position
            former = self._progress
            self._progress = ReplayProgress(former.records + count, former.commits + 1, behind)
            on_progress(self._progress)
            if is_full:
                piece = next(pieces, None)

"""Writer of a Dataset's blocks as records; each task exactly once, however often Ray runs it.

    transactional.id, group  ray-data-{write id}-{task}    of one task of one write

Ray runs a task again when its worker or node has died, also after it has done its work. So a task
writes its rows and a marker (a committed offset of MARKERS) in one transaction, and looks for the
marker before it starts. It initializes its transactional id first: another attempt that still runs
is fenced from then on, and its open transaction is aborted.

Invariants:
    Rows and marker of a task are committed together or not at all.
    With delivery_guarantee="at-least-once" there are no transactions and no markers: a task that
    is run again repeats its rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from ray.data._internal.execution.interfaces import TaskContext
from ray.data.block import Block, BlockAccessor
from ray.data.datasource import Datasink, WriteResult

from ...clients.admin.group_admin import delete_groups
from ...clients.admin.group_offsets_admin import group_offsets
from ...clients.admin.topics_admin import NewTopic, ensure_topic
from ...clients.producer.producer import Producer
from ...clients.security.security_options import ClientSecurity, as_given
from ...clients.wire.record_metadata import BatchMetadata, OffsetAndMetadata
from ...protocol.errors import (
    KafkaError,
)
from ...protocol.topic_partition import TopicPartition
from ..ranges.fetch_options import FetchOptions
from ..ranges.reading_client import load_kernels, reading_client

MARKERS: Final = TopicPartition("__bradbury_ray_data", 0)
TIMEOUT_MS: Final = 60_000
MAX_OPEN_BATCHES: Final = 64
MIN_TASK_BYTES: Final = 16 * 1024 * 1024
PARTITION: Final = "partition"
"""Name of the column of partitions as it is sent, whatever that of the Dataset is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWrite:
    """Settings shared by all tasks of a write.

    columns: names of the columns for key, value, timestamp and headers; None: there is none.
    partition: a number for all rows, the name of a column, or None: by key.
    producer: settings of the producer, without security.
    as_streams: each piece of a block is one record, an Arrow IPC stream of at most `stream_bytes`.
    """

    write_id: str
    topic: str
    bootstrap: str
    security: ClientSecurity | None
    columns: Mapping[str, str | None]
    partition: int | str | None
    as_streams: bool
    stream_bytes: int
    is_exactly_once: bool
    producer: Mapping[str, Any]

    @property
    def fetch(self) -> FetchOptions:
        """Settings of the client for requests that the producer does not send."""
        return FetchOptions(client_id="bradbury-ray-data", security=self.security)

    @property
    def producer_settings(self) -> dict[str, Any]:
        """Settings of the producer with security. They contain secrets: do not log them."""
        return {**self.producer, **as_given(self.security)}

    def task_id(self, task: int) -> str:
        return f"ray-data-{self.write_id}-{task}"


class TopicDatasink(Datasink[int]):
    """Datasink of a topic. `write` returns the number of records that a task has written."""

    def __init__(self, write: TopicWrite) -> None:
        self._write = write

    def get_name(self) -> str:
        return "Topic"

    @property
    def min_bytes_per_write(self) -> int:
        """Least bytes of a task: smaller blocks are bundled, as each task has a transaction."""
        return MIN_TASK_BYTES

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Create the marker topic. `schema` may be that of blocks before the tasks map them."""
        if self._write.is_exactly_once:
            _make_marker_topic(self._write)

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> int:
        write = self._write
        transactional_id = write.task_id(ctx.task_idx) if write.is_exactly_once else None
        settings = {**write.producer_settings, "transactional_id": transactional_id}
        with Producer(write.bootstrap, **settings) as producer:
            if transactional_id is None:
                return send_blocks(producer, blocks, write)
            producer.init_transactions()
            done = self._done(transactional_id)
            if done is not None:
                return done
            with producer.transaction():
                count = send_blocks(producer, blocks, write)
                marker = OffsetAndMetadata(count, "records")
                producer.send_offsets({MARKERS: marker}, transactional_id)
            return count

    def _done(self, transactional_id: str) -> int | None:
        """Number of records that an earlier attempt has committed; None: none has."""
        client = reading_client(self._write.bootstrap, self._write.fetch)
        found = client.run(
            group_offsets(client, [transactional_id], timeout_ms=TIMEOUT_MS), TIMEOUT_MS
        )
        marker = found[transactional_id].get(MARKERS)
        return None if marker is None else marker.offset

    def on_write_complete(self, write_result: WriteResult[int]) -> None:
        """Delete the markers: no task will run again."""
        if not self._write.is_exactly_once:
            return
        client = reading_client(self._write.bootstrap, self._write.fetch)
        groups = [self._write.task_id(task) for task in range(len(write_result.write_returns))]
        try:
            client.run(delete_groups(client, groups, timeout_ms=TIMEOUT_MS), TIMEOUT_MS)
        except KafkaError:
            pass  # they expire (offsets.retention.minutes); the rows are there


def send_blocks(producer: Producer, blocks: Iterable[Block], write: TopicWrite) -> int:
    """Send blocks; returns the number of records when all are acknowledged."""
    count = 0
    unacknowledged: deque[Future[BatchMetadata]] = deque()
    for block in blocks:
        table = BlockAccessor.for_block(block).to_arrow()
        if not len(table):
            continue
        _check_columns(table.column_names, write)
        load_kernels(len(table))
        records = _streams(table, write) if write.as_streams else _records(table, write)
        count += len(records)
        partition = PARTITION if isinstance(write.partition, str) else write.partition
        unacknowledged.append(producer.send_batch(write.topic, records, partition=partition))
        while len(unacknowledged) > MAX_OPEN_BATCHES:
            unacknowledged.popleft().result()
    producer.flush()
    for one in unacknowledged:
        one.result()
    return count


def _check_columns(names: Sequence[str], write: TopicWrite) -> None:
    wanted = [name for name in write.columns.values() if name is not None]
    if isinstance(write.partition, str):
        wanted.append(write.partition)
    for name in wanted:
        if name not in names:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(names)}")


def _records(table: pa.Table, write: TopicWrite) -> pa.Table:
    """Columns under the names that Producer.send_batch expects."""
    chosen = {
        name: table.column(column) for name, column in write.columns.items() if column is not None
    }
    if isinstance(write.partition, str):
        chosen[PARTITION] = table.column(write.partition)
    return pa.table(chosen)


def _streams(table: pa.Table, write: TopicWrite) -> pa.Table:
    """Records whose values are Arrow IPC streams of the rows, a piece each."""
    return pa.table({"value": pa.array(_pieces(table, write.stream_bytes), pa.binary())})


def _pieces(table: pa.Table, most_bytes: int) -> Iterator[bytes]:
    """Arrow IPC streams of at most about `most_bytes`; larger ones are split."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    stream = sink.getvalue()
    if stream.size <= most_bytes or len(table) == 1:
        yield stream.to_pybytes()
        return
    parts = -(-stream.size // most_bytes)
    rows = max(1, len(table) // parts)
    del stream, sink
    for start in range(0, len(table), rows):
        yield from _pieces(table.slice(start, rows), most_bytes)


def _make_marker_topic(write: TopicWrite) -> None:
    client = reading_client(write.bootstrap, write.fetch)
    wanted = NewTopic(MARKERS.topic, 1, configs={"cleanup.policy": "compact"})
    client.run(ensure_topic(client, wanted, timeout_ms=TIMEOUT_MS), TIMEOUT_MS)

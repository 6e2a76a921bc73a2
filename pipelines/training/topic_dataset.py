"""`bradbury.TopicDataset`: records for a training loop that can be stopped and resumed anywhere.

    dataset = bradbury.TopicDataset("samples", batch_size=512, shuffle_window=50_000, seed=7)
    for batch in dataset:                       # {"offset": array, "value": array, ...}
        train(batch)
        checkpoint["data"] = dataset.state_dict()

    dataset.load_state_dict(checkpoint["data"])  # in the next process: resumes with the next batch

Invariants:
    The state consists of offsets and settings. With it and the same log, the same rows follow in
    the same order.
    Ranks and workers read different records; together they read all.
    Starts and ends are fixed when the dataset is made, and are in the state.

With PyTorch it is an IterableDataset, for DataLoader and for torchdata's StatefulDataLoader; it
works without, too.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import pyarrow as pa

from ...clients.security.security_options import SecurityOptions, given_security
from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.cluster_client import ClusterClient
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import DataLoss, PartitionRange, recreated_topics
from ..ranges.range_reader import RangeReader
from ..ranges.read_arguments import read_limits, servers_of, topic_names
from ..ranges.reading_client import load_kernels, reading_client
from ..ranges.topic_columns import SCHEMA, check_columns, topic_table
from ..ranges.topic_offsets import Offset, resolve_ranges
from ..ranges.value_decoder import Decoder, ValueDecoder
from .columns_of_batches import arrays_of, rows_of, take_rows
from .row_marks import RowMarks, ShardPosition
from .shards import ReadShard, blocks_of, own_rank, places_of, with_worker

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ImportError:
        _Base = object

logger = logging.getLogger(__name__)

VERSION: Final = 2
ROWS_AT_ONCE: Final = 1_024
"""Rows taken from the table at once if rows are handed out one by one."""
FOLLOW_S: Final = 0.1
TIMEOUT_MS: Final = 65_000
_FORMATS: Final = ("numpy", "pyarrow")


class TopicDataset(_Base):
    """Iterable dataset of the records of topics, bounded or following new ones.

    Args:
        topics: one name, or several.
        start_offset, end_offset: as in `read_topic`: an offset, a datetime, "earliest", "latest",
            or {topic: {partition: one of these}}. Looked up once, here: where several ranks
            make a dataset each, give all of them the same end, or none may have the last records.
        follow: continue with new records, forever. Shards have whole partitions then. Partitions
            that are added to the topics are read from their beginning.
        columns: of offset, key, value, topic, partition, timestamp, timestamp_type, headers.
        value_decoder, value_schema, schema_registry: as in `read_topic`, but for "arrow".
        batch_size: rows in a batch; None: one row at a time, as a dict.
        batch_format: "numpy": a dict of arrays, or "pyarrow": a table.
        drop_last: whether a last batch with fewer rows is left out.
        rank, world_size: of this process; by default from torch.distributed, Ray Train or torchrun.
            Workers of a DataLoader share the records of their rank.
        shuffle_window: number of rows that are shuffled together; 0: the order of the log.
        seed: seed of the shuffle. The same seed gives the same order.
        isolation_level, fail_on_data_loss, poll_timeout_ms, bootstrap_servers, local_files: as for
            `read_topic`.
        value_views: True: uncompressed values are not copied, for large values. They are read-only
            arrays of uint8 ("numpy", and rows) or a column of binary_view ("pyarrow") on the
            received data or, with local_files, on the mapped segment file, which stays mapped as
            long as any of them exists. If a mapped file is truncated (an unclean election, a
            manual repair), accessing the missing part kills the process. Needs value_decoder
            "raw".
        security: security_protocol, ssl_* and sasl_*, as for `read_topic`, also for the workers of
            a DataLoader. They are not part of the state.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid.
        UnknownTopicOrPartition, DataLoss, ConnectionFailed, RegistryFailed: as `read_topic`.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        start_offset: Offset = "earliest",
        end_offset: Offset = "latest",
        follow: bool = False,
        columns: Sequence[str] | None = None,
        value_decoder: str | Decoder = "raw",
        value_schema: Any = None,
        schema_registry: str | None = None,
        batch_size: int | None = None,
        batch_format: str = "numpy",
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle_window: int = 0,
        seed: int = 0,
        isolation_level: str = "read_committed",
        fail_on_data_loss: bool = True,
        poll_timeout_ms: int = 120_000,
        bootstrap_servers: str | Sequence[str] | None = None,
        local_files: bool = False,
        value_views: bool = False,
        **security: Unpack[SecurityOptions],
    ) -> None:
        _check(batch_size, batch_format, shuffle_window, follow)
        names = topic_names(topics)
        if follow and end_offset != "latest":
            raise ValueError("follow=True has no end: leave end_offset out")
        self._columns = SCHEMA.names if columns is None else check_columns(columns)
        self._decoder = ValueDecoder(
            value_decoder, value_schema, registry=schema_registry, topics=names
        )
        if self._decoder.repeats_rows:
            raise ValueError("value_decoder='arrow' has no offset for each row: use read_topic")
        if value_views and value_decoder != "raw":
            raise ValueError("value_views needs undecoded values: leave value_decoder out")
        self._batch_size = batch_size
        self._batch_format = batch_format
        self._drop_last = drop_last
        self._rank = own_rank(rank, world_size)
        self._shuffle_window = shuffle_window
        self._seed = seed
        self._follow = follow
        self._topics = names
        self._bootstrap = servers_of(bootstrap_servers)
        self._limits = read_limits(
            isolation_level,
            "bradbury-training",
            poll_timeout_ms=poll_timeout_ms,
            fail_on_data_loss=fail_on_data_loss,
            local_files=local_files,
            value_views=value_views,
            security=given_security(security),
        )
        client = reading_client(self._bootstrap, self._limits.fetch)
        self._ranges = resolve_ranges(
            client, names, start_offset, end_offset, self._limits, keep_empty=follow
        )
        self._topic_ids = client.run(_topic_ids(client, names), TIMEOUT_MS)
        self._added = 0  # of the ranges: partitions that came later, with follow
        if self._rank.total > 1 and end_offset == "latest" and not follow:
            logger.warning(
                "each of %d ranks looks up the end by itself: without the same end_offset for all "
                "of them some of the last records may be nobody's",
                self._rank.total,
            )
        self._epoch = 0
        self._next_window = ShardPosition(block=-1)
        self._loaded: Mapping[str, Any] | None = None
        self._state: dict[str, Any] | None = None

    # --- state -------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which changes the shuffled order, as DistributedSampler.set_epoch."""
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """State to resume after the last row handed out: offsets, in plain numbers and lists."""
        if self._state is not None:
            return dict(self._state)
        if self._loaded is not None:
            return dict(self._loaded)
        return self._make_state(with_worker(self._rank), ShardPosition())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state; the next iteration resumes there.

        Raises:
            ValueError: a state of other topics or settings. One of another rank or number of
                workers is detected by the iteration.
            DataLoss: a topic was deleted and recreated since.
        """
        if state.get("version") != VERSION or list(state.get("topics", ())) != self._topics:
            raise ValueError(f"this is not a state of a TopicDataset of {', '.join(self._topics)}")
        for name, here in self._settings().items():
            if state[name] != here:
                raise ValueError(
                    f"the state is of a dataset with {name}={state[name]!r}, and not {here!r}: use "
                    "the same setting, as other rows would follow"
                )
        if anew := recreated_topics(state.get("topic_ids", {}), self._topic_ids):
            raise DataLoss(
                f"topic {anew[0]!r} was deleted and recreated since the state was made, whose "
                "offsets are those of the former topic: start without the state"
            )
        self._ranges = [PartitionRange(*one) for one in state["ranges"]]
        self._added = state.get("added", 0)
        self._epoch = state["epoch"]
        self._loaded = dict(state)
        self._state = None

    def _settings(self) -> dict[str, Any]:
        """Settings that determine the order of rows."""
        return {
            "shuffle_window": self._shuffle_window,
            "seed": self._seed,
            "follow": self._follow,
        }

    def _make_state(self, shard: ReadShard, position: ShardPosition) -> dict[str, Any]:
        return {
            "version": VERSION,
            "topics": list(self._topics),
            "topic_ids": dict(self._topic_ids),
            "ranges": [list(one) for one in self._ranges],
            "added": self._added,
            "shard": list(shard),
            "epoch": self._epoch,
            "position": [position.block, position.offset, position.window, position.index],
            **self._settings(),
        }

    # --- iteration ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        shard = with_worker(self._rank)
        position = ShardPosition()
        if self._loaded is not None:
            state, self._loaded = self._loaded, None
            if tuple(state["shard"]) != shard:
                raise ValueError(
                    f"the state is of shard {state['shard'][0]} of {state['shard'][1]} (ranks x "
                    f"workers), this is {shard.number} of {shard.total}: use the same numbers"
                )
            position = ShardPosition(*state["position"])
        self._state = self._make_state(shard, position)
        marks = RowMarks()
        tables = (
            self._followed(shard, marks)
            if self._follow
            else self._read(blocks_of(self._ranges, shard), position, marks)
        )
        return self._handed_out(tables, shard, marks)

    def _handed_out(
        self, tables: Iterator[pa.Table], shard: ReadShard, marks: RowMarks
    ) -> Iterator[Any]:
        """Batches or rows; the state is that after the last one handed out."""
        size = self._batch_size or ROWS_AT_ONCE
        pending: deque[pa.Table] = deque()
        count = 0
        for table in tables:
            pending.append(table)
            count += len(table)
            while count >= size:
                yield from self._batch(_first_rows(pending, size), shard, marks)
                count -= size
            if self._batch_size is None and count:
                yield from self._batch(_first_rows(pending, count), shard, marks)
                count = 0
        if count and not self._drop_last:
            yield from self._batch(_first_rows(pending, count), shard, marks)
        self._state = self._make_state(shard, ShardPosition(block=-1))

    def _batch(self, table: pa.Table, shard: ReadShard, marks: RowMarks) -> Iterator[Any]:
        if self._batch_size is not None:
            self._advance(shard, marks, len(table))
            yield table if self._batch_format == "pyarrow" else arrays_of(table)
            return
        for row in rows_of(table):
            self._advance(shard, marks, 1)
            yield row

    def _advance(self, shard: ReadShard, marks: RowMarks, rows: int) -> None:
        ends = marks.take(rows)
        assert self._state is not None
        if self._follow:
            for place, offset in ends:
                self._ranges[place] = self._ranges[place]._replace(start=offset + 1)
            self._state = self._make_state(shard, ShardPosition())
            return
        first = marks.first()
        if first is None and ends:
            block, offset = ends[-1]
            first = ShardPosition(block=block, offset=offset + 1)
        self._state = self._make_state(shard, first or self._next_window)

    # --- reading -----------------------------------------------------------------------------

    def _read(
        self, blocks: Sequence[PartitionRange], position: ShardPosition, marks: RowMarks
    ) -> Iterator[pa.Table]:
        if position.block < 0:  # all was read
            return
        rest = list(blocks[position.block :])
        if rest and position.offset >= 0:
            rest[0] = rest[0]._replace(start=min(position.offset, rest[0].end))
        load_kernels(sum(one.size for one in rest))
        client = reading_client(self._bootstrap, self._limits.fetch)
        with RangeReader(client, self._limits, topic_ids=self._topic_ids) as reader:
            tables = self._tables(reader, rest, position.block)
            if self._shuffle_window:
                yield from self._windows(tables, position, marks)
                return
            for block, offsets, table in tables:
                marks.add(block, offsets)
                yield table

    def _tables(
        self, reader: RangeReader, ranges: Sequence[PartitionRange], first_block: int
    ) -> Iterator[tuple[int, np.ndarray[Any, Any], pa.Table]]:
        """Tables as (number of the block, offsets, table)."""
        place = 0
        for decoded in reader.read(ranges):
            if not len(decoded):
                continue
            offset = int(decoded.offsets[0])
            while not (
                ranges[place].topic_partition == (decoded.topic, decoded.partition)
                and ranges[place].start <= offset < ranges[place].end
            ):
                place += 1
            table = self._decoder.decode(topic_table(decoded, self._columns), decoded)
            yield first_block + place, np.asarray(decoded.offsets), table

    def _windows(
        self,
        tables: Iterator[tuple[int, np.ndarray[Any, Any], pa.Table]],
        position: ShardPosition,
        marks: RowMarks,
    ) -> Iterator[pa.Table]:
        """Shuffled rows of each window. The order depends on seed, epoch and window."""
        start = replace(position, index=0)
        done = position.index
        read: deque[pa.Table] = deque()
        sources = RowMarks()
        count = 0
        for block, offsets, table in tables:
            sources.add(block, offsets)
            read.append(table)
            count += len(table)
            while count >= self._shuffle_window:
                ends = sources.take(self._shuffle_window)
                following = sources.first() or ShardPosition(ends[-1][0], ends[-1][1] + 1)
                self._next_window = replace(following, window=start.window + 1)
                yield self._mixed(read, self._shuffle_window, start, done, marks)
                count -= self._shuffle_window
                start, done = self._next_window, 0
        if count:
            self._next_window = ShardPosition(block=-1)
            yield self._mixed(read, count, start, done, marks)

    def _mixed(
        self, read: deque[pa.Table], rows: int, start: ShardPosition, done: int, marks: RowMarks
    ) -> pa.Table:
        random = np.random.default_rng([self._seed, self._epoch, start.window, start.block + 1])
        order = random.permutation(rows)[done:]
        table = take_rows(_first_rows(read, rows), order)
        marks.add_window(replace(start, index=done), len(order))
        return table

    def _followed(self, shard: ReadShard, marks: RowMarks) -> Iterator[pa.Table]:
        """Tables of new records, forever. Blocks in `marks` are numbers of partitions."""
        first = len(self._ranges) - self._added
        if first < shard.total:
            raise ValueError(
                f"{first} partitions are too few for {shard.total} ranks x workers: "
                "with follow=True each needs at least one"
            )
        client = reading_client(self._bootstrap, self._limits.fetch)
        positions: dict[int, int] = {}
        while True:
            found = {
                one.topic_partition: one.end
                for one in resolve_ranges(client, self._topics, "earliest", "latest", self._limits)
            }
            if anew := recreated_topics(self._topic_ids, client.view.topic_ids(self._topics)):
                raise DataLoss(
                    f"topic {anew[0]!r} was deleted and recreated: make the dataset again"
                )
            self._add_partitions(found)
            for place in [*places_of(first, shard), *self._added_places(first, shard)]:
                positions.setdefault(place, self._ranges[place].start)
            any_came = False
            for place, start in positions.items():
                one = self._ranges[place]
                end = found.get(one.topic_partition, start)
                if end <= start:
                    continue
                load_kernels(end - start)
                with RangeReader(client, self._limits, topic_ids=self._topic_ids) as reader:
                    part = one._replace(start=start, end=end)
                    for _, offsets, table in self._tables(reader, [part], place):
                        marks.add(place, offsets)
                        yield table
                positions[place] = end
                any_came = True
            if not any_came:
                time.sleep(FOLLOW_S)

    def _add_partitions(self, found: Iterable[TopicPartition]) -> None:
        """Add partitions that were added to the topics. They are read from their beginning."""
        known = {one.topic_partition for one in self._ranges}
        for key in sorted(set(found) - known):
            self._ranges.append(PartitionRange(*key, 0, 0))
            self._added += 1

    def _added_places(self, first: int, shard: ReadShard) -> Iterator[int]:
        """Places of added partitions of a shard, by their numbers: shards see them at different
        times, and so in different orders.
        """
        for place in range(first, len(self._ranges)):
            if self._ranges[place].partition % shard.total == shard.number:
                yield place


def _first_rows(tables: deque[pa.Table], count: int) -> pa.Table:
    """Table of the first `count` rows, which are removed from `tables`."""
    parts = []
    while count:
        table = tables.popleft()
        if len(table) > count:
            tables.appendleft(table.slice(count))
            table = table.slice(0, count)
        parts.append(table)
        count -= len(table)
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _topic_ids(client: ClusterClient, names: Sequence[str]) -> Steps[dict[str, str]]:
    """Current ids of the topics, from metadata that is refreshed first."""
    client.want(names)
    yield from wait(client.refresh())
    return client.view.topic_ids(names)


def _check(batch_size: int | None, batch_format: str, shuffle_window: int, follow: bool) -> None:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; use at least 1, or None for rows")
    if batch_format not in _FORMATS:
        raise ValueError(f"batch_format is {batch_format!r}; use {' or '.join(_FORMATS)}")
    if batch_format != "numpy" and batch_size is None:
        raise ValueError("batch_format is for batches: give a batch_size")
    if shuffle_window < 0:
        raise ValueError(f"shuffle_window is {shuffle_window}; use 0 for none")
    if shuffle_window and follow:
        raise ValueError("a shuffle_window needs an end; with follow=True rows cannot be shuffled")

"""Fetched records, decoded to tables, and split to the size of one poll.

Invariants:
    A chunk has one partition and one generation of it; a chunk from before a seek, or of a revoked
    partition, is never returned.
    Positions move when records are returned, not when they are decoded.

Not here: waiting (consumer), fetching (fetcher).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.columns import decode_batches, kernels_ready
from ...protocol.columns.columns_decode import AbortedProducers
from ...protocol.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidRecord,
    KafkaError,
    UnsupportedCompressionType,
)
from ...protocol.records.record_batch import walk_batches
from ..wire.kernels import on_records
from .fetch_state import UNKNOWN_EPOCH, FetchedRecords, FetchState
from .fetcher import Fetcher

logger = logging.getLogger(__name__)

RAISE: Final = "raise"
SKIP: Final = "skip"
CORRUPT: Final = (CorruptMessage, InvalidRecord, UnsupportedCompressionType)

PLAIN_BYTES: Final = 256 * 1024
"""Bytes decoded at a time without compiled kernels: 12 ms for records of 100 bytes."""

PLAIN_SECONDS: Final = 0.1
"""Seconds that one poll decodes without compiled kernels before it returns."""


class ConsumerRecord(NamedTuple):
    """Record of a topic. timestamp: milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Chunk(NamedTuple):
    """Decoded records of one partition. next_offset: the position after them.

    last_epoch: leader epoch of the record before next_offset, if known.
    """

    state: FetchState
    generation: int
    table: pa.Table
    next_offset: int
    last_epoch: int

    @property
    def is_current(self) -> bool:
        return self.generation == self.state.generation

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Split off the first `count` rows."""
        after = self.table.column("offset")[count].as_py()
        first = self.table.slice(0, count)
        return (
            self._replace(table=first, next_offset=after, last_epoch=UNKNOWN_EPOCH),
            self._replace(table=self.table.slice(count)),
        )

    def hand_out(self) -> None:
        """Move the position to the end of the chunk."""
        self.state.position = self.next_offset
        self.state.position_epoch = self.last_epoch


class RecordStream:
    """Stream of decoded chunks, used by the consumer's thread only."""

    def __init__(
        self, fetcher: Fetcher, *, check_crcs: bool, on_corrupt_record: str = RAISE
    ) -> None:
        """Check the settings. Raises InvalidConfig: `on_corrupt_record` is not RAISE or SKIP."""
        if on_corrupt_record not in (RAISE, SKIP):
            raise InvalidConfig(
                f"on_corrupt_record={on_corrupt_record!r}: use {RAISE!r} or {SKIP!r}"
            )
        self._skips = on_corrupt_record == SKIP
        self._fetcher = fetcher
        self._check_crcs = check_crcs
        self._chunks: list[Chunk] = []
        self._undecoded: list[FetchedRecords] = []

    def take(self, max_records: int | None) -> list[Chunk]:
        """Decode and return the chunks that are available, at most `max_records` rows.

        Raises:
            KafkaError: a batch is damaged. The position stays before it; with
                on_corrupt_record="skip" it is counted, logged, and skipped instead.
        """
        taken: list[Chunk] = []
        room = max_records
        kept, self._chunks = self._chunks, []
        for chunk in kept:
            if chunk.is_current and (chunk.state.paused or room == 0):
                self._chunks.append(chunk)
            elif chunk.is_current:
                room = self._add(chunk, taken, room)
        # Counted now, as further answers may arrive all the time while one is decoded.
        answers = self._fetcher.buffer.ready_count() + len(self._undecoded)
        plain_until = time.monotonic() + PLAIN_SECONDS
        while answers and (room is None or room > 0):
            if taken and not kernels_ready() and time.monotonic() >= plain_until:
                break  # plain loops are slow: return now, and decode the rest in the next poll
            answers -= 1
            fetched = self._next()
            if fetched is None:
                break
            if not fetched.is_current:
                continue
            on_records(fetched.next_offset - fetched.fetch_offset)
            if not kernels_ready():
                fetched, rest = _cut(fetched, PLAIN_BYTES)
                if rest is not None:
                    self._undecoded.insert(0, rest)
                    answers += 1
            try:
                chunk = self._decode(fetched)
            except KafkaError as error:
                if taken:
                    self._undecoded.insert(0, fetched)  # these records first, then the error
                    break
                pieces = _batch_by_batch(fetched) if isinstance(error, CORRUPT) else []
                if len(pieces) > 1:  # the other batches are not damaged
                    self._undecoded[0:0] = pieces
                    answers += len(pieces)
                    continue
                if pieces and self._skips:
                    self._skip(pieces[0], error)
                    continue
                self._fetcher.seek(fetched.state.topic_partition, fetched.fetch_offset)
                raise
            if chunk.table.num_rows:
                room = self._add(chunk, taken, room)
            else:
                _pass(chunk, taken)
        return taken

    def _skip(self, fetched: FetchedRecords, error: KafkaError) -> None:
        state, count = fetched.state, fetched.next_offset - fetched.fetch_offset
        logger.warning(
            "%s: offsets %d to %d are skipped: %s",
            state.topic_partition,
            fetched.fetch_offset,
            fetched.next_offset - 1,
            error,
        )
        self._fetcher.metrics.on_corrupt(count)
        state.position, state.position_epoch = fetched.next_offset, UNKNOWN_EPOCH

    def is_ready(self) -> bool:
        return any(one.is_current and not one.state.paused for one in self._undecoded) or any(
            chunk.is_current and not chunk.state.paused for chunk in self._chunks
        )

    def _next(self) -> FetchedRecords | None:
        """Return the oldest answer, or part of one, of a partition that is not paused."""
        self._undecoded = [one for one in self._undecoded if one.is_current]
        for number, one in enumerate(self._undecoded):
            if not one.state.paused:
                return self._undecoded.pop(number)
        return self._fetcher.buffer.take()

    def put_back(self, chunks: list[Chunk]) -> None:
        """Put back the rows of taken chunks that are not handed out yet, in order."""
        rest = []
        for chunk in chunks:
            if not chunk.is_current:
                continue
            done = _rows_below(chunk.table, chunk.state.position)
            if done < chunk.table.num_rows:
                rest.append(chunk if not done else chunk.split(done)[1])
        self._chunks[:0] = rest

    def _add(self, chunk: Chunk, taken: list[Chunk], room: int | None) -> int | None:
        if room is None:
            taken.append(chunk)
            return None
        if chunk.table.num_rows > room:
            chunk, rest = chunk.split(room)
            self._chunks.append(rest)
        taken.append(chunk)
        count: int = chunk.table.num_rows
        return room - count

    def _decode(self, fetched: FetchedRecords) -> Chunk:
        state = fetched.state
        decoded = decode_batches(
            fetched.records,
            topic=state.topic_partition.topic,
            partition=state.topic_partition.partition,
            fetch_offset=fetched.fetch_offset,
            aborted=fetched.aborted,
            check_crc=self._check_crcs,
        )
        if decoded.next_offset < fetched.next_offset:
            # The decoded records would exceed the limit of one decoding: fetch the rest again.
            self._fetcher.refetch(state, decoded.next_offset)
            last_epoch = UNKNOWN_EPOCH
        else:
            last_epoch = fetched.last_epoch
        self._fetcher.metrics.on_decoded(
            state, decoded.table.num_rows, len(fetched.records), decoded.next_offset
        )
        return Chunk(state, state.generation, decoded.table, decoded.next_offset, last_epoch)


def _rows_below(table: pa.Table, offset: int) -> int:
    """Number of rows before `offset`. Not by to_numpy(): its first call imports pandas, and the
    iterator stands still for that second.
    """
    offsets = table.column("offset")
    return bisect_left(range(table.num_rows), offset, key=lambda row: offsets[row].as_py())


def _pass(chunk: Chunk, taken: list[Chunk]) -> None:
    """Skip a chunk without rows (markers, aborted records): the partition's previous chunk, or if
    there is none the position itself, is moved past it.
    """
    for number, before in enumerate(reversed(taken), 1):
        if before.state is chunk.state:
            taken[-number] = before._replace(
                next_offset=chunk.next_offset, last_epoch=chunk.last_epoch
            )
            return
    chunk.hand_out()


def _batch_by_batch(fetched: FetchedRecords) -> list[FetchedRecords]:
    """Split into one piece for each batch; [] if there is no complete batch."""
    records, pieces = fetched.records, []
    aborted = fetched.aborted
    if aborted is not None and not isinstance(aborted, AbortedProducers):
        aborted = AbortedProducers(aborted)
    offset = fetched.fetch_offset
    for position, header in walk_batches(records):
        following = max(offset, header.next_offset)
        pieces.append(
            replace(
                fetched,
                records=records[position : position + header.size],
                fetch_offset=offset,
                next_offset=following,
                last_epoch=header.leader_epoch,
                aborted=aborted,
            )
        )
        offset = following
    return pieces


def _cut(fetched: FetchedRecords, max_bytes: int) -> tuple[FetchedRecords, FetchedRecords | None]:
    """Split off the first batches, at least one and about `max_bytes`; return the others, if any.

    Answers with aborted transactions are not split: they are decoded from the first batch on.
    """
    records = fetched.records
    if len(records) <= max_bytes or fetched.aborted:
        return fetched, None
    end = 0
    next_offset, epoch = fetched.fetch_offset, UNKNOWN_EPOCH
    for position, header in walk_batches(records):
        end = position + header.size
        next_offset, epoch = max(next_offset, header.next_offset), header.leader_epoch
        if end >= max_bytes:
            break
    else:
        return fetched, None  # all batches are smaller, or one is damaged: decoding reports it
    if end >= len(records) or next_offset >= fetched.next_offset:
        return fetched, None
    return (
        replace(fetched, records=records[:end], next_offset=next_offset, last_epoch=epoch),
        replace(fetched, records=records[end:], fetch_offset=next_offset),
    )


def records_of(chunk: Chunk) -> Iterator[ConsumerRecord]:
    """Yield records; the position moves with each, and a seek ends the iteration."""
    columns: Any = chunk.table
    headers: Any = columns.column("headers")
    any_headers = bool(pc.max(pc.list_value_length(headers)).as_py())
    rows = zip(
        columns.column("offset").to_pylist(),
        columns.column("timestamp").cast(pa.int64()).to_pylist(),
        columns.column("key").to_pylist(),
        columns.column("value").to_pylist(),
        # Lists of structs are slow to convert, and most records have none.
        headers.to_pylist() if any_headers else repeat(None, columns.num_rows),
        strict=True,
    )
    state = chunk.state
    generation = chunk.generation
    topic, partition = state.topic_partition
    state.position_epoch = UNKNOWN_EPOCH
    for offset, timestamp, key, value, pairs in rows:
        if state.generation != generation:
            return
        state.position = offset + 1
        named = [(pair["key"], pair["value"]) for pair in pairs] if pairs else []
        yield ConsumerRecord(topic, partition, offset, timestamp, key, value, named)
    if chunk.is_current:
        chunk.hand_out()

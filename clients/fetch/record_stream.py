"""Fetched answers turned into tables, and tables cut to what one poll may return.

What always holds:
    A chunk is of one partition and of one generation of it; a chunk from before a seek, or of a
    partition that was revoked, is never handed out.
    Positions move when records are handed out, not when they are decoded.

Not here: waiting (consumer), fetching (fetcher).
"""

from __future__ import annotations

import logging
import time
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
"""Decoded at a time while the kernels are not loaded: 12 ms of records of 100 bytes."""

PLAIN_SECONDS: Final = 0.1
"""How long one poll decodes plainly before it hands out what it has."""


class ConsumerRecord(NamedTuple):
    """One record. timestamp: milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Chunk(NamedTuple):
    """Decoded records of one partition. next_offset: the position after them.

    last_epoch: the leader epoch of the record before it, as far as it is known.
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
        """The first `count` rows, and the others."""
        after = self.table.column("offset")[count].as_py()
        first = self.table.slice(0, count)
        return (
            self._replace(table=first, next_offset=after, last_epoch=UNKNOWN_EPOCH),
            self._replace(table=self.table.slice(count)),
        )

    def hand_out(self) -> None:
        """The position is behind it now."""
        self.state.position = self.next_offset
        self.state.position_epoch = self.last_epoch


class RecordStream:
    """Used by the consumer's thread only."""

    def __init__(
        self, fetcher: Fetcher, *, check_crcs: bool, on_corrupt_record: str = RAISE
    ) -> None:
        """Raises InvalidConfig: `on_corrupt_record` is neither RAISE nor SKIP."""
        if on_corrupt_record not in (RAISE, SKIP):
            raise InvalidConfig(
                f"on_corrupt_record is {RAISE!r} or {SKIP!r}, got {on_corrupt_record!r}"
            )
        self._skips = on_corrupt_record == SKIP
        self._fetcher = fetcher
        self._check_crcs = check_crcs
        self._chunks: list[Chunk] = []
        self._undecoded: list[FetchedRecords] = []

    def take(self, max_records: int | None) -> list[Chunk]:
        """What is there now, at most `max_records` rows of it.

        Raises:
            KafkaError: a batch is damaged. The position stays in front of it; with
                on_corrupt_record="skip" it is counted, logged, and left out instead.
        """
        taken: list[Chunk] = []
        room = max_records
        kept, self._chunks = self._chunks, []
        for chunk in kept:
            if chunk.is_current and (chunk.state.paused or room == 0):
                self._chunks.append(chunk)
            elif chunk.is_current:
                room = self._add(chunk, taken, room)
        # Not what comes meanwhile: while one answer is decoded the next arrives, without end.
        answers = self._fetcher.ready_count() + len(self._undecoded)
        plain_until = time.monotonic() + PLAIN_SECONDS
        while answers and (room is None or room > 0):
            if taken and not kernels_ready() and time.monotonic() >= plain_until:
                break  # plain loops are slow: what there is now, and the rest in the next poll
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
                if len(pieces) > 1:  # the others are good
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
        """The oldest answer, or part of one, of a partition that is not paused."""
        self._undecoded = [one for one in self._undecoded if one.is_current]
        for number, one in enumerate(self._undecoded):
            if not one.state.paused:
                return self._undecoded.pop(number)
        return self._fetcher.take()

    def put_back(self, chunks: list[Chunk]) -> None:
        """Chunks that were taken, in order: what of them is not handed out yet."""
        rest = []
        for chunk in chunks:
            if not chunk.is_current:
                continue
            offsets: Any = chunk.table.column("offset").to_numpy()
            done = int(offsets.searchsorted(chunk.state.position))
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
            # More would come out of these bytes than one decoding may hold: fetch the rest again.
            self._fetcher.refetch(state, decoded.next_offset)
            last_epoch = UNKNOWN_EPOCH
        else:
            last_epoch = fetched.last_epoch
        self._fetcher.metrics.on_decoded(
            state, decoded.table.num_rows, len(fetched.records), decoded.next_offset
        )
        return Chunk(state, state.generation, decoded.table, decoded.next_offset, last_epoch)


def _pass(chunk: Chunk, taken: list[Chunk]) -> None:
    """One without rows, of markers or aborted records: the position is behind it once it is behind
    what was taken of the partition before it.
    """
    for number, before in enumerate(reversed(taken), 1):
        if before.state is chunk.state:
            taken[-number] = before._replace(
                next_offset=chunk.next_offset, last_epoch=chunk.last_epoch
            )
            return
    chunk.hand_out()


def _batch_by_batch(fetched: FetchedRecords) -> list[FetchedRecords]:
    """One piece for each batch; none if there is no whole batch."""
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
    """The first batches, about `max_bytes` of them and at least one; and the others, if any.

    Not cut where transactions were aborted: which ones is known from the first batch on only.
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
        return fetched, None  # all of them are less, or there is damage: decoding says what it is
    if end >= len(records) or next_offset >= fetched.next_offset:
        return fetched, None
    return (
        replace(fetched, records=records[:end], next_offset=next_offset, last_epoch=epoch),
        replace(fetched, records=records[end:], fetch_offset=next_offset),
    )


def records_of(chunk: Chunk) -> Iterator[ConsumerRecord]:
    """One record after another; the partition's position moves along, until a seek ends it."""
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

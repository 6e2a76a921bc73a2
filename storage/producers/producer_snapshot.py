"""Snapshot of the producer state at an offset, so that a restart need not read the whole log.

    00000000000000368769.snapshot   the state of the log below offset 368769

    version i16 = 1, crc u32, count i32, then per producer:
        producer_id i64, epoch i16, last_sequence i32 (-1: no batch), last_offset i64 (-1),
        offset_delta i32, timestamp i64 (of its last batch or marker), coordinator_epoch i32
        (-1: no marker), transaction_first_offset i64 (-1: none is open)
    count i32, then per earlier batch, oldest first:
        producer_id i64, last_sequence i32, last_offset i64, offset_delta i32, timestamp i64
    count i32, then per unstable transaction, in the order of markers:
        marker_offset i64, first_offset i64

The first part is Kafka's snapshot, version 1, with each producer's last batch. The others are ours:
the up to four batches before it, without which a retry of one of them after a restart would be
refused and written again under a new epoch (with the last one, if a marker after it has another
timestamp); and transactions that may be unstable, without which a restart would show their records
before their markers are committed. Kafka's readers stop after the first part; the CRC (CRC-32C of
everything after it) covers all, as they compute it to the end of the file. A file without the
others, as Kafka writes it, is read too.

Not fsynced when written: a snapshot that did not survive fails its CRC, and an older one, or the
log itself, is replayed instead.
Source: apache/kafka storage/.../internals/log/ProducerStateManager.java, ProducerSnapshot.json.
"""

from __future__ import annotations

from struct import Struct, error

from crc32c import crc32c

from ..disk.file_system import FileSystem, read_file
from .producer_state import ProducerEntry, ProducerState, UnstableTransaction, WrittenBatch

VERSION = 1

_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")
_EARLIER = Struct(">qiqiq")
_UNSTABLE = Struct(">qq")
_NO_TRANSACTION = -1
_NO_BATCH = WrittenBatch(last_sequence=-1, last_offset=-1, offset_delta=0, timestamp=-1)


def encode_snapshot(state: ProducerState) -> bytes:
    producers = bytearray(_COUNT.pack(len(state.entries)))
    earlier = bytearray()
    earlier_count = 0
    for producer_id, entry in state.entries.items():
        *before, last = entry.batches or (_NO_BATCH,)
        if last is not _NO_BATCH and last.timestamp != entry.timestamp:
            before.append(last)
        producers += _PRODUCER.pack(
            producer_id,
            entry.epoch,
            *last[:3],
            entry.timestamp,
            entry.coordinator_epoch,
            state.open_transactions.get(producer_id, _NO_TRANSACTION),
        )
        for batch in before:
            earlier += _EARLIER.pack(producer_id, *batch)
        earlier_count += len(before)
    unstable = state.unstable
    body = b"".join(
        (
            producers,
            _COUNT.pack(earlier_count),
            earlier,
            _COUNT.pack(len(unstable)),
            *(_UNSTABLE.pack(*transaction) for transaction in unstable),
        )
    )
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes, end_offset: int) -> ProducerState | None:
    """Decode a snapshot; None if these bytes are not a valid one."""
    try:
        version, crc = _HEADER.unpack_from(content)
        if version != VERSION or crc != crc32c(content[_HEADER.size :]):
            return None
        return _decode_body(content, end_offset)
    except error:
        return None


def _decode_body(content: bytes, end_offset: int) -> ProducerState:
    (count,) = _COUNT.unpack_from(content, _HEADER.size)
    position = _HEADER.size + _COUNT.size
    state = ProducerState(end_offset)
    last_batches: list[tuple[ProducerEntry, WrittenBatch]] = []
    transactions: list[tuple[int, int]] = []
    for _ in range(count):
        fields = _PRODUCER.unpack_from(content, position)
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = (
            fields
        )
        position += _PRODUCER.size
        if first_offset != _NO_TRANSACTION:
            transactions.append((first_offset, producer_id))
        entry = state.entries[producer_id] = ProducerEntry(
            epoch, coordinator_epoch=coordinator_epoch, timestamp=timestamp
        )
        last_batches.append((entry, WrittenBatch(sequence, offset, delta, timestamp)))
    # Kafka's file is in no order, and the state is in the order of the log.
    state.open_transactions = {
        producer_id: first_offset for first_offset, producer_id in sorted(transactions)
    }
    position = _decode_earlier(content, position, state)
    for entry, last in last_batches:
        known = entry.batches[-1].last_offset if entry.batches else _NO_BATCH.last_offset
        if last.last_offset > known:
            entry.batches.append(last)
    if position < len(content):
        (count,) = _COUNT.unpack_from(content, position)
        position += _COUNT.size
        state.unstable.extend(
            UnstableTransaction(*_UNSTABLE.unpack_from(content, position + number * _UNSTABLE.size))
            for number in range(count)
        )
    return state


def _decode_earlier(content: bytes, position: int, state: ProducerState) -> int:
    """Decode our second part, if it is there; returns the position after it."""
    if position == len(content):
        return position
    (count,) = _COUNT.unpack_from(content, position)
    position += _COUNT.size
    for _ in range(count):
        producer_id, *batch = _EARLIER.unpack_from(content, position)
        position += _EARLIER.size
        if producer_id in state.entries:
            state.entries[producer_id].batches.append(WrittenBatch(*batch))
    return position


def write_snapshot(file_system: FileSystem, path: str, state: ProducerState) -> None:
    """Write a snapshot. Not durable until fsynced. Raises OSError."""
    content = encode_snapshot(state)
    file = file_system.open(path, create=True)
    try:
        file.write_at(content, 0)
        file.truncate(len(content))
    finally:
        file.close()


def read_snapshot(file_system: FileSystem, path: str, end_offset: int) -> ProducerState | None:
    """Read the state of the log below `end_offset`; None if the file is absent or damaged."""
    try:
        return decode_snapshot(read_file(file_system, path), end_offset)
    except FileNotFoundError:
        return None

"""Transactions in one log, without their coordinator: batches, markers, and who reads them."""

from collections.abc import Iterator

from bradbury.protocol.records.end_transaction_marker import read_marker
from bradbury.protocol.records.record_batch import RecordBatchHeader, walk_batches
from bradbury.protocol.records.records import ControlType, encode_control_batch, encode_records
from bradbury.storage.log.aborted_transactions import find_aborted
from bradbury.storage.log.partition_log import AppendResult, PartitionLog
from bradbury.storage.producers.verification_guard import UNVERIFIED, VerificationGuard

from .logs import read_slice


def transactional_batch(
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = True,
    timestamp: int = 1000,
    key: bytes | None = None,
) -> bytearray:
    return encode_records(
        [(timestamp, key, b"value", ())] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def send(
    log: PartitionLog,
    sequence: int,
    count: int = 1,
    *,
    guard: VerificationGuard | None = UNVERIFIED,
    **batch: int,
) -> AppendResult:
    """Records of a transaction, as from a client whose coordinator has agreed."""
    return log.append_as_leader(
        transactional_batch(count, sequence=sequence, **batch),
        leader_epoch=0,
        now_ms=1000,
        guard=guard,
    )


def end(
    log: PartitionLog,
    *,
    is_commit: bool,
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
    timestamp: int = 1000,
) -> AppendResult:
    """A marker, as replication/partition/replica appends it."""
    log.local.producers.check_marker(
        producer_id, epoch, coordinator_epoch=coordinator_epoch, transaction_version=version
    )
    marker = encode_control_batch(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
    )
    return log.append_as_leader(marker, leader_epoch=0, now_ms=1000, opened=True, is_own=True)


def commit_all(log: PartitionLog) -> None:
    log.high_watermark = log.log_end_offset


def read_committed(log: PartitionLog, start: int = 0, *, max_bytes: int = 300) -> list[int]:
    """Offsets of the records that a consumer of committed transactions is given from `start` on.

    Slice by slice, with the aborted transactions that come with each, as Kafka's consumer uses
    them (CompletedFetch.java).
    """
    found: list[int] = []
    offset, stable = start, log.last_stable_offset
    while offset < stable:
        piece = log.read(offset, max_bytes=max_bytes, up_to=stable, min_one_batch=True)
        if not piece.size:
            break
        coming = sorted(
            find_aborted(log, offset, piece.next_offset),
            key=lambda each: each.first_offset,
        )
        aborted: set[int] = set()
        for header, batch in _batches(read_slice(piece)):
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None and not marker.is_commit:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += range(max(header.base_offset, offset), header.next_offset)
        offset = piece.next_offset
    return [each for each in found if each >= start]


def _batches(content: bytes) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
    view = memoryview(content)
    for position, header in walk_batches(view, strict=True):
        yield header, view[position : position + header.size]


def transaction_state(log: PartitionLog) -> tuple[object, ...]:
    """What two replicas with the same records must agree on."""
    producers = log.local.producers
    entries = {
        producer_id: (entry.epoch, entry.coordinator_epoch, entry.timestamp, list(entry.batches))
        for producer_id, entry in sorted(producers.entries.items())
    }
    aborted = [each for segment in log.segments for each in segment.transaction_index.all()]
    return entries, list(producers.open_transactions.items()), aborted

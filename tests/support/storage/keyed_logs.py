"""Logs of records with keys: made and read by aiokafka's codec, compacted by ours."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from bradbury.storage.cleaner.cleaner import Cleaning
from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.log.cleaner_manager import find_cleanable
from bradbury.storage.log.partition_log import PartitionLog

SEED = bytes(range(16))


class Found(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def keyed_batch(
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    codec: int = 0,
    timestamp: int = 1000,
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch, base offset 0; timestamps count up from `timestamp`."""
    builder = DefaultRecordBatchBuilder(
        2, codec, int(transactional), producer_id, producer_epoch, base_sequence, 1 << 24
    )
    for number, (key, value) in enumerate(records):
        assert builder.append(number, timestamp + number, key, value, []) is not None
    return bytearray(builder.build())


def append(log: PartitionLog, batch: bytearray, *, now_ms: int = 1000) -> int:
    """Append and commit; returns the base offset."""
    result = log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
    log.high_watermark = log.log_end_offset
    return result.base_offset


def stored_bytes(log: PartitionLog) -> bytes:
    """All segments' files, one after the other."""
    return b"".join(segment.file.read_at(segment.size, 0) for segment in log.segments)


def read_records(log: PartitionLog) -> list[Found]:
    """Every data record as an independent reader finds it, CRCs checked."""
    records = MemoryRecords(stored_bytes(log))
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        if not batch.is_control_batch:
            found += [Found(each.offset, each.timestamp, each.key, each.value) for each in batch]
    return found


def last_values(records: Iterable[Found]) -> dict[bytes | None, Found]:
    """What a reader of a compacted topic ends with: keys that were deleted are absent."""
    values = {record.key: record for record in records}
    return {key: record for key, record in values.items() if record.value is not None}


def clean(log: PartitionLog, *, now_ms: int = 2000, **config: Any) -> Cleaning | None:
    """Compact what can be compacted, as the cleaner's worker does; None if nothing can be."""
    found = find_cleanable(log, now_ms)
    if found.cleanable_bytes == 0:
        return None
    log.compaction.note_gaps(log.log_start_offset)  # as LogFlusher, which writes it down
    cleaning = log.compaction.begin_cleaning(
        CleanerConfig(**config),
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        now_ms=now_ms,
        seed=SEED,
    )
    cleaning.build_offset_map(lambda size: None)
    for group in cleaning.groups():
        log.compaction.replace_segments(
            cleaning, cleaning.clean_group(group, lambda size: None), now_ms
        )
    log.compaction.sync_names()
    log.compaction.complete_cleaning(cleaning)
    return cleaning

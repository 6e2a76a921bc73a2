"""What a producer's batch must be before a leader gives it offsets. Header only: O(1) in records.

Source: apache/kafka storage/.../internals/log/LogValidator.java; the codes are Kafka's, since
clients act on them.

Not here: whether the producer may write it now (producer_state), request-level checks.
"""

from __future__ import annotations

from ..protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    RecordListTooLarge,
)
from ..protocol.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    RecordBatchHeader,
    check_batch,
    stamp_max_timestamp,
)
from ..protocol.record_walk import walk_records
from .log_config import LogConfig

LONG_MAX = 2**63 - 1
LAST_CODEC = 4
_UNUSUAL = CONTROL_MASK | TRANSACTIONAL_MASK | TIMESTAMP_TYPE_MASK


def validate_batch(
    batch: bytearray | memoryview, config: LogConfig, now_ms: int
) -> tuple[RecordBatchHeader, int]:
    """Check a producer's batch, and stamp its timestamp type as the topic wants it.

    Returns:
        Its header as it was sent, and the max timestamp it has now.

    Raises:
        MessageTooLarge, RecordListTooLarge, CorruptMessage, InvalidRecord, InvalidTimestamp,
        InvalidTxnState. `batch` is then unchanged.
    Cost: about 1.5 us and the CRC; a second CRC when timestamps are stamped; a walk over the
    records only with message.timestamp.before.max.ms set.
    """
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(
            f"a batch of {len(batch)} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if len(batch) > config.segment_bytes:
        raise RecordListTooLarge(
            f"a batch of {len(batch)} bytes; segment.bytes is {config.segment_bytes}"
        )
    header = check_batch(batch)
    attributes = header.attributes
    if header.base_offset != 0:
        raise InvalidRecord(f"a producer's batch begins at 0, this one at {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"{header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if attributes & CODEC_MASK > LAST_CODEC:
        raise InvalidRecord(f"unknown compression codec {attributes & CODEC_MASK}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord("a batch with a producer id needs an epoch and a sequence")
    if attributes & _UNUSUAL:
        _check_unusual(header, config)
    if config.is_log_append_time:
        stamp_max_timestamp(batch, now_ms, log_append_time=True)
        return header, now_ms
    _check_create_time(batch, header, config, now_ms)
    if attributes & TIMESTAMP_TYPE_MASK:
        stamp_max_timestamp(batch, header.max_timestamp, log_append_time=False)
    return header, header.max_timestamp


def _check_unusual(header: RecordBatchHeader, config: LogConfig) -> None:
    if header.is_control:
        raise InvalidRecord("a producer may not write control batches")
    if header.is_transactional:
        raise InvalidTxnState("transactions are not available yet")
    if config.is_log_append_time or header.max_timestamp == NO_TIMESTAMP:
        raise InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")


def _check_create_time(
    batch: bytearray | memoryview, header: RecordBatchHeader, config: LogConfig, now_ms: int
) -> None:
    newest = header.max_timestamp
    if newest > now_ms + config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {newest} is more than {config.message_timestamp_after_max_ms} ms "
            f"after the broker's clock, {now_ms}"
        )
    if config.message_timestamp_before_max_ms < LONG_MAX:
        oldest_allowed = now_ms - config.message_timestamp_before_max_ms
        for _, timestamp in walk_records(batch, limit=config.decompressed_limit):
            if NO_TIMESTAMP != timestamp < oldest_allowed:
                raise InvalidTimestamp(
                    f"timestamp {timestamp} is more than {config.message_timestamp_before_max_ms}"
                    f" ms before the broker's clock, {now_ms}"
                )

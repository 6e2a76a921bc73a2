"""Validation of a producer's batch before a leader assigns offsets.

The header decides, in O(1), wherever it can: length, CRC, count, offsets, codec, producer, newest
timestamp. Then the records are walked through by a compiled loop, so that nothing is stored that
its readers cannot read (bradbury.validate.records). They are checked one by one only if a topic
setting applies to each record (opens_records): a key on a compacted topic,
message.timestamp.before.max.ms. Errors found there are reported per record (KIP-467).

Source: apache/kafka storage/.../internals/log/LogValidator.java; the codes are Kafka's, since
clients act on them.

Not here: whether the producer may write it now (producer_state), request-level checks, other codecs
and formats (batch_conversion).
"""

from __future__ import annotations

from typing import Final, NoReturn

from ...protocol.buffer import Buffer
from ...protocol.columns.record_check import check_records
from ...protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
)
from ...protocol.records.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    RecordBatchHeader,
    check_batch,
    read_header,
    stamp_max_timestamp,
)
from ...protocol.records.record_walk import scan_records
from ...protocol.records.records import records_of, wrap_int64
from ..log_config import LogConfig

LONG_MAX: Final = 2**63 - 1
LAST_CODEC: Final = 4
MOST_RECORD_ERRORS: Final = 1_000
MOST_BYTES_OPENED_HERE: Final = 256 * 1024
"""Most decompressed bytes of a batch that is validated on the event loop."""
MOST_BYTES_OPENED_FOR_A_MESSAGE: Final = 64 * 1024
"""Most bytes for which errors of single records are reported; a larger batch is refused as a whole,
so that the event loop is not blocked.
"""
_UNUSUAL: Final = CONTROL_MASK | TRANSACTIONAL_MASK | TIMESTAMP_TYPE_MASK
_MARKER: Final = CONTROL_MASK | TRANSACTIONAL_MASK


def validate_batch(
    batch: bytearray | memoryview,
    config: LogConfig,
    now_ms: int,
    is_own: bool = False,
    opened: bool = True,
) -> tuple[RecordBatchHeader, int]:
    """Check a producer's batch, and set its timestamp type to the topic's.

    `is_own`: written by a coordinator. It may have a producer and no sequence, or be a marker.
    `opened`: its records were validated before, or need not be.

    Returns:
        Its header as it was sent, and the max timestamp it has now.

    Raises:
        MessageTooLarge, RecordListTooLarge, CorruptMessage, InvalidRecord, InvalidTimestamp.
        `batch` is then unchanged.
        TooLarge: not `opened`, and its records are too large to be validated here: see open_batch.
    Cost: about 1.5 us and the CRC; a second CRC when timestamps are stamped. Not `opened`: 30 ns a
    record, and the decompression.
    """
    if len(batch) > config.max_message_bytes and not (is_own and _is_marker(batch)):
        raise MessageTooLarge(
            f"a batch of {len(batch)} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if len(batch) > config.segment_bytes:
        raise RecordListTooLarge(
            f"a batch of {len(batch)} bytes; segment.bytes is {config.segment_bytes}"
        )
    header = check_batch(batch)
    # Unpacked at once: reading one field by name takes three times as long as unpacking one.
    base_offset, _, _, _, _, attributes, last_delta, _, newest, producer_id, epoch, first, count = (
        header
    )
    if base_offset != 0:
        raise InvalidRecord(f"a producer's batch begins at 0, this one at {base_offset}")
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"{count} records and a last offset delta of {last_delta}")
    if attributes & CODEC_MASK > LAST_CODEC:
        raise InvalidRecord(f"unknown compression codec {attributes & CODEC_MASK}")
    if producer_id >= 0 and (epoch < 0 or (first < 0 and not is_own)):
        raise InvalidRecord("a batch with a producer id needs an epoch and a sequence")
    if attributes & _UNUSUAL:
        _check_unusual(header, config, is_own=is_own)
    if not opened and must_open(attributes & CODEC_MASK, config):
        check_records(batch, header, limit=MOST_BYTES_OPENED_HERE)
    if config.is_log_append_time:
        stamp_max_timestamp(batch, now_ms, log_append_time=True)
        return header, now_ms
    if newest > now_ms + config.message_timestamp_after_max_ms:
        _refuse_create_time(batch, header, config, now_ms)
    if attributes & TIMESTAMP_TYPE_MASK:
        stamp_max_timestamp(batch, newest, log_append_time=False)
    return header, newest


def _is_marker(batch: bytearray | memoryview) -> bool:
    """Whether a batch is a marker, which no limit may refuse: readers would wait for it forever."""
    return len(batch) >= HEADER_SIZE and read_header(batch).is_control


def _check_unusual(header: RecordBatchHeader, config: LogConfig, *, is_own: bool) -> None:
    if header.is_control and not is_own:
        raise InvalidRecord("a producer may not write control batches")
    if header.attributes & _MARKER and header.producer_id < 0:
        raise InvalidRecord("the records of a transaction have a producer id")
    if not header.attributes & TIMESTAMP_TYPE_MASK:
        return
    if config.is_log_append_time or header.max_timestamp == NO_TIMESTAMP:
        raise InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")


def _refuse_create_time(
    batch: bytearray | memoryview, header: RecordBatchHeader, config: LogConfig, now_ms: int
) -> NoReturn:
    if not header.codec and len(batch) <= MOST_BYTES_OPENED_FOR_A_MESSAGE:
        validate_records(batch, header, config, now_ms)  # raises, with the records to blame
    raise InvalidTimestamp(
        f"timestamp {header.max_timestamp} is more than "
        f"{config.message_timestamp_after_max_ms} ms after the broker's clock, {now_ms}"
    )


class BatchRules:
    """Requirements of a topic's settings on producers' batches, derived once, not for each batch.

    keeps_codec: batches are stored with the codec they came with.
    opens_records, opens_uncompressed, opens_compressed: see opens_records and must_open.
    """

    __slots__ = (
        "is_log_append_time",
        "keeps_codec",
        "opens_compressed",
        "opens_records",
        "opens_uncompressed",
    )

    def __init__(self, config: LogConfig) -> None:
        self.is_log_append_time = config.is_log_append_time
        self.keeps_codec = config.compression_type == "producer"
        self.opens_records = opens_records(config)
        self.opens_uncompressed = must_open(0, config)
        self.opens_compressed = must_open(LAST_CODEC, config)


def must_open(codec: int, config: LogConfig) -> bool:
    """Whether bradbury.validate.records requires validating the records of such a batch."""
    wanted = config.bradbury_validate_records
    return wanted == "all" or (codec != 0 and wanted == "compressed")


def open_batch(batch: bytearray, config: LogConfig) -> bytearray:
    """`batch`, after checking that consumers can read its records; unchanged. May run in a thread.

    Raises:
        CorruptMessage, InvalidRecord.
    """
    header = check_batch(batch)
    check_records(batch, header, limit=config.decompressed_limit)
    return batch


def opens_records(config: LogConfig) -> bool:
    """Whether the records must be checked one by one, as the header does not show whether the topic
    accepts them.
    """
    return config.message_timestamp_before_max_ms != LONG_MAX or (
        config.cleanup_policy != "delete" and "compact" in config.cleanup_policies
    )


def validate_records(
    batch: Buffer, header: RecordBatchHeader, config: LogConfig, now_ms: int
) -> int:
    """Check each record of a batch that passed validate_batch; returns the max timestamp.

    Raises:
        InvalidRecord: a record without a key on a compacted topic, or malformed.
        InvalidTimestamp: a record is too far from the broker's clock. Both list the records in
            `record_errors`, at most MOST_RECORD_ERRORS.
        CorruptMessage: the compressed block, or a varint, is malformed.
    Cost: the decompression and 2-4 us a record.
    """
    records = records_of(batch, header, decompress_limit=config.decompressed_limit)
    needs_key = "compact" in config.cleanup_policies
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    stamped = config.is_log_append_time
    base, greatest = header.base_timestamp, NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    first: type[InvalidRecord | InvalidTimestamp] = InvalidRecord
    for number, (delta, has_key) in enumerate(scan_records(records, header.record_count)):
        timestamp = wrap_int64(base + delta)
        greatest = max(greatest, timestamp)
        if needs_key and not has_key:
            errors.append((number, "a record of a compacted topic needs a key"))
        elif not stamped and timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest:
            if not errors:
                first = InvalidTimestamp
            errors.append((number, f"timestamp {timestamp} is not in [{oldest}, {newest}]"))
        if len(errors) == MOST_RECORD_ERRORS:
            break
    if errors:
        error = first(f"{len(errors)} records were rejected; record {errors[0][0]}: {errors[0][1]}")
        error.record_errors = tuple(errors)
        raise error
    return greatest

"""Conversion of a producer's records to the format and codec of the topic's log.

A leader stores other bytes than it received in two cases: the topic's compression.type is another
codec than the producer's, and message sets of magic 0 and 1, which are converted to one batch of
magic 2. In both cases the records are decompressed, so each of them is checked, too.

Takes milliseconds (decompression, a walk in plain Python, compression) and memory (the records
decompressed, bounded by LogConfig.decompressed_limit), so it belongs in a thread; the caller keeps
the order of the batches. Pure: the bytes come in and the new ones go out.
Source: apache/kafka storage/.../internals/log/LogValidator.java, BrokerCompressionType.java.
"""

from __future__ import annotations

from ...protocol.buffer import Buffer
from ...protocol.records.compression import CompressionType, compress
from ...protocol.records.legacy_messages import convert_up
from ...protocol.records.record_batch import (
    CODEC_MASK,
    RecordBatchHeader,
    build_batch,
    read_header,
    stamp_max_timestamp,
)
from ...protocol.records.records import records_of
from ..log_config import LogConfig
from .batch_validation import validate_batch, validate_records

MESSAGE_SET_LIMIT = 16 * 1024**2
"""Most bytes that one compressed message set may decompress to; max.message.bytes of a topic may
raise it.
"""


def target_codec(codec: int, config: LogConfig) -> int:
    """Codec in which the log stores a batch that came with `codec`."""
    name = config.compression_type
    if name == "producer":
        return codec
    if name == "uncompressed":
        return CompressionType.NONE
    return CompressionType.from_name(name)


def convert_batch(batch: bytearray, config: LogConfig, now_ms: int) -> bytearray:
    """Convert a batch of magic 2, checked record by record, to the topic's codec.

    `batch` itself may be changed and returned.

    Raises:
        As validate_batch and validate_records.
    """
    header, max_timestamp = validate_batch(batch, config, now_ms)
    greatest = validate_records(batch, header, config, now_ms)
    if greatest != max_timestamp:
        # Also clears the LogAppendTime: the append, which comes later, checks and sets it.
        stamp_max_timestamp(batch, greatest, log_append_time=False)
    codec = target_codec(header.codec, config)
    if codec == header.codec:
        return batch
    records = records_of(batch, header, decompress_limit=config.decompressed_limit)
    return _rebuild(read_header(batch), records, codec, config)


def convert_message_set(data: Buffer, config: LogConfig, now_ms: int) -> bytearray:
    """Convert a message set of magic 0 or 1 to one batch of magic 2, checked, in the topic's codec.

    Raises:
        As convert_up and validate_records.
    """
    limit = min(config.decompressed_limit, max(MESSAGE_SET_LIMIT, config.max_message_bytes))
    batch, codec = convert_up(data, limit=limit, max_message_bytes=config.max_message_bytes)
    header = read_header(batch)
    validate_records(batch, header, config, now_ms)
    codec = target_codec(codec, config)
    if codec == CompressionType.NONE:
        return batch
    return _rebuild(header, records_of(batch, header, decompress_limit=limit), codec, config)


def _rebuild(
    header: RecordBatchHeader, records: Buffer, codec: int, config: LogConfig
) -> bytearray:
    level = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }.get(CompressionType(codec))
    return build_batch(
        compress(codec, records, level),
        record_count=header.record_count,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )

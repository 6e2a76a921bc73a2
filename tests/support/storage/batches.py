"""Record batches as a client makes them: by kafka-python's builder, not by our own code."""

from collections.abc import Sequence

from kafka.record import MemoryRecordsBuilder


def make_batch(
    count: int = 1,
    *,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = None,
    value: bytes = b"value",
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch, base offset 0; all records at 1000 ms unless `timestamps` are given."""
    builder = MemoryRecordsBuilder(
        2,
        codec,
        1 << 24,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    for timestamp in timestamps or [1000] * count:
        builder.append(timestamp, key, value)
    builder.close()
    return bytearray(builder.buffer())

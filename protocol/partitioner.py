"""Choice of a record's partition: by key as in every Kafka client, without a key sticky.

    murmur2(key), made positive, modulo the partitions  records with a key
    String.hashCode(group id), positive, modulo         a group's partition of __consumer_offsets
    StickyPartitioner                                   records without key (KIP-480, KIP-794)

Source: apache/kafka clients/.../common/utils/Utils.java, .../internals/BuiltInPartitioner.java.

Not here: a whole column of keys at once (columns.partition_rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The unsigned 32 bits of Kafka's murmur2. Cost: about 2 us for 16 bytes."""
    length = len(data)
    value = _SEED ^ length
    for position in range(0, length & ~3, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    rest = data[length & ~3 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def to_positive(value: int) -> int:
    """The hash without its sign bit: Kafka's toPositive, which is not an absolute value."""
    return value & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Partition of `key` by the default partitioner of Kafka's clients."""
    return to_positive(murmur2(key)) % partition_count


def java_hash_code(text: str) -> int:
    """`String.hashCode()`, signed: over UTF-16 units, a character beyond U+FFFF being two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = value * 31 + (units[position] << 8 | units[position + 1]) & _MASK
    return value - (1 << 32) if value >> 31 else value


def partition_for_group(group_id: str, partition_count: int) -> int:
    """The partition of __consumer_offsets that coordinates `group_id` (GroupCoordinatorService)."""
    value = java_hash_code(group_id)
    return (0 if value == -(2**31) else abs(value)) % partition_count


@dataclass(slots=True)
class StickyPartitioner:
    """Partitions for records without a key: one partition until it has about `batch_size` bytes.

    Soft state: without it only another run begins. Unlike a switch after each batch (KIP-480), a
    switch by bytes does not favour slow brokers (KIP-794). Random numbers are passed in.
    """

    batch_size: int
    partition: int = -1
    sent_bytes: int = 0

    def assign(self, size: int, available: Sequence[int], *, random: int) -> int:
        """The partition for the next `size` bytes of records, which stay together.

        Args:
            size: bytes the records will take in a batch, estimated.
            available: partitions with a leader; all partitions if none has one. Not empty.
            random: any number >= 0; used only when a run begins.
        """
        if self.sent_bytes >= self.batch_size or self.partition not in available:
            self._switch(available, random)
        self.sent_bytes += size
        return self.partition

    def assign_all(
        self, row_count: int, size: int, available: Sequence[int], *, random: int
    ) -> list[tuple[int, int]]:
        """Runs of (partition, rows) for `row_count` rows of `size` bytes in all, in row order.

        `random` selects the partition of the first new run; further runs take the next ones.
        """
        runs: list[tuple[int, int]] = []
        row_size = max(1, size // row_count) if row_count else 1
        while row_count:
            if self.sent_bytes >= self.batch_size or self.partition not in available:
                self._switch(available, random)
                random += 1
            room = max(1, -((self.sent_bytes - self.batch_size) // row_size))
            rows = min(row_count, room)
            runs.append((self.partition, rows))
            self.sent_bytes += rows * row_size
            row_count -= rows
        return runs

    def _switch(self, available: Sequence[int], random: int) -> None:
        self.partition = available[random % len(available)]
        self.sent_bytes = 0

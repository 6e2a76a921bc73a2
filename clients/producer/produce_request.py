"""The Produce request as a list of buffers, so that record batches go to the socket uncopied.

    transactional_id nullable string, acks i16, timeout_ms i32,
    [topic name, [index i32, records bytes, tags (v9+)], tags (v9+)], tags (v9+)

Source: ProduceRequest.json. Oracle in the tests: messages/produce.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.codec import write_uvarint
from ...protocol.messages.produce import ProduceRequest

MIN_VERSION: Final = 3
"""Lowest version with record batches; brokers refuse message sets since Kafka 4.0."""

MAX_VERSION: Final = 12
"""Highest version that has topic names; from 13 on requests have topic ids."""

IMPLICIT_VERSION: Final = 12
"""Version from which the broker adds partitions to the transaction (transaction.version 2)."""


def encode_produce(
    version: int,
    topics: Mapping[str, Sequence[tuple[int, Buffer]]],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body's buffers, in order; (partition, one batch) pairs by topic."""
    flexible = version >= ProduceRequest.FLEXIBLE
    buffers: list[Buffer] = []
    out = bytearray()
    if transactional_id is None:
        out += b"\x00" if flexible else b"\xff\xff"
    else:
        _write_text(transactional_id, out, flexible=flexible)
    out += acks.to_bytes(2, "big", signed=True)
    out += timeout_ms.to_bytes(4, "big")
    _write_length(len(topics), out, flexible=flexible)
    for name, partitions in topics.items():
        _write_text(name, out, flexible=flexible)
        _write_length(len(partitions), out, flexible=flexible)
        for index, records in partitions:
            out += index.to_bytes(4, "big")
            _write_length(len(records), out, flexible=flexible)
            buffers += [out, records]
            out = bytearray(b"\x00" if flexible else b"")
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    buffers.append(out)
    return buffers


def _write_length(length: int, out: bytearray, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(length + 1, out)
    else:
        out += length.to_bytes(4, "big")


def _write_text(text: str, out: bytearray, *, flexible: bool) -> None:
    encoded = text.encode()
    if flexible:
        write_uvarint(len(encoded) + 1, out)
    else:
        out += len(encoded).to_bytes(2, "big")
    out += encoded

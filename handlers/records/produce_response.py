"""The most frequent Produce response, written by hand: one partition, and its batch is stored.

    [topic name (v0-12) or id (v13+),
     [index i32, error i16 = 0, base_offset i64, log_append_time i64 (v2+),
      log_start_offset i64 (v5+),
      record_errors [] and error_message null (v8+), tags (v9+)],
     tags (v9+)],
    throttle i32 = 0 (v1+), tags (v9+)

Everything else is a messages.produce.ProduceResponse, whose objects and generic writer cost five
times as much. Source: ProduceResponse.json. Oracle in tests: messages/produce.py.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ...protocol.messages.produce import ProduceResponse
from ...protocol.varint import encode_uvarint
from ..ports.produce_answer import ProducedBatch

FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_FLEXIBLE: Final = ProduceResponse.FLEXIBLE
_ONE: Final = b"\0\0\0\1"
_FLEXIBLE: Final = Struct(">bihqqqb8x")
"""2: one partition; its fields; 1: no record errors; no message, tags twice, throttle, tags."""
_V0: Final = Struct(">ihq")
_V2: Final = Struct(">ihqq")
_V5: Final = Struct(">ihqqq")


def write_produced_batch(version: int, stored: ProducedBatch) -> bytes:
    """Body of the response."""
    topic, topic_id, partition, base_offset, log_append_time_ms, log_start_offset = stored
    if version >= _FIRST_FLEXIBLE:
        if version >= FIRST_WITH_TOPIC_IDS:
            name = b"\2" + topic_id.bytes
        else:
            name = topic.encode()
            name = b"\2" + encode_uvarint(len(name) + 1) + name
        return name + _FLEXIBLE.pack(
            2, partition, 0, base_offset, log_append_time_ms, log_start_offset, 1
        )
    name = topic.encode()
    body = _ONE + len(name).to_bytes(2, "big") + name + _ONE
    if version >= 5:
        body += _V5.pack(partition, 0, base_offset, log_append_time_ms, log_start_offset)
        if version >= 8:
            body += b"\0\0\0\0\xff\xff"
    elif version >= 2:
        body += _V2.pack(partition, 0, base_offset, log_append_time_ms)
    else:
        body += _V0.pack(partition, 0, base_offset)
    return body + b"\0\0\0\0" if version >= 1 else body

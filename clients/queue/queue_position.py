"""Consumed items of a queue, as a committed offset and its metadata.

    offset     the first record that has an item which is not consumed
    metadata   {"e": epoch, "r": [[from, to], ...], "p": {record: [[first, last], ...]},
                "d": [[record, first, last, deliveries], ...]}     records relative to the offset

r are records, p parts of records, that are consumed nevertheless; d are items that were delivered
before. Long metadata is compressed. A broker accepts at most 4,096 bytes
(offset.metadata.max.bytes): what does not fit is left out from the back, delivery counts first.
Items whose consumption is left out are delivered again if the actor dies: more than once, never
less.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MAX_METADATA: Final = 4_096
COMPRESSED: Final = "z:"

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """Consumed position. Offsets are absolute; intervals exclude their end.

    epoch: that of the actor that wrote it.
    """

    epoch: int = 0
    offset: int = 0
    records: Sequence[Interval] = ()
    parts: Mapping[int, Sequence[Interval]] = field(default_factory=dict)
    deliveries: Sequence[tuple[int, int, int, int]] = ()


def encode_position(position: QueuePosition, most: int = MAX_METADATA) -> str:
    """The metadata, at most `most` characters."""
    records, deliveries = list(position.records), list(position.deliveries)
    parts = list(position.parts.items())
    while True:
        text = _text(position, records, parts, deliveries)
        if len(text) <= most:
            return text
        packed = COMPRESSED + base64.b64encode(zlib.compress(text.encode(), 6)).decode()
        if len(packed) <= most:
            return packed
        longest: list[Any] = deliveries or (records if len(records) > len(parts) else parts)
        del longest[len(longest) // 2 :]


def _text(
    position: QueuePosition,
    records: Sequence[Interval],
    parts: Sequence[tuple[int, Sequence[Interval]]],
    deliveries: Sequence[tuple[int, int, int, int]],
) -> str:
    start = position.offset
    content: dict[str, Any] = {"e": position.epoch}
    if records:
        content["r"] = [[first - start, last - start] for first, last in records]
    if parts:
        content["p"] = {str(offset - start): list(intervals) for offset, intervals in parts}
    if deliveries:
        content["d"] = [[offset - start, *rest] for offset, *rest in deliveries]
    return json.dumps(content, separators=(",", ":"))


def decode_position(offset: int, metadata: str) -> QueuePosition:
    """Decode a position; metadata of other programs (e.g. an offset reset) is ignored."""
    try:
        if metadata.startswith(COMPRESSED):
            packed = base64.b64decode(metadata[len(COMPRESSED) :], validate=True)
            metadata = zlib.decompress(packed).decode()
        content = json.loads(metadata)
        return QueuePosition(
            epoch=int(content["e"]),
            offset=offset,
            records=[(first + offset, last + offset) for first, last in content.get("r", ())],
            parts={
                int(record) + offset: [(first, last) for first, last in intervals]
                for record, intervals in content.get("p", {}).items()
            },
            deliveries=[
                (record + offset, first, last, count)
                for record, first, last, count in content.get("d", ())
            ],
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return QueuePosition(offset=offset)

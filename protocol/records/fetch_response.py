"""The Fetch response, written by hand around file slices that are never read into memory.

    throttle i32 (v1+), error i16 + session_id i32 (v7+),
    [topic name (v0-12) or id (v13+),
     [index i32, error i16, high_watermark i64, last_stable_offset i64 (v4+),
      log_start_offset i64 (v5+), aborted nullable [producer_id i64, first_offset i64] (v4+),
      preferred_read_replica i32 (v11+),
      records, tags (v12+): 0 diverging {epoch i32, end_offset i64}, 1 current_leader {i32, i32}]],
    tags (v12+): 0 node_endpoints (v16+)

Records are never null: librdkafka fails on a negative length. All sizes are written before the
data, so a slice must not shrink while it is sent; log files only grow or are replaced whole.
Source: FetchResponse.json. Oracle in tests: messages/fetch.py, itself checked against kio.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ..buffer import Buffer
from ..codec import write_uvarint

FIRST_FLEXIBLE: Final = 12
_V0: Final = Struct(">ihq")
_V4: Final = Struct(">ihqq")
_V5: Final = Struct(">ihqqq")
_I32: Final = Struct(">i")
_HEAD: Final = Struct(">ihi")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">BBiqB")
_LEADER: Final = Struct(">BBiiB")


IN_MEMORY: Final = (bytes, bytearray, memoryview)
"""Types of records in memory; a union type would be built at every use."""


class OpenFile(Protocol):
    def fileno(self) -> int: ...


class FileSlice(Protocol):
    """Bytes [position, position + size) of an open file; `file` is None when size is 0."""

    @property
    def file(self) -> OpenFile | None: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...


class FetchedPartition(NamedTuple):
    """One partition of the answer. `records`: bytes in memory or a slice of a file."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Buffer | FileSlice = b""
    preferred_read_replica: int = -1
    diverging: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether nothing was read: the reader must truncate, or fetch from another replica."""
        return self.diverging is not None or self.preferred_read_replica >= 0

    @property
    def records_size(self) -> int:
        """Size of the records in bytes."""
        records = self.records
        return len(records) if isinstance(records, IN_MEMORY) else records.size


class FetchedTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: Sequence[FetchedPartition]


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


Chunk = bytearray | bytes | memoryview | FileSlice


def write_fetch_response(
    out: bytearray,
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Chunk]:
    """Continue the begun frame `out`; returns it and the slices, in order, with the frame's size.

    Cost: about 1 us per partition.
    """
    chunks: list[Chunk] = [out]
    total = 0
    first = out
    if version >= 7:
        out += _HEAD.pack(throttle_time_ms, error_code, session_id)
    elif version >= 1:
        out += _I32.pack(throttle_time_ms)
    flexible = version >= FIRST_FLEXIBLE
    _write_count(out, len(topics), flexible=flexible)
    for topic in topics:
        if version >= 13:
            out += topic.topic_id.bytes
        else:
            _write_name(out, topic.name, flexible=flexible)
        _write_count(out, len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            size = _write_partition(out, partition, version)
            if size:
                # Records in memory are never bytearrays, so all bytearrays in `chunks` are ours.
                total += size + len(out)
                chunks.append(partition.records)
                out = bytearray()
                chunks.append(out)
            if flexible:
                diverging, leader = partition[-2:]
                if diverging is None and leader is None:
                    out.append(0)
                else:
                    _write_partition_tags(out, diverging, leader)
        if flexible:
            out.append(0)
    if flexible:
        _write_endpoints(out, endpoints if version >= 16 else ())
    _I32.pack_into(first, 0, total + len(out) - 4)
    if not out:
        chunks.pop()
    return chunks


def _write_partition(out: bytearray, fetched: FetchedPartition, version: int) -> int:
    """Write all but the records and what follows them; returns their size."""
    (
        partition,
        error_code,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        records,
        nearest,
        *_,
    ) = fetched
    size = len(records) if isinstance(records, IN_MEMORY) else records.size
    flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        out += _V5.pack(partition, error_code, high_watermark, last_stable, log_start)
    elif version == 4:
        out += _V4.pack(partition, error_code, high_watermark, last_stable)
    else:
        out += _V0.pack(partition, error_code, high_watermark)
    if version >= 4:
        if aborted is None:
            out += b"\0" if flexible else b"\xff\xff\xff\xff"
        else:
            _write_count(out, len(aborted), flexible=flexible)
            for producer_id, first_offset in aborted:
                out += _ABORTED.pack(producer_id, first_offset)
                if flexible:
                    out.append(0)
        if version >= 11:
            out += _I32.pack(nearest)
    _write_count(out, size, flexible=flexible)
    return size


def _write_partition_tags(
    out: bytearray, diverging: tuple[int, int] | None, leader: tuple[int, int] | None
) -> None:
    out.append(int(diverging is not None) + int(leader is not None))
    if diverging is not None:
        out += _DIVERGING.pack(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER.pack(1, 9, *leader, 0)


def _write_endpoints(out: bytearray, endpoints: Sequence[Endpoint]) -> None:
    if not endpoints:
        out.append(0)
        return
    body = bytearray()
    write_uvarint(len(endpoints) + 1, body)
    for endpoint in endpoints:
        body += _I32.pack(endpoint.node_id)
        _write_name(body, endpoint.host, flexible=True)
        body += _I32.pack(endpoint.port)
        if endpoint.rack is None:
            body.append(0)
        else:
            _write_name(body, endpoint.rack, flexible=True)
        body.append(0)
    out += b"\x01\x00"
    write_uvarint(len(body), out)
    out += body


def _write_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if not flexible:
        out += _I32.pack(count)
    elif count < 127:
        out.append(count + 1)
    elif count < 16383:
        count += 1
        out.append(count & 0x7F | 0x80)
        out.append(count >> 7)
    else:
        write_uvarint(count + 1, out)


def _write_name(out: bytearray, name: str, *, flexible: bool) -> None:
    text = name.encode()
    if flexible:
        write_uvarint(len(text) + 1, out)
    else:
        out += len(text).to_bytes(2, "big")
    out += text

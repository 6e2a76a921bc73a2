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
from typing import NamedTuple, Protocol
from uuid import UUID

from ..buffer import Buffer
from ..codec import write_uvarint

FIRST_FLEXIBLE = 12
_V0 = Struct(">ihq")
_V4 = Struct(">ihqq")
_V5 = Struct(">ihqqq")
_I32 = Struct(">i")
_ABORTED = Struct(">qq")
_DIVERGING = Struct(">BBiqB")
_LEADER = Struct(">BBiiB")


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
        """Whether nothing was read, as the reader must truncate or fetch from another replica
        first.
        """
        return self.diverging is not None or self.preferred_read_replica >= 0

    @property
    def records_size(self) -> int:
        """Size of the records in bytes."""
        records = self.records
        if isinstance(records, bytes | bytearray | memoryview):
            return len(records)
        return records.size


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
    if version >= 1:
        out += _I32.pack(throttle_time_ms)
    if version >= 7:
        out += error_code.to_bytes(2, "big", signed=True)
        out += _I32.pack(session_id)
    flexible = version >= FIRST_FLEXIBLE
    _write_count(out, len(topics), flexible=flexible)
    for topic in topics:
        if version >= 13:
            out += topic.topic_id.bytes
        else:
            _write_name(out, topic.name, flexible=flexible)
        _write_count(out, len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            _write_partition(out, partition, version)
            records, size = partition.records, partition.records_size
            _write_count(out, size, flexible=flexible)
            if size:
                # Record sets held in memory are never bytearrays, so those are all ours below.
                total += size
                chunks.append(records)
                out = bytearray()
                chunks.append(out)
            if flexible:
                _write_partition_tags(out, partition)
        if flexible:
            out.append(0)
    if flexible:
        _write_endpoints(out, endpoints if version >= 16 else ())
    for chunk in chunks:
        if isinstance(chunk, bytearray):
            total += len(chunk)
    first[:4] = _I32.pack(total - 4)
    if not out:
        chunks.pop()
    return chunks


def _write_partition(out: bytearray, partition: FetchedPartition, version: int) -> None:
    if version >= 5:
        out += _V5.pack(
            partition.partition,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    elif version == 4:
        out += _V4.pack(
            partition.partition,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
        )
    else:
        out += _V0.pack(partition.partition, partition.error_code, partition.high_watermark)
        return
    flexible = version >= FIRST_FLEXIBLE
    if partition.aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        _write_count(out, len(partition.aborted), flexible=flexible)
        for producer_id, first_offset in partition.aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= 11:
        out += _I32.pack(partition.preferred_read_replica)


def _write_partition_tags(out: bytearray, partition: FetchedPartition) -> None:
    diverging, leader = partition.diverging, partition.current_leader
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
    else:
        write_uvarint(count + 1, out)


def _write_name(out: bytearray, name: str, *, flexible: bool) -> None:
    text = name.encode()
    if flexible:
        write_uvarint(len(text) + 1, out)
    else:
        out += len(text).to_bytes(2, "big")
    out += text

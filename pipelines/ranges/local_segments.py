"""Reader of a broker's segment files on this machine, instead of fetching over a socket.

A range whose end is committed is in the files of the partition's leader.
Files are read if
    the leader's address is one of this machine's, and the log directory it reports exists here,
    belongs to the same cluster (meta.properties) and topic (partition.metadata), and is readable:
    the operating system decides who may read files;
    the range starts at the log start offset or after it.
Files are read as long as batches are valid and follow one another without a gap. From there on
records are fetched from brokers: for compacted logs, damage, deleted segments and, with
read_committed, transactions, as segment files do not show which ones were aborted.

Files are read, not mapped: if a mapped file is truncated, a process that accesses the missing part
is killed (SIGBUS), as it is for an unreadable sector. With `value_views`, which is off by default,
they are mapped. Mapped records are committed: a leader truncates those only after an unclean
election, or when an operator repairs a log. Files that retention or compaction deletes or replaces
stay intact while they are mapped.
Source of the formats: LogSegment, OffsetIndex, PartitionMetadataFile in apache/kafka.
"""

from __future__ import annotations

import logging
import mmap
import os
import socket
from base64 import urlsafe_b64decode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.cluster_client import ClusterClient
from ...clients.wire.offset_lookup import EARLIEST, LATEST, list_offsets
from ...protocol.columns.columns import DecodedBatches, decode_batches
from ...protocol.errors import ConnectionFailed, KafkaError
from ...protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ...protocol.records.record_batch import HEADER_SIZE, MAGIC, read_header, walk_batches
from ...protocol.topic_partition import TopicPartition
from .partition_range import PartitionRange

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
LOOKUP_TIMEOUT_MS: Final = 30_000


def local_directories(
    client: ClusterClient, ranges: Iterable[PartitionRange]
) -> dict[TopicPartition, Path]:
    """Directories of the partitions whose files may be read here; others are left out."""
    starts: dict[TopicPartition, int] = {}
    for one in ranges:
        starts[one.topic_partition] = min(one.start, starts.get(one.topic_partition, one.start))
    try:
        found = client.run(_directories(client, starts), LOOKUP_TIMEOUT_MS)
    except (KafkaError, ConnectionFailed) as error:
        logger.debug("not reading segment files: %s", error)
        return {}
    view = client.view
    return {
        key: directory
        for key, directory in found.items()
        if _is_of(directory, view.cluster_id, view.topics[key.topic].topic_id)
    }


def committed_ends(
    client: ClusterClient, keys: Iterable[TopicPartition], *, isolation_level: int
) -> dict[TopicPartition, int]:
    """Offsets up to which files may be read; records after them are not committed."""
    asked = dict.fromkeys(keys, LATEST)
    if not asked:
        return {}
    steps = list_offsets(client, asked, isolation_level=isolation_level)
    try:
        found = client.run(steps, LOOKUP_TIMEOUT_MS)
    except (KafkaError, ConnectionFailed) as error:
        logger.debug("not reading segment files: %s", error)
        return {}
    return {key: one.offset for key, one in found.items()}


def _directories(
    client: ClusterClient, starts: Mapping[TopicPartition, int]
) -> Steps[dict[TopicPartition, Path]]:
    for topic in {key.topic for key in starts}:
        yield from client.topic(topic)
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in sorted(starts):
        leader = client.view.leader(*key)
        if leader is not None and _is_here(leader.host):
            by_leader.setdefault(leader.node_id, []).append(key)
    if not by_leader:
        return {}
    first = yield from list_offsets(client, dict.fromkeys(starts, EARLIEST))
    found: dict[TopicPartition, Path] = {}
    for node_id, keys in by_leader.items():
        topics: dict[str, list[int]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(key.partition)
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=n) for name, n in topics.items()]
        )
        address = client.view.brokers[node_id].address
        response = yield from wait(client.send(address, request, DescribeLogDirsResponse))
        for result in response.results:
            for described in result.topics:
                for one in described.partitions:
                    key = TopicPartition(described.name, one.partition_index)
                    if not (result.error_code or one.is_future_key):
                        found[key] = Path(result.log_dir) / f"{key.topic}-{key.partition}"
    return {
        key: path
        for key, path in found.items()
        if key in starts and 0 <= first[key].offset <= starts[key]
    }


def _is_here(host: str) -> bool:
    """Whether a host is this machine: then a socket can be bound to its address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _is_of(directory: Path, cluster_id: str | None, topic_id: UUID) -> bool:
    try:
        identity = (directory.parent / "meta.properties").read_text(encoding="utf-8")
        metadata = (directory / "partition.metadata").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    said = dict(line.partition(": ")[::2] for line in metadata.splitlines())
    with suppress(ValueError):
        return (
            f"cluster.id={cluster_id}" in identity.splitlines()
            and UUID(bytes=urlsafe_b64decode(said.get("topic_id", "") + "==")) == topic_id
        )
    return False


def read_segments(
    directory: Path,
    wanted: PartitionRange,
    *,
    read_committed: bool,
    check_crcs: bool,
    value_views: bool = False,
) -> Iterator[DecodedBatches]:
    """Records of `wanted` from its start on, as far as segment files suffice; maybe none.

    value_views: values that are not compressed are views of the mapped files, which stay mapped
        while any view exists.
    """
    position = wanted.start
    try:
        while position < wanted.end:
            base_offset = _segment_of(directory, position)
            if base_offset is None:
                return
            before = position
            with open(directory / f"{base_offset:020}.log", "rb", buffering=0) as file:
                begin = _begin(directory, file.fileno(), base_offset, position)
                reader = _SegmentFile(
                    file.fileno(), begin, wanted, read_committed=read_committed, mapped=value_views
                )
                for decoded in reader.read(position, check_crcs=check_crcs):
                    yield decoded
                    position = max(position, decoded.next_offset)
                if reader.is_doubtful or position == before:
                    return
    except (OSError, KafkaError) as error:
        logger.debug("%s: fetching from the broker from %d on: %s", directory, position, error)


def _segment_of(directory: Path, offset: int) -> int | None:
    """Base offset of the segment that contains this offset, or of the last one before it."""
    names = (entry.name for entry in os.scandir(directory))
    bases = sorted(
        int(stem)
        for stem, dot, end in (name.partition(".") for name in names)
        if end == "log" and stem.isdecimal()
    )
    number = bisect_right(bases, offset)
    return bases[number - 1] if number else None


def _begin(directory: Path, file: int, base_offset: int, offset: int) -> int:
    """File position from which to read for `offset`: from the index, or 0 if it is invalid."""
    try:
        content = (directory / f"{base_offset:020}.index").read_bytes()
    except OSError:
        return 0
    entries: Any = np.frombuffer(content[: len(content) // 8 * 8], ">u4").reshape(-1, 2)
    ends = np.flatnonzero(np.diff(entries[:, 1].astype(np.int64)) <= 0)  # preallocated entries
    offsets = entries[: ends[0] + 1 if len(ends) else len(entries), 0]
    number = int(np.searchsorted(offsets, offset - base_offset, side="right")) - 1
    if number < 0:
        return 0
    last_offset, position = base_offset + int(offsets[number]), int(entries[number, 1])
    data = os.pread(file, HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return 0
    header = read_header(data)
    return position if header.magic == MAGIC and header.last_offset == last_offset else 0


class _SegmentFile:
    """Reader of one segment from a position on. is_doubtful: the rest must be fetched."""

    def __init__(
        self,
        file: int,
        begin: int,
        wanted: PartitionRange,
        *,
        read_committed: bool,
        mapped: bool,
    ) -> None:
        self._file = file
        self._mapped: memoryview | None = None
        if mapped and os.fstat(file).st_size:
            self._mapped = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
        self._at = begin
        self._wanted = wanted
        self._read_committed = read_committed
        self._expected = -1
        self.is_doubtful = False

    def read(self, position: int, *, check_crcs: bool) -> Iterator[DecodedBatches]:
        """Records from offset `position` on. Raises KafkaError: a batch is corrupt; OSError."""
        while position < self._wanted.end and not self.is_doubtful:
            data = self._bytes(CHUNK_BYTES)
            if HEADER_SIZE <= len(data) < (size := read_header(data).size) <= 2**31 - 1:
                data = self._bytes(size)
            size = self._sound(data, position)
            if not size:
                return
            self._at += size
            batches = data[:size]
            while len(batches) and position < self._wanted.end:
                decoded = decode_batches(
                    batches,
                    topic=self._wanted.topic,
                    partition=self._wanted.partition,
                    fetch_offset=position,
                    end_offset=self._wanted.end,
                    check_crc=check_crcs,
                    value_views=self._mapped is not None,
                )
                if not decoded.consumed_bytes:
                    break
                batches = batches[decoded.consumed_bytes :]
                position = max(position, decoded.next_offset)  # earlier batches are skipped
                yield decoded

    def _bytes(self, size: int) -> memoryview:
        if self._mapped is not None:
            return self._mapped[self._at : self._at + size]
        return memoryview(os.pread(self._file, size, self._at))

    def _sound(self, data: memoryview, position: int) -> int:
        """Size in bytes of the complete, contiguous batches at the start of `data`."""
        end = 0
        for at, header in walk_batches(data):
            is_next = (
                header.base_offset <= position
                if self._expected < 0
                else header.base_offset == self._expected
            )
            if (
                not is_next
                or header.magic != MAGIC
                or (self._read_committed and header.is_transactional)
            ):
                self.is_doubtful = True
                break
            self._expected = header.next_offset
            end = at + header.size
            if self._expected >= self._wanted.end:
                break
        return end

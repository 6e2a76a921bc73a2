"""Are the replicas of a topic the same below the high watermark? Read from the files of a cluster
that is down, by the broker's own storage classes.

    <data dir>/<node>/partitions-<n>/<topic>-<partition>/

Every batch is checked as a broker checks it (CRC, offsets), so a damaged file is an error here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bradbury.protocol.records.record_batch import check_batch, read_size
from bradbury.protocol.records.records import iterate_records
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig

from .history import History

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Contents:
    """A replica, all of it."""

    node: str
    high_watermark: int
    batches: dict[int, bytes]
    """Base offset -> all bytes of the batch."""
    values: dict[int, int]
    """Offset -> the number in the record there."""


@dataclass
class Comparison:
    """divergent: where two replicas differ below both their high watermarks. misplaced: records
    that a replica does not have where they were acknowledged. missing: replicas that are not there.
    behind: partitions whose replicas had not come to rest together.
    """

    replicas: int = 0
    offsets: int = 0
    divergent: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def read_replicas(data_dir: Path, topic: str) -> dict[int, list[Contents]]:
    """The replicas by partition. Opens the directories as a broker does, when no broker has them."""
    found: dict[int, list[Contents]] = {}
    for path in sorted(data_dir.glob("*/partitions-*")):
        directory = LogDirectory.open(OsFileSystem(), str(path), directory_id="unused")
        try:
            logs = directory.load_logs(lambda _: LogConfig(), now_ms=0)
            for (name, number), log in sorted(logs.items()):
                if name == topic:
                    contents = _contents(log, str(path.relative_to(data_dir)))
                    found.setdefault(number, []).append(contents)
        finally:
            directory.close(clean=False)
    return found


def _contents(log: PartitionLog, node: str) -> Contents:
    batches: dict[int, bytes] = {}
    values: dict[int, int] = {}
    offset = log.log_start_offset
    end = log.log_end_offset
    while offset < end:
        found = log.read(offset, max_bytes=READ_BYTES, up_to=end, min_one_batch=True)
        assert found.file is not None, f"{node}: nothing at {offset} of {end}"
        data = memoryview(found.file.read_at(found.size, found.position))
        while data:
            _, size = read_size(data)
            header = check_batch(data[:size])
            batches[header.base_offset] = bytes(data[:size])
            for record in iterate_records(data[:size], check_crc=False):
                values[record.offset] = int(bytes(record.value or b"-1"))
            data = data[size:]
        offset = found.next_offset
    return Contents(node, log.high_watermark, batches, values)


def compare(
    replicas: dict[int, list[Contents]], history: History, replication_factor: int
) -> Comparison:
    """Compare the replicas of all partitions with what was acknowledged."""
    result = Comparison()
    for number in range(history.partitions):
        each = replicas.get(number, [])
        result.replicas += len(each)
        if len(each) < replication_factor:
            names = [one.node for one in each]
            result.missing.append(f"partition {number} is only on {names}")
        if not each:
            continue
        first = max(each, key=lambda one: one.high_watermark)
        result.offsets += first.high_watermark
        for other in each:
            if other is not first:
                result.divergent += _differences(number, first, other)
        if len({one.high_watermark for one in each}) > 1:
            marks = {one.node: one.high_watermark for one in each}
            result.behind.append(f"partition {number}: high watermarks {marks}")
    for one in history.sends:
        if one.outcome == "ok" and one.offset is not None:
            result.misplaced += _misplaced(
                one.partition, one.offset, one.value, replicas.get(one.partition, [])
            )
    return result


def _differences(number: int, one: Contents, other: Contents) -> list[str]:
    end = min(one.high_watermark, other.high_watermark)
    return [
        f"partition {number}: batch {base} is not the same on {one.node} and {other.node}"
        for base in sorted({*one.batches, *other.batches})
        if base < end and one.batches.get(base) != other.batches.get(base)
    ]


def _misplaced(partition: int, offset: int, value: int, replicas: list[Contents]) -> Iterator[str]:
    for each in replicas:
        found = each.values.get(offset)
        if found != value:
            yield f"{partition}/{offset} on {each.node}: {found}, acknowledged was {value}"

"""The files of a log directory in the log world, and what happens to them."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from bradbury.protocol.records.record_batch import HEADER_SIZE
from bradbury.storage.disk.checkpoint_file import read_offsets

from ..recovery_voters import delete
from ..world.simulated_disk import SimulatedDisk
from .log_model import StoredBatch

DIRECTORY = "/d"
KEY = ("t", 0)
LOG = f"{DIRECTORY}/t-0"
CHECKPOINTS = {
    "recovery": f"{DIRECTORY}/recovery-point-offset-checkpoint",
    "start": f"{DIRECTORY}/log-start-offset-checkpoint",
    "watermark": f"{DIRECTORY}/replication-offset-checkpoint",
}
BEFORE_CHECKED = 17
"""The head of a batch that its checksum is not of: offset, length, leader epoch, magic, checksum."""
EPOCH = slice(12, 16)


class FilesFound(NamedTuple):
    """What a start finds on the disk."""

    recovery_point: int
    log_start: int | None
    is_clean: bool
    places: dict[int, tuple[int, int]]
    """(segment, position) of each sound batch, by base offset."""
    bases: tuple[int, ...]

    @property
    def kept_end(self) -> int:
        """Below it a flaw takes nothing with it but what it is in."""
        return max(self.recovery_point, self.log_start or 0)


def find_files(disk: SimulatedDisk, batches: list[StoredBatch]) -> FilesFound:
    """What of `batches` is sound in the segments, and what the checkpoints say."""
    segments = {
        int(path[len(LOG) + 1 : -len(".log")]): bytes(inode.content)
        for path, inode in disk.names.items()
        if path.startswith(f"{LOG}/") and path.endswith(".log") and inode is not None
        if path[len(LOG) + 1 : -len(".log")].isdigit()
    }
    places: dict[int, tuple[int, int]] = {}
    for base, content in sorted(segments.items()):
        for each in batches:
            position = content.find(each.data) if each.base >= base else -1
            if position >= 0:
                places[each.base] = (base, position)
    said = {
        name: read_offsets(disk, path)
        if disk.exists(path) and not disk.is_directory(path)
        else None
        for name, path in CHECKPOINTS.items()
    }
    return FilesFound(
        (said["recovery"] or {}).get(KEY, 0),
        (said["start"] or {}).get(KEY),
        disk.exists(f"{DIRECTORY}/.kafka_cleanshutdown"),
        places,
        tuple(sorted(segments)),
    )


def damage(disk: SimulatedDisk, random: Random, *, has_gaps: bool) -> str:
    """Of one file of the log, or of a checkpoint. Returns what was done; empty: nothing."""
    kind = random.choice(
        ["flip", "flip", "flip", "cut", "cut", "empty", "delete", "delete", "directory"]
    )
    files = [
        path
        for path, inode in disk.names.items()
        if inode is not None and path.startswith((f"{LOG}/", *CHECKPOINTS.values()))
        if not path.endswith(".tmp")
    ]
    logs = [path for path in files if path.endswith(".log")]
    if not files:
        return ""
    path = random.choice(logs if logs and random.random() < 0.5 else files)
    inode = disk.names[path]
    assert inode is not None
    content = bytearray(inode.content)
    if kind in ("delete", "directory"):
        delete(disk, path)
        if kind == "directory":
            disk.names[path] = disk.synced_names[path] = None
        return f"{kind} {path}"
    if kind == "flip" and content:
        position = random.randrange(len(content))
        if path.endswith(".log") and _is_seen_by_nobody(content, position, has_gaps=has_gaps):
            return ""
        content[position] ^= 1 << random.randrange(8)
        kind += f" at {position}"
    elif kind == "cut" and content:
        end = random.randrange(len(content))
        del content[_beyond_header(content, end) if path.endswith(".log") else end :]
        kind += f" to {len(content)}"
    else:
        content = bytearray()
    inode.content, inode.synced = content, bytes(content)
    return f"{kind} {path}"


def _beyond_header(content: bytearray, end: int) -> int:
    """Less than the head of a batch says nothing of what it was, so that the batches before it are
    not told from what a record may hold: see segment_runs.
    """
    start = 0
    while start + HEADER_SIZE < len(content):
        following = start + 12 + int.from_bytes(content[start + 8 : start + 12])
        if start < end < start + HEADER_SIZE:
            return start + HEADER_SIZE
        if following > end:
            break
        start = following
    return end


def _is_seen_by_nobody(content: bytearray, position: int, *, has_gaps: bool) -> bool:
    """A leader epoch is in no checksum, and where offsets may be missing another offset is one
    that may be there, as in Kafka's format.
    """
    start = 0
    while start + BEFORE_CHECKED < len(content):
        within = position - start
        size = 12 + int.from_bytes(content[start + 8 : start + 12])
        if within < size:
            return EPOCH.start <= within < EPOCH.stop or (has_gaps and within < 8)
        start += size
    return False

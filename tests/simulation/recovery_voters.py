"""The directories of voters in the recovery world, and what happens to their files."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.controller.voter_files.acknowledged_offset import AcknowledgedOffset
from bradbury.controller.voter_files.replicated_log import ReplicatedLog
from bradbury.controller.voter_files.voter_directory import VoterDirectory

from .world.simulated_disk import SimulatedDisk


class Entry(NamedTuple):
    """A batch of the metadata log: offsets [base, end). image: after it."""

    base: int
    end: int
    epoch: int
    data: bytes
    image: MetadataImage


@dataclass(slots=True)
class Voter:
    """A data directory. entries: that its log has, or had, since the last recovery."""

    data_dir: str
    node_id: int
    voter_id: str
    entries: list[Entry] = field(default_factory=list)
    acknowledged: int = 0
    vote: int = -1
    damages: list[str] = field(default_factory=list)
    has_lost_all: bool = False
    files: VoterDirectory | None = None
    log: ReplicatedLog | None = None

    @property
    def metadata(self) -> str:
        return f"{self.data_dir}/metadata"

    @property
    def partitions(self) -> str:
        return f"{self.data_dir}/partitions-0"

    @property
    def last(self) -> tuple[int, int]:
        return (self.entries[-1].epoch, self.entries[-1].end) if self.entries else (-1, 0)


def lower_acknowledged(disk: SimulatedDisk, voter: Voter) -> None:
    """After a power loss the mark may lag: where the log is damaged no more is known of it."""
    mark = AcknowledgedOffset(disk, voter.metadata).read()
    voter.acknowledged = min(voter.acknowledged, 0 if mark is None else mark.offset)


def damage(disk: SimulatedDisk, voter: Voter, random: Random) -> None:
    """One of the voter's files, or all of them."""
    kind = random.choice(
        ["flip", "flip", "flip", "cut", "cut", "empty", "delete", "delete", "directory", "tree"]
    )
    below = f"{voter.metadata}/"
    files = [path for path, inode in disk.names.items() if path.startswith(below) and inode]
    files = [path for path in files if not path.endswith("/.lock")]
    if not files:
        return
    logs = [path for path in files if path.endswith((".log", ".checkpoint"))]
    path = random.choice(logs if logs and random.random() < 0.6 else files)
    if kind == "tree":
        path = random.choice([voter.metadata, f"{below}__cluster_metadata-0"])
        delete(disk, path)
        voter.has_lost_all = voter.has_lost_all or path == voter.metadata
    elif kind in ("delete", "directory"):
        delete(disk, path)
        if kind == "directory":
            disk.names[path] = disk.synced_names[path] = None
    else:
        inode = disk.names[path]
        assert inode is not None
        content = bytearray(inode.content)
        if kind == "flip" and content:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        elif kind == "cut" and content:
            del content[random.randrange(len(content)) :]
        else:
            content = bytearray()
        inode.content, inode.synced = content, bytes(content)
    voter.damages.append(f"{kind} {path}")


def delete(disk: SimulatedDisk, path: str) -> None:
    """A file, or a directory with all that is in it."""
    for names in (disk.names, disk.synced_names):
        for each in [each for each in names if each == path or each.startswith(f"{path}/")]:
            del names[each]

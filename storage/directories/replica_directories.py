"""Which log directory holds which partition of this node, told by every one of them.

    replica-directories
        0                                             version
        3                                             number of entries
        generation 17                                 grows with every change
        FWq4Rv5eR0ybK2pDeFSBVg 0 H1iD5p3fTTq2yPzX    topic id, partition, directory id

Why: a partition whose directory is missing at a start must not be recreated, empty, in another:
its leader would serve an empty log where records were acknowledged. The directory that knows about
the partition is the one that is missing, so each of the others has to know it, too. Kafka keeps
this in the metadata log (KIP-858), for which the controller must hear of every placement; a note
beside the logs needs nobody else, and is there when the node starts without its controller.

What always holds: a placement is in the note of every usable directory, fsynced, before the log is
made, so before its first record. Of several notes the highest generation is the true one: the
others were out of use when it was written. A log that is found where the note does not say is
believed; the note is mended. With a single directory there is no note: who should read it?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from ..disk.checkpoint_file import read_checkpoint, write_checkpoint
from ..disk.file_system import FileSystem
from .partition_directory import decode_id, encode_id

FILE_NAME = "replica-directories"
GENERATION = "generation"

ReplicaId = tuple[UUID, int]
"""Topic id and partition: a topic that was deleted and made again is another one."""


def read_placements(file_system: FileSystem, path: str) -> tuple[int, dict[ReplicaId, str]]:
    """(generation, directory ids) as the directory `path` tells it; generation 0 if it does not."""
    entries = read_checkpoint(file_system, f"{path}/{FILE_NAME}")
    if not entries or entries[0][0] != GENERATION:
        return 0, {}
    try:
        generation = int(entries[0][1])
        placements = {
            (decode_id(topic_id), int(partition)): directory_id
            for topic_id, partition, directory_id in entries[1:]
        }
    except (ValueError, IndexError):
        return 0, {}
    return generation, placements


def write_placements(
    file_system: FileSystem, path: str, generation: int, placements: Mapping[ReplicaId, str]
) -> None:
    """Durably. Raises OSError."""
    lines = [f"{GENERATION} {generation}", *_lines(placements.items())]
    write_checkpoint(file_system, f"{path}/{FILE_NAME}", lines)


def _lines(placements: Iterable[tuple[ReplicaId, str]]) -> Iterable[str]:
    return (
        f"{encode_id(topic_id)} {partition} {directory_id}"
        for (topic_id, partition), directory_id in placements
    )

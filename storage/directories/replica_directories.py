"""Log directory of each partition of this node, as stored in each directory.

    replica-directories
        0                                             version
        3                                             number of entries
        generation 17                                 grows with every change
        FWq4Rv5eR0ybK2pDeFSBVg 0 H1iD5p3fTTq2yPzX    topic id, partition, directory id

Why: a partition whose directory is missing at a start must not be recreated, empty, in another:
its leader would serve an empty log where records were acknowledged. The directory that has the
partition is the one that is missing, so each of the others stores the placement, too. Kafka keeps
this in the metadata log (KIP-858), for which every placement must be reported to the controller; a
note with the logs depends on nothing else, and can be read when a node starts without a controller.

Invariants: a placement is in the note of every usable directory, fsynced, before the log is
made, so before its first record. Of several notes the one with the highest generation is valid: the
other directories were offline when it was written. If a log is found in another directory than the
note names, the note is corrected. With a single directory there is no note: it would be missing
together with the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...protocol.errors import KafkaStorageError
from ...protocol.topic_partition import TopicIdPartition
from ..disk.checkpoint_file import read_checkpoint, write_checkpoint
from ..disk.file_system import FileSystem
from ..disk.storage_failure import StorageFailure, refused_or_failed
from .log_directory import LogDirectory
from .partition_directory import decode_id, encode_id

FILE_NAME = "replica-directories"
GENERATION = "generation"


def read_placements(file_system: FileSystem, path: str) -> tuple[int, dict[TopicIdPartition, str]]:
    """(generation, directory ids by partition) stored in the directory `path`; generation 0 if
    there is none.
    """
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
    file_system: FileSystem, path: str, generation: int, placements: Mapping[TopicIdPartition, str]
) -> None:
    """Write the placements durably. Raises OSError."""
    lines = [f"{GENERATION} {generation}", *_lines(placements.items())]
    write_checkpoint(file_system, f"{path}/{FILE_NAME}", lines)


def _lines(placements: Iterable[tuple[TopicIdPartition, str]]) -> Iterable[str]:
    return (
        f"{encode_id(topic_id)} {partition} {directory_id}"
        for (topic_id, partition), directory_id in placements
    )


class ReplicaPlacements:
    """Current or future directory of each partition of the node."""

    def __init__(
        self, file_system: FileSystem, directories: Sequence[LogDirectory], *, is_single: bool
    ) -> None:
        """`is_single`: the node has no other directory, so nothing is stored."""
        self._file_system = file_system
        self._directories = directories
        self._is_single = is_single
        self._generation = 0
        self._placements: dict[TopicIdPartition, str] = {}
        self._noted: dict[TopicIdPartition, str] = {}

    @property
    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.health.is_online]

    def load(self) -> None:
        """Read the stored placements. Raises OSError."""
        for directory in self._online:
            generation, placements = read_placements(self._file_system, directory.path)
            if generation > self._generation:
                self._generation, self._placements = generation, placements
        self._noted = dict(self._placements)

    def directory_id_of(self, replica: TopicIdPartition) -> str | None:
        """Id of the directory with a partition, by its placement; it may not be online. None: not
        placed.
        """
        return self._placements.get(replica)

    def place(self, replicas: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, LogDirectory]:
        """Choose a directory for each new partition. begin_note() comes next, then make_log.

        A partition that is, by the note, in a directory that is not online is omitted.
        """
        online = {each.identity.directory_id: each for each in self._online}
        counts = {directory_id: len(each.logs) for directory_id, each in online.items()}
        chosen: dict[TopicIdPartition, LogDirectory] = {}
        for replica in replicas:
            directory_id = self._placements.get(replica)
            if directory_id is None:
                if not counts:
                    continue
                directory_id = min(counts, key=counts.__getitem__)
            elif directory_id not in online:
                continue
            chosen[replica] = online[directory_id]
            counts[directory_id] += 1
            self._placements[replica] = directory_id
        return chosen

    def assign(self, replica: TopicIdPartition, directory: LogDirectory) -> None:
        """Note that the log is in `directory`, or that a move is about to switch to it:
        begin_note() comes next.
        """
        self._placements[replica] = directory.identity.directory_id

    def forget(self, replicas: Iterable[TopicIdPartition]) -> None:
        """Forget deleted partitions; stored with the next write."""
        for replica in replicas:
            self._placements.pop(replica, None)

    def begin_note(self) -> NoteWork | None:
        """Work that stores the placements before logs are created; None if nothing has changed."""
        if self._is_single or self._placements == self._noted:
            return None
        self._generation += 1
        return NoteWork(
            self._file_system,
            self._online,
            self._generation,
            dict(self._placements),
            self._on_note_written,
        )

    def _on_note_written(self, placements: dict[TopicIdPartition, str]) -> None:
        self._noted = placements


class NoteWork:
    """Write of the placements to every directory. run() in any thread, but one at a time."""

    __slots__ = ("_directories", "_file_system", "_generation", "_on_written", "_placements")

    def __init__(
        self,
        file_system: FileSystem,
        directories: Sequence[LogDirectory],
        generation: int,
        placements: dict[TopicIdPartition, str],
        on_written: Callable[[dict[TopicIdPartition, str]], None],
    ) -> None:
        self._file_system = file_system
        self._directories = directories
        self._generation = generation
        self._placements = placements
        self._on_written = on_written

    def run(self) -> None:
        """Write with two fsyncs per directory. A failing directory goes offline; the others are
        written.

        Raises:
            KafkaStorageError: the disk of a directory is full, so that not all have the note.
            StorageFailure: no directory has the note.
        """
        failure: KafkaStorageError | None = None
        done = 0
        for directory in self._directories:
            try:
                write_placements(
                    self._file_system, directory.path, self._generation, self._placements
                )
                done += 1
            except OSError as error:
                doing = f"writing the note in {directory.path}"
                failure = refused_or_failed(directory.health, doing, error)
                if not isinstance(failure, StorageFailure):
                    raise failure from error
        if failure is not None and not done:
            raise failure
        self._on_written(self._placements)

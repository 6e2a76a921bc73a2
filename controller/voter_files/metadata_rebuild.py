"""`bradbury metadata recover`: a damaged or lost metadata log made again, while nothing runs.

    look     the metadata directory, read as far as it can be; every partition's directory
    decide   cluster/metadata/metadata_recovery
    write    a metadata directory with a snapshot of that, next to the old one; the old one gets
             the name metadata.damaged-<time>, the new one its name

What always holds: nothing is removed, and nothing is written where a broker runs (its locks are
taken). A recovery that was killed is begun again; if both directories were being renamed, that is
finished.

Blocking: for a command, not for a broker.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ...cluster.metadata.metadata_records import MetadataRecord, decode_metadata_record
from ...cluster.metadata.metadata_recovery import (
    FoundNode,
    FoundPartition,
    KnownMetadata,
    NewLog,
    RecoveredMetadata,
    recover_metadata,
)
from ...cluster.quorum.metadata_snapshot import decode_snapshot, encode_snapshot, end_of
from ...cluster.quorum.voter import NO_SNAPSHOT, Candidate, LogEnd
from ...cluster.topic_name import METADATA_TOPIC
from ...protocol.errors import CorruptMessage
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import iterate_records
from ...storage.directories.directory_identity import (
    COPY_NAME as IDENTITY_COPY,
    FILE_NAME as IDENTITY_FILE,
    DirectoryIdentity,
    read_identity,
    write_identity,
)
from ...storage.directories.log_directory import CLEAN_FILE, LOCK_FILE
from ...storage.directories.partition_directory import (
    directory_name,
    parse_directory_name,
    read_topic_id,
)
from ...storage.disk.file_system import FileSystem, sync_directory
from ...storage.disk.storage_failure import DataDirectoryError
from ...storage.log.leader_epoch_cache import LeaderEpochCache
from ...storage.segments.batch_scan import walk_headers
from ...storage.segments.segment_files import LOG_SUFFIX
from .acknowledged_offset import AcknowledgedOffset
from .metadata_log_check import LogFlaw, check_metadata_log
from .quorum_state_file import read_quorum_state
from .replicated_log import find_snapshot
from .voter_directory import VoterDirectory

METADATA = "metadata"
BESIDE = "metadata-recovery"
MORE_OFFSETS = 1_000
"""Skipped, as what is lost of the log may have had some."""


@dataclass(slots=True)
class FoundMetadata:
    """What a metadata directory still says."""

    known: KnownMetadata = field(default_factory=KnownMetadata)
    identity: DirectoryIdentity | None = None
    end: LogEnd = NO_SNAPSHOT
    flaws: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FoundDirectories:
    """What partitions' directories say. cluster_ids: of those that name one."""

    partitions: list[FoundPartition] = field(default_factory=list)
    nodes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    cluster_ids: set[str] = field(default_factory=set)
    highest_producer_id: int = -1
    nameless: list[str] = field(default_factory=list)
    """Directories with logs that do not say whose they are."""
    paths: list[str] = field(default_factory=list)


class RecoveryPlan(NamedTuple):
    """What is to be done; recovered: None if the metadata log is whole and fits the directories."""

    metadata: FoundMetadata
    directories: FoundDirectories
    identities: Mapping[str, DirectoryIdentity]
    """meta.properties to be written again, by directory."""
    new: NewLog | None
    recovered: RecoveredMetadata | None


class MetadataRebuild:
    """`plan`, then `carry_out`, both within `locked`."""

    def __init__(
        self,
        data_dirs: Sequence[str],
        file_system: FileSystem,
        *,
        new_id: Callable[[], str],
        internal_configs: Callable[[str], Mapping[str, str] | None],
        now_ms: int,
    ) -> None:
        """`data_dirs`: of all nodes that are to be looked through; the metadata comes into the
        first. `new_id`: of a directory that has lost its own.
        """
        self._data_dirs = [path.rstrip("/") for path in data_dirs]
        self._file_system = file_system
        self._new_id = new_id
        self._internal_configs = internal_configs
        self._now_ms = now_ms

    @contextmanager
    def locked(self, *, makes_files: bool) -> Iterator[None]:
        """While it lasts no broker can start on these directories.

        Without `makes_files` not in those that never had a lock file.

        Raises DataDirectoryError: one runs; or these are no data directories.
        """
        with contextlib.ExitStack() as locks:
            for path in self._all_directories():
                if not makes_files and not self._file_system.exists(f"{path}/{LOCK_FILE}"):
                    continue
                try:
                    lock = self._file_system.lock(f"{path}/{LOCK_FILE}")
                except BlockingIOError:
                    raise DataDirectoryError(
                        f"{path} is in use by a running broker; stop it before the recovery"
                    ) from None
                locks.callback(lock.close)
            yield

    def _all_directories(self) -> list[str]:
        found = []
        for data_dir in self._data_dirs:
            if not self._file_system.is_directory(data_dir):
                raise DataDirectoryError(f"{data_dir}: there is no such directory")
            for name in sorted(self._file_system.list_directory(data_dir)):
                path = f"{data_dir}/{name}"
                is_former = name != METADATA and name.partition(".")[0] in (METADATA, BESIDE)
                if not is_former and self._is_log_directory(path):
                    found.append(path)
        if not any(not path.endswith(f"/{METADATA}") for path in found):
            raise DataDirectoryError(
                f"{', '.join(self._data_dirs)}: there is no directory of partitions; name the data "
                "directory of a node, which has partitions-0 or alike in it"
            )
        return found

    def _is_log_directory(self, path: str) -> bool:
        if not self._file_system.is_directory(path):
            return False
        return any(
            name in (IDENTITY_FILE, IDENTITY_COPY)
            or (parse_directory_name(name) and self._file_system.is_directory(f"{path}/{name}"))
            for name in self._file_system.list_directory(path)
        )

    @property
    def is_interrupted(self) -> bool:
        """A former recovery was killed between its two renames: what it made is whole."""
        first = self._data_dirs[0]
        return not self._file_system.exists(f"{first}/{METADATA}") and self._file_system.exists(
            f"{first}/{BESIDE}/{METADATA}/{CLEAN_FILE}"
        )

    def finish(self) -> None:
        """Finish what was interrupted."""
        first = self._data_dirs[0]
        self._file_system.rename(f"{first}/{BESIDE}/{METADATA}", f"{first}/{METADATA}")
        sync_directory(self._file_system, first)
        self._discard(f"{first}/{BESIDE}")

    # --- looking ---------------------------------------------------------------------------------

    def plan(self) -> RecoveryPlan:
        """What there is, and what is to be made of it. Changes nothing.

        Raises DataDirectoryError: the directories are of two clusters.
        """
        found = [self._read_metadata(f"{each}/{METADATA}") for each in self._data_dirs]
        directories = self._read_directories()
        best = max(found, key=lambda each: (_is_of(each, directories.cluster_ids), each.end))
        if len(directories.cluster_ids) > 1:
            clusters = " and ".join(sorted(directories.cluster_ids))
            raise DataDirectoryError(
                f"name the data directories of one cluster; these belong to {clusters}"
            )
        identities = self._identities(best, directories)
        is_other = not _is_of(best, directories.cluster_ids)
        known = KnownMetadata() if is_other else best.known
        is_whole = not best.flaws and not is_other
        if is_whole and set(directories.nodes) <= set(known.nodes):
            return RecoveryPlan(best, directories, identities, None, None)
        own = found[0].identity
        new = NewLog(
            cluster_id=next(iter(directories.cluster_ids), known.cluster_id),
            voters=(own.directory_id if own is not None and own.directory_id else self._new_id(),),
            epoch=max(each.end.epoch for each in found) + 1,
            offset=max(each.end.offset for each in found) + MORE_OFFSETS,
        )
        recovered = recover_metadata(
            known,
            directories.partitions,
            [FoundNode(node, tuple(ids)) for node, ids in sorted(directories.nodes.items())],
            new,
            is_whole=is_whole,
            highest_producer_id=directories.highest_producer_id,
            internal_configs=self._internal_configs,
        )
        return RecoveryPlan(best, directories, identities, new, recovered)

    def _read_metadata(self, path: str) -> FoundMetadata:
        found = FoundMetadata()
        log_path = f"{path}/{directory_name(METADATA_TOPIC, 0)}"
        if not self._file_system.is_directory(path):
            found.flaws.append(f"{path} is missing")
            return found
        with contextlib.suppress(DataDirectoryError):
            found.identity = read_identity(self._file_system, path).identity
        state = read_quorum_state(self._file_system, path).state
        check = check_metadata_log(self._file_system, log_path)
        snapshot = find_snapshot(self._file_system, log_path)
        mark = AcknowledgedOffset(self._file_system, path).read() or NO_SNAPSHOT
        start = snapshot.end.offset
        if snapshot.data:
            found.known.apply(decode_snapshot(snapshot.data).to_records())
        for run in check.runs:
            if run.next_offset > start:
                found.known.apply(self._records(run.batches, start, found))
        found.flaws += snapshot.flaws
        found.flaws += [str(flaw) for flaw in check.flaws if flaw.offset >= start]
        acknowledged = max(mark.offset, start, check.end_offset)
        if not found.flaws and (check.whole_to(start) < acknowledged or not acknowledged):
            reason = f"the log ends at {check.whole_to(start)}, {acknowledged} was acknowledged"
            found.flaws.append(str(LogFlaw(log_path, 0, check.whole_to(start), reason)))
        epoch = max(check.last_epoch, snapshot.end.epoch, mark.epoch, found.known.epoch)
        found.end = LogEnd(max(epoch, state.vote.epoch if state else -1), acknowledged)
        return found

    def _records(self, batches: bytes, start: int, found: FoundMetadata) -> list[MetadataRecord]:
        records = []
        view = memoryview(batches)
        for position, header in walk_batches(view):
            for record in iterate_records(view[position : position + header.size]):
                if record.offset < start:
                    continue
                try:
                    records.append(decode_metadata_record(record.value or b""))
                except CorruptMessage as error:
                    found.flaws.append(f"offset {record.offset}: {error}")
        return records

    def _read_directories(self) -> FoundDirectories:
        found = FoundDirectories()
        for path in self._all_directories():
            if path.rpartition("/")[2] == METADATA:
                continue
            identity = None
            with contextlib.suppress(DataDirectoryError):
                identity = read_identity(self._file_system, path).identity
            names = sorted(self._file_system.list_directory(path))
            has_logs = any(parse_directory_name(name) for name in names)
            if identity is None or identity.node_id is None:
                if has_logs:
                    found.nameless.append(path)
                continue
            found.paths.append(path)
            found.nodes[identity.node_id].append(identity.directory_id)
            if identity.cluster_id:
                found.cluster_ids.add(identity.cluster_id)
            self._read_partitions(path, names, identity.node_id, found)
        return found

    def _read_partitions(
        self, path: str, names: Sequence[str], node_id: int, found: FoundDirectories
    ) -> None:
        for name in names:
            key = parse_directory_name(name)
            directory = f"{path}/{name}"
            if key is None or not self._file_system.is_directory(directory):
                continue
            with contextlib.suppress(OSError):
                found.partitions.append(self._read_partition(key, directory, node_id, found))

    def _read_partition(
        self, key: tuple[str, int], directory: str, node_id: int, found: FoundDirectories
    ) -> FoundPartition:
        end_offset, epoch = 0, LeaderEpochCache(self._file_system, directory).latest_epoch
        for name in sorted(self._file_system.list_directory(directory)):
            stem = name.removesuffix(LOG_SUFFIX)
            if name == stem or not stem.isdigit():
                continue
            end_offset = max(end_offset, int(stem))
            with contextlib.suppress(OSError):
                file = self._file_system.open(f"{directory}/{name}")
                for _, header in walk_headers(file, 0, file.size()):
                    end_offset, epoch = header.next_offset, max(epoch, header.leader_epoch)
                    found.highest_producer_id = max(found.highest_producer_id, header.producer_id)
                file.close()
        topic_id = read_topic_id(self._file_system, directory)
        return FoundPartition(*key, topic_id, node_id, epoch, end_offset)

    def _identities(
        self, metadata: FoundMetadata, directories: FoundDirectories
    ) -> dict[str, DirectoryIdentity]:
        """Whose a directory without meta.properties is, where the metadata leaves one answer."""
        identities: dict[str, DirectoryIdentity] = {}
        cluster_id = next(iter(directories.cluster_ids), metadata.known.cluster_id)
        for path in directories.nameless:
            suffix = f"/{path.rpartition('/')[2]}"
            nodes = [
                node
                for node in metadata.known.nodes.values()
                if node.name.endswith(suffix) and node.node_id not in directories.nodes
            ]
            if len(nodes) != 1:
                raise DataDirectoryError(
                    f"{path}/meta.properties is missing, and the metadata does not say whose that "
                    f"directory is ({len(nodes)} nodes could be); write it with the lines "
                    "version=1, cluster.id=, node.id= and directory.id="
                )
            [node] = nodes
            identities[path] = DirectoryIdentity(
                directory_id=node.directory_id, cluster_id=cluster_id, node_id=node.node_id
            )
            directories.nodes[node.node_id].append(node.directory_id)
            names = sorted(self._file_system.list_directory(path))
            self._read_partitions(path, names, node.node_id, directories)
            directories.paths.append(path)
        return identities

    # --- writing ---------------------------------------------------------------------------------

    def carry_out(self, plan: RecoveryPlan) -> list[str]:
        """Write what is planned; returns what the old metadata directories are called now."""
        for path, identity in plan.identities.items():
            write_identity(self._file_system, path, identity)
        if plan.recovered is None or plan.new is None:
            return []
        beside = f"{self._data_dirs[0]}/{BESIDE}"
        self._discard(beside)
        self._write(beside, plan, plan.new)
        aside = []
        for data_dir in self._data_dirs:
            old = f"{data_dir}/{METADATA}"
            if self._file_system.exists(old):
                aside.append(f"{old}.damaged-{self._now_ms}")
                self._file_system.rename(old, aside[-1])
        for data_dir in self._data_dirs:
            sync_directory(self._file_system, data_dir)
        self.finish()
        return aside

    def _write(self, beside: str, plan: RecoveryPlan, new: NewLog) -> None:
        assert plan.recovered is not None
        image = plan.recovered.image
        files = VoterDirectory(beside, self._file_system)
        [directory_id] = new.voters
        files.open(directory_id=directory_id, now_ms=self._now_ms)
        own = plan.metadata.identity
        node_id = own.node_id if own is not None and own.directory_id == directory_id else None
        files.store(Candidate(epoch=new.epoch, owner="recovery"), new.voters)
        files.directory.assign_identity(cluster_id=new.cluster_id, node_id=node_id)
        log = files.create_log(new.voters, now_ms=self._now_ms)
        data = encode_snapshot(image, now_ms=self._now_ms)
        log.install(end_of(image), data, keeps_log=False, now_ms=self._now_ms)
        log.flush()
        files.close()

    def _discard(self, path: str) -> None:
        """What an earlier recovery has left that was killed: nobody has ever used it."""
        if not self._file_system.is_directory(path):
            return
        for name in self._file_system.list_directory(path):
            inside = f"{path}/{name}"
            if self._file_system.is_directory(inside):
                self._discard(inside)
            else:
                self._file_system.unlink(inside)
        self._file_system.remove_directory(path)


def _is_of(metadata: FoundMetadata, cluster_ids: set[str]) -> bool:
    """Whether it is the metadata of the cluster whose partitions these are, if they say."""
    return not cluster_ids or metadata.known.cluster_id in ("", *cluster_ids)

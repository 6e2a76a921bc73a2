"""`bradbury metadata recover`: rebuilds a damaged or lost metadata log, while nothing runs.

    read     the metadata directories, as far as they are readable; every partition's directory
    decide   cluster/metadata/metadata_recovery
    write    a metadata directory with a snapshot of the result, next to the old one; then the old
             one is renamed to metadata.damaged-<time>, and the new one to metadata

Invariants: nothing that was found is removed, and nothing is written where a broker runs (its locks
are taken). While a majority of the voters can vote, or may be able to, no log is made: the cluster
would have two. A recovery that was killed is begun again; if it was killed between its two renames,
it is finished.

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
from ...protocol.errors import CorruptMessage
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
    parse_directory_name,
    read_topic_id,
)
from ...storage.disk.file_system import FileSystem, sync_directory
from ...storage.disk.storage_failure import DataDirectoryError
from ...storage.log.leader_epoch_cache import LeaderEpochCache
from ...storage.segments.batch_scan import walk_headers
from ...storage.segments.segment_files import LOG_SUFFIX
from .metadata_copies import (
    MetadataCopy,
    UnitedLog,
    confirm_epochs,
    copies_set_aside,
    copy_in_place,
    unite,
)
from .quorum_state_file import read_quorum_state
from .voter_condition import read_voter_files
from .voter_directory import VoterDirectory

METADATA = "metadata"
BESIDE = "metadata-recovery"
MORE_OFFSETS = 1_000
"""Offsets skipped, as the lost part of the log may have used some."""


@dataclass(slots=True)
class FoundVoter:
    """Metadata in one data directory. Its first copy is the log in place.

    directory_id: "" if no file has it. is_fit: it votes when it is started.
    """

    directory_id: str = ""
    copies: list[MetadataCopy] = field(default_factory=list)
    voters: tuple[str, ...] = ()
    vote_epoch: int = -1
    flaws: list[str] = field(default_factory=list)
    is_fit: bool = False


@dataclass(slots=True)
class FoundMetadata:
    """Metadata of all directories together. flaws: of all of them, and offsets that no copy has."""

    voters: list[FoundVoter]
    known: KnownMetadata = field(default_factory=KnownMetadata)
    end: LogEnd = NO_SNAPSHOT
    flaws: list[str] = field(default_factory=list)
    is_whole: bool = False
    """Whether no record is missing, however damaged single copies are."""

    @property
    def voting(self) -> tuple[str, ...]:
        """Current voters, by the newest record of them."""
        if self.known.voters:
            return self.known.voters
        return next((each.voters for each in self.voters if each.voters), ())


@dataclass(slots=True)
class FoundDirectories:
    """Contents of the partitions' directories. cluster_ids: ids found in them."""

    partitions: list[FoundPartition] = field(default_factory=list)
    nodes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    cluster_ids: set[str] = field(default_factory=set)
    highest_producer_id: int = -1
    nameless: list[str] = field(default_factory=list)
    """Directories with logs but without a node id."""
    paths: list[str] = field(default_factory=list)


class RecoveryPlan(NamedTuple):
    """Plan of the recovery; recovered: None if the metadata log is complete and matches the
    directories, and a majority of the voters can vote.
    """

    metadata: FoundMetadata
    directories: FoundDirectories
    identities: Mapping[str, DirectoryIdentity]
    """Contents of meta.properties files to restore, by directory."""
    new: NewLog | None
    recovered: RecoveredMetadata | None
    unfit: tuple[str, ...]
    """Voters among the directories that would not vote when started."""


class MetadataRebuild:
    """The recovery: `plan`, then `carry_out`, both within `locked`."""

    def __init__(
        self,
        data_dirs: Sequence[str],
        file_system: FileSystem,
        *,
        new_id: Callable[[], str],
        internal_configs: Callable[[str], Mapping[str, str] | None],
        now_ms: int,
    ) -> None:
        """`data_dirs`: data directories of all nodes to read; the metadata is written to the first.
        `new_id`: makes an id for a directory that has lost its own.
        """
        self._data_dirs = [path.rstrip("/") for path in data_dirs]
        self._file_system = file_system
        self._new_id = new_id
        self._internal_configs = internal_configs
        self._now_ms = now_ms

    @contextmanager
    def locked(self, *, makes_files: bool) -> Iterator[None]:
        """Lock the directories, so that no broker can start on them meanwhile.

        Without `makes_files`, directories without a lock file are not locked.

        Raises DataDirectoryError: a broker runs on one; or these are no data directories.
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
        names = self._file_system.list_directory(path)
        if any(
            self._file_system.exists(f"{path}/{name}/{identity}")
            for name in names
            for identity in (IDENTITY_FILE, IDENTITY_COPY)
        ):
            return False  # another node's data directory, in this one: `log-node` names it
        return any(
            name in (IDENTITY_FILE, IDENTITY_COPY)
            or (parse_directory_name(name) and self._file_system.is_directory(f"{path}/{name}"))
            for name in names
        )

    @property
    def is_interrupted(self) -> bool:
        """Whether a former recovery was killed between its two renames; its result is complete."""
        first = self._data_dirs[0]
        return not self._file_system.exists(f"{first}/{METADATA}") and self._file_system.exists(
            f"{first}/{BESIDE}/{METADATA}/{CLEAN_FILE}"
        )

    def finish(self) -> None:
        """Finish an interrupted recovery."""
        first = self._data_dirs[0]
        self._file_system.rename(f"{first}/{BESIDE}/{METADATA}", f"{first}/{METADATA}")
        sync_directory(self._file_system, first)
        self._discard(f"{first}/{BESIDE}")

    # --- looking ---------------------------------------------------------------------------------

    def plan(self, *, others_are_lost: bool = False) -> RecoveryPlan:
        """Read the directories, and plan the recovery. Changes nothing.

        others_are_lost: the voters that are not among these directories are permanently lost.

        Raises DataDirectoryError: the directories are of two clusters; or voters are missing.
        """
        directories = self._read_directories()
        if len(directories.cluster_ids) > 1:
            clusters = " and ".join(sorted(directories.cluster_ids))
            raise DataDirectoryError(
                f"name the data directories of one cluster; these belong to {clusters}"
            )
        found = self._read_metadata(directories.cluster_ids)
        identities = self._identities(found, directories)
        known = found.known
        unfit, absent = _lost_voters(found)
        fit = len(found.voting) - len(unfit) - len(absent)
        can_vote = fit > len(found.voting) // 2
        if can_vote and found.is_whole and set(directories.nodes) <= set(known.nodes):
            return RecoveryPlan(found, directories, identities, None, None, unfit)
        if absent and not others_are_lost:
            raise DataDirectoryError(
                f"{len(absent)} of {len(found.voting)} voters ({', '.join(absent)}) are not in "
                "these directories; if their nodes can start, start all: a damaged log is taken "
                "from them; else name their data directories, too, or say "
                "--other-voters-are-lost if those are permanently lost"
            )
        new = NewLog(
            cluster_id=next(iter(directories.cluster_ids), known.cluster_id),
            voters=(found.voters[0].directory_id or self._new_id(),),
            epoch=max(found.end.epoch, *(each.vote_epoch for each in found.voters)) + 1,
            offset=found.end.offset + MORE_OFFSETS,
        )
        recovered = recover_metadata(
            known,
            directories.partitions,
            [FoundNode(node, tuple(ids)) for node, ids in sorted(directories.nodes.items())],
            new,
            is_whole=found.is_whole,
            highest_producer_id=directories.highest_producer_id,
            internal_configs=self._internal_configs,
        )
        return RecoveryPlan(found, directories, identities, new, recovered, unfit)

    def _read_metadata(self, cluster_ids: set[str]) -> FoundMetadata:
        found = FoundMetadata([self._read_voter(f"{each}/{METADATA}") for each in self._data_dirs])
        copies = confirm_epochs([copy for voter in found.voters for copy in voter.copies])
        for voter in found.voters:
            found.flaws += voter.flaws
        ours = [each for each in copies if not cluster_ids or each.cluster_id in ("", *cluster_ids)]
        paths = {each.log_path for each in ours}
        for voter in found.voters:
            if voter.copies and voter.copies[0].log_path not in paths:
                voter.voters, voter.is_fit = (), False
        ends = [each.end for each in copies]
        found.end = LogEnd(
            max((end.epoch for end in ends), default=-1),
            max((end.offset for end in ends), default=0),
        )
        if ours:
            self._unite(ours, found)
        if not found.is_whole and not found.flaws:
            found.flaws.append(f"{', '.join(self._data_dirs)}: there is no metadata log")
        return found

    def _unite(self, copies: Sequence[MetadataCopy], found: FoundMetadata) -> None:
        united = unite(copies)
        if united.snapshot.data:
            found.known.apply(decode_snapshot(united.snapshot.data).to_records())
        records, unread = _records(united)
        found.known.apply(records)
        for first, end in united.gaps:
            found.flaws.append(f"offsets {first} to {end - 1} of the metadata are nowhere")
        for first, end in united.doubtful:
            found.flaws.append(
                f"offsets {first} to {end - 1} of the metadata are taken from a copy that is not "
                "known to have been equal to the others"
            )
        found.flaws += unread
        is_complete = not (united.gaps or united.doubtful or unread)
        found.is_whole = bool(united.end.offset) and is_complete
        found.end = LogEnd(max(found.end.epoch, found.known.epoch), found.end.offset)

    def _read_voter(self, path: str) -> FoundVoter:
        found = FoundVoter()
        if not self._file_system.is_directory(path):
            found.flaws.append(f"{path} is missing")
            return found
        state = read_quorum_state(self._file_system, path)
        files = read_voter_files(self._file_system, path, state)
        has_identity = True
        try:
            identity = read_identity(self._file_system, path).identity
            found.directory_id = identity.directory_id if identity is not None else ""
        except DataDirectoryError as error:
            has_identity = False
            found.flaws.append(str(error))
        if state.state is not None:
            found.directory_id = found.directory_id or state.state.directory_id
            found.vote_epoch = state.state.vote.epoch
        found.voters = files.voters
        knows_vote = state.state is not None or not set(found.voters) - {found.directory_id}
        found.copies = [
            copy_in_place(files),
            *copies_set_aside(self._file_system, path),
        ]
        found.flaws += found.copies[0].flaws
        damage = files.condition(found.directory_id).damage if files.had_log else None
        if damage is not None and damage not in found.flaws:
            found.flaws.append(damage)
        catches_up = state.state is not None and state.state.catches_up
        if catches_up:
            found.flaws.append(f"{files.log_path} was set aside; it is taken from other voters")
        found.is_fit = (
            files.had_log
            and damage is None
            and not catches_up
            and has_identity
            and found.directory_id != ""
            and knows_vote
        )
        return found

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
        """Identities of directories without meta.properties, where the metadata allows only one."""
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
        """Write what is planned; returns the new names of the old metadata directories."""
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
        node_id = self._own_node_id(directory_id, plan, new)
        files.store(Candidate(epoch=new.epoch, owner="recovery"), new.voters)
        files.directory.assign_identity(cluster_id=new.cluster_id, node_id=node_id)
        log = files.create_log(new.voters, now_ms=self._now_ms)
        data = encode_snapshot(image, now_ms=self._now_ms)
        log.install(end_of(image), data, keeps_log=False, now_ms=self._now_ms)
        log.flush()
        files.close()

    def _own_node_id(self, directory_id: str, plan: RecoveryPlan, new: NewLog) -> int | None:
        """Node id in the metadata directory that is replaced; None if it has none of this cluster.

        If the directory was lost, a start may have made one of a new cluster before it was refused:
        node ids begin anew there, so that its id belongs to another node here.
        """
        with contextlib.suppress(DataDirectoryError):
            own = read_identity(self._file_system, f"{self._data_dirs[0]}/{METADATA}").identity
            if (
                own is not None
                and own.directory_id == directory_id
                and own.cluster_id in (None, "", new.cluster_id)
                and own.node_id not in plan.directories.nodes
            ):
                return own.node_id
        return None

    def _discard(self, path: str) -> None:
        """Remove the unused leftovers of an earlier recovery that was killed."""
        if not self._file_system.is_directory(path):
            return
        for name in self._file_system.list_directory(path):
            inside = f"{path}/{name}"
            if self._file_system.is_directory(inside):
                self._discard(inside)
            else:
                self._file_system.unlink(inside)
        self._file_system.remove_directory(path)


def _lost_voters(found: FoundMetadata) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(voters that are here and cannot vote, voters that are not here)"""
    here = {each.directory_id for each in found.voters}
    fit = {each.directory_id for each in found.voters if each.is_fit}
    unfit = [each for each in found.voting if each in here - fit]
    absent = [each for each in found.voting if each not in here]
    # A directory without an id may be that of any absent voter.
    nameless = sum(not each.directory_id for each in found.voters)
    return (*unfit, *absent[:nameless]), tuple(absent[nameless:])


def _records(united: UnitedLog) -> tuple[list[MetadataRecord], list[str]]:
    """(readable records, flaws)"""
    records: list[MetadataRecord] = []
    flaws = []
    for batch in united.batches:
        for record in iterate_records(memoryview(batch.data)):
            if record.offset < united.snapshot.end.offset:
                continue
            try:
                records.append(decode_metadata_record(record.value or b""))
            except CorruptMessage as error:
                flaws.append(f"offset {record.offset}: {error}")
    return records, flaws

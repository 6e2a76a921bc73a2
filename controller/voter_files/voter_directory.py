"""Files of one voter: its vote, its initial voters, and its copy of the log.

On disk, below `<data dir>/metadata`: a log directory like any other (lock, meta.properties) with
the log `__cluster_metadata-0`, whose leader epoch is the controller epoch, and next to it
`quorum-state` (quorum_state_file) and `acknowledged-offset` (the file of that name).

Invariants: no entry that this voter has acknowledged is dropped without an error. The log is read
before it is opened (metadata_log_check); if something is missing or damaged in it
    behind acknowledged entries     it was being written at a crash: the log is truncated there
    before the snapshot's end       the snapshot replaces it: the log is rewritten from there
    acknowledged, other voters      the log is set aside, and restored from them; until then this
                                    voter does not vote, or acknowledged entries could be lost
    acknowledged, no other voter    the start is refused: file, position, remedy

All methods wait for the disk: call them in a thread, one at a time. The order of writes is decided
in metadata_voter.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import NamedTuple

from ...cluster.quorum.voter import NO_SNAPSHOT, Candidate
from ...protocol.records.record_batch import walk_batches
from ...protocol.topic_name import METADATA_TOPIC
from ...storage.directories.directory_checkpoints import CHECKPOINT_FILES, LOG_STARTS
from ...storage.directories.directory_identity import (
    COPY_NAME as IDENTITY_COPY,
    FILE_NAME as IDENTITY_FILE,
)
from ...storage.directories.log_directory import CLEAN_FILE, LogDirectory
from ...storage.directories.partition_directory import directory_name, retired_directory_name
from ...storage.disk.file_system import FileSystem, sync_directory
from ...storage.disk.storage_failure import (
    DirectoryUnusable,
    StorageFailure,
    refused_or_failed,
)
from ...storage.log.leader_epoch_cache import LeaderEpochCache
from ...storage.log_config import LogConfig
from .acknowledged_offset import FILE_NAME as MARK_FILE, AcknowledgedOffset
from .quorum_state_file import (
    COPY_NAME as STATE_COPY,
    FILE_NAME as STATE_FILE,
    QuorumStateOnDisk,
    read_quorum_state,
    write_quorum_state,
)
from .replicated_log import ReplicatedLog
from .voter_condition import DAMAGED_SUFFIX, VoterFiles, log_path_in, read_voter_files

logger = logging.getLogger(__name__)

METADATA_LOG_CONFIG = LogConfig(
    retention_ms=-1, flush_messages=1, max_message_bytes=64 * 1024**2, file_delete_delay_ms=0
)
METADATA_TOPIC_ID = uuid.UUID(int=1)
REPLACEABLE = (
    *CHECKPOINT_FILES,
    CLEAN_FILE,
    IDENTITY_FILE,
    IDENTITY_COPY,
    STATE_FILE,
    STATE_COPY,
    MARK_FILE,
)
"""Files that a start can do without when one of them is lost."""


class StoredVoter(NamedTuple):
    """State that a start finds on the disk. No log: the directory is not a voter's (yet)."""

    vote: Candidate
    formatted_with: tuple[str, ...]
    """Voters at the time when this one joined the cluster."""
    log: ReplicatedLog | None
    catches_up: bool = False
    """Whether it lost entries that it had acknowledged, and must not vote until it has them again.
    """


class VoterDirectory:
    """Directory of one voter; see `open`."""

    def __init__(self, data_dir: str, file_system: FileSystem) -> None:
        self.path = f"{data_dir.rstrip('/')}/metadata"
        self._file_system = file_system
        self._directory: LogDirectory | None = None
        self._mark = AcknowledgedOffset(file_system, self.path)
        self._catches_up = False

    def open(self, *, directory_id: str, now_ms: int) -> StoredVoter:
        """Lock the directory and recover the log. `directory_id`: its identity if it is new.

        Raises:
            DataDirectoryError: locked by a live broker, not writable, damaged, and so on. One line
                that names the file and the remedy.
        """
        try:
            return self._open(directory_id, now_ms)
        except (OSError, StorageFailure) as error:
            self._unlock()
            raise DirectoryUnusable(
                f"{self.path}: {_words(error)}; make it readable and writable for this user, or, "
                f"if the disk has lost it, {self._remedy}"
            ) from error
        except BaseException:
            self._unlock()
            raise

    def _open(self, directory_id: str, now_ms: int) -> StoredVoter:
        if self._file_system.is_directory(self.path):
            self._set_directories_aside(now_ms)
        found_state = read_quorum_state(self._file_system, self.path)
        own_id = self._own_id(found_state.state)
        directory = LogDirectory.open(
            self._file_system,
            self.path,
            directory_id=own_id or directory_id,
            is_known=bool(own_id),
        )
        self._directory = directory
        # Who reads users' SCRAM keys can try passwords, and play the broker to their clients.
        self._file_system.make_private(self.path)
        if directory.identity_flaw:
            logger.warning("%s: restored from the other copy", directory.identity_flaw)
        files = read_voter_files(self._file_system, self.path, found_state)
        state = self._state_of(files, directory.identity.directory_id)
        if files.had_log:
            state = self._repair(files, state, now_ms)
        logs = directory.load_logs(lambda topic: METADATA_LOG_CONFIG, now_ms=now_ms)
        for flaw in directory.checkpoints.flaws:
            logger.warning("%s", flaw)
        log = logs.get((METADATA_TOPIC, 0))
        if log is None and state.catches_up:
            log = directory.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)
        self._catches_up = state.catches_up
        if log is None:
            return StoredVoter(state.vote, state.voters, None)
        # Formatted by a version that had only one voter: this one.
        voters = state.voters or (directory.identity.directory_id,)
        opened = ReplicatedLog(self._file_system, directory, log, self._mark)
        opened.open(voters, now_ms=now_ms)
        return StoredVoter(state.vote, voters, opened, state.catches_up)

    def _unlock(self) -> None:
        if self._directory is not None:
            self._directory.close(clean=False)
            self._directory = None

    @property
    def _log_path(self) -> str:
        return log_path_in(self.path)

    @property
    def _remedy(self) -> str:
        data_dir = self.path.rpartition("/")[0]
        return f"run `bradbury metadata recover {data_dir}` (with --dry-run it changes nothing)"

    # --- what a start finds ----------------------------------------------------------------------

    def _own_id(self, state: QuorumStateOnDisk | None) -> str:
        """Id of a directory whose meta.properties and its copy are lost; "": it is new.

        Raises DirectoryUnusable: no file has it any more.
        """
        names = (IDENTITY_FILE, IDENTITY_COPY)
        if any(self._file_system.exists(f"{self.path}/{name}") for name in names):
            return ""
        if state is not None and state.directory_id:
            logger.warning(
                "%s/%s is missing: restored from %s", self.path, IDENTITY_FILE, STATE_FILE
            )
            return state.directory_id
        if state is None and not self._file_system.is_directory(self._log_path):
            return ""
        voters = ", ".join(state.voters) if state is not None else "unknown"
        raise DirectoryUnusable(
            f"{self.path}/{IDENTITY_FILE} is missing, but there is a metadata log; restore it with "
            f"the lines version=1, cluster.id= and directory.id= (voters: {voters}), or "
            f"{self._remedy}"
        )

    def _state_of(self, files: VoterFiles, directory_id: str) -> QuorumStateOnDisk:
        """Stored vote. If none of its files can be read, it is derived from the log."""
        found, flaws, is_new = files.state
        if found is not None:
            if flaws and any(not flaw.endswith(f"{STATE_COPY} is missing") for flaw in flaws):
                logger.warning("%s: restored from the other copy", "; ".join(flaws))
            found = replace(found, directory_id=directory_id)
            if flaws:
                self._store(found)
            return found
        if is_new and not files.had_log:
            return QuorumStateOnDisk(directory_id=directory_id)
        voters = files.voters
        if set(voters) - {directory_id}:
            raise DirectoryUnusable(
                f"{flaws[0]}, and so is its copy: the vote of this voter is unknown; other "
                f"nodes hold the metadata, too: move {self.path} away, start again, and replace "
                f"voter {directory_id} (`bradbury voters remove {directory_id}`, then `add`)"
            )
        # The only voter: in an epoch that is not in the log nothing was committed.
        logger.warning("%s: rebuilt from the metadata log", "; ".join(flaws))
        vote = Candidate(epoch=files.check.last_epoch + 1, owner="")
        state = QuorumStateOnDisk(vote=vote, voters=voters, directory_id=directory_id)
        self._store(state)
        return state

    # --- damage ----------------------------------------------------------------------------------

    def _repair(
        self, files: VoterFiles, state: QuorumStateOnDisk, now_ms: int
    ) -> QuorumStateOnDisk:
        """Repair the files, see the module. Raises DirectoryUnusable: acknowledged entries exist
        nowhere else.
        """
        acknowledged, whole_to, damage = files.condition(state.directory_id)
        if damage is None:
            if files.is_misread(was_clean=self.directory.was_clean):
                self._rewrite(files, whole_to, now_ms)
            else:
                self._check_epochs(files)
            return state
        if not set(files.voters) - {state.directory_id}:
            raise DirectoryUnusable(
                f"{damage}; everything before offset {acknowledged} was committed, and no other "
                f"voter has it: restore the file, or {self._remedy}"
            )
        logger.error("%s; setting the log aside and restoring it from the other voters", damage)
        state = replace(state, catches_up=True)
        self._store(state)
        self._set_log_aside(now_ms)
        return state

    def _check_epochs(self, files: VoterFiles) -> None:
        """Remove the leader epoch file if it contradicts the log; it has no checksum, and is
        rebuilt.
        """
        cache = LeaderEpochCache(self._file_system, self._log_path)
        start = max(files.snapshot.end.offset, files.log_start)  # earlier epochs are not kept
        if not cache.entries or all(  # absent or damaged: opening the log detects that
            cache.epoch_at(header.base_offset) == header.leader_epoch
            for run in files.check.runs
            for _, header in walk_batches(memoryview(run.batches))
            if start <= header.base_offset < files.recovery_point  # above it all is read again
        ):
            return
        logger.warning("%s is inconsistent with the log; rebuilding it", cache.path)
        self._file_system.unlink(cache.path)

    def _rewrite(self, files: VoterFiles, end: int, now_ms: int) -> None:
        """Rewrite the log from its undamaged parts: the snapshot, and the batches behind it."""
        flaw: object = (
            files.check.flaw_from(0) or f"{', '.join(files.check.obstacles)} are not files"
        )
        if files.log_start > files.snapshot.end.offset:
            flaw = "; ".join(files.snapshot.flaws) or "its snapshot is missing"
        logger.warning("%s: %s; rewriting the log without it", self._log_path, flaw)
        place = f"{self.path}/rewritten"
        _remove_tree(self._file_system, place)
        beside = VoterDirectory(place, self._file_system)
        other = LogDirectory.open(self._file_system, beside.path, directory_id="rewritten")
        try:
            other.load_logs(lambda topic: METADATA_LOG_CONFIG, now_ms=now_ms)
            beside._directory = other
            log = beside.create_log((), now_ms=now_ms)
            if files.snapshot.data:
                log.install(files.snapshot.end, files.snapshot.data, keeps_log=False, now_ms=now_ms)
            for run in files.check.runs:
                log.append_missing(run.batches, end, now_ms=now_ms)
            log.flush()
            log.close()
        finally:
            other.close(clean=False)
        made = f"{beside.path}/{directory_name(METADATA_TOPIC, 0)}"
        self._set_log_aside(now_ms, keeps_mark=True)
        self._file_system.rename(made, self._log_path)
        if files.log_start > files.snapshot.end.offset:
            self._file_system.unlink(f"{self.path}/{LOG_STARTS}")
        sync_directory(self._file_system, self.path)
        _remove_tree(self._file_system, place)

    def _set_log_aside(self, now_ms: int, *, keeps_mark: bool = False) -> None:
        """Set the log aside. `keeps_mark`: another log replaces it; else the mark is set aside,
        too, as nothing is acknowledged here any more.
        """
        if not keeps_mark:
            mark = self._mark.read()
            if mark is not None:
                self._file_system.make_directory(self._log_path)
                aside = AcknowledgedOffset(self._file_system, self._log_path)
                aside.set_durably(mark)
                aside.close()
            self._mark.set_durably(NO_SNAPSHOT)
        if self._file_system.exists(self._log_path):
            name = retired_directory_name(
                METADATA_TOPIC, 0, suffix=DAMAGED_SUFFIX, unique_id=uuid.UUID(int=now_ms)
            )
            self._file_system.rename(self._log_path, f"{self.path}/{name}")
            sync_directory(self._file_system, self.path)

    def _set_directories_aside(self, now_ms: int) -> None:
        for name in REPLACEABLE:
            path = f"{self.path}/{name}"
            if self._file_system.is_directory(path):
                logger.warning("%s is a directory: renaming it to %s.%d", path, name, now_ms)
                self._file_system.rename(path, f"{path}.{now_ms}")

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, "open() comes first"
        return self._directory

    def store(
        self, vote: Candidate, voters: tuple[str, ...], *, catches_up: bool | None = None
    ) -> None:
        """Store vote and voters durably, all or none. `catches_up`: None leaves it unchanged.

        Raises:
            KafkaStorageError: the disk is full; nothing has changed.
            StorageFailure: the disk failed.
        """
        if catches_up is not None:
            self._catches_up = catches_up
        state = QuorumStateOnDisk(
            vote=vote,
            voters=voters,
            directory_id=self.directory.identity.directory_id,
            catches_up=self._catches_up,
        )
        try:
            self._mark.sync()
            self._store(state)
        except OSError as error:
            where = f"writing {self.path}/{STATE_FILE}"
            raise refused_or_failed(self.directory.health, where, error) from error

    def _store(self, state: QuorumStateOnDisk) -> None:
        write_quorum_state(self._file_system, self.path, state)

    def assign_cluster(self, cluster_id: str) -> None:
        """Store the cluster id of the directory. Repeating it changes nothing."""
        self.directory.assign_identity(cluster_id=cluster_id)

    def create_log(self, formatted_with: tuple[str, ...], *, now_ms: int) -> ReplicatedLog:
        """Create an empty log."""
        log = self.directory.create_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG)
        made = ReplicatedLog(self._file_system, self.directory, log, self._mark)
        made.open(formatted_with, now_ms=now_ms)
        return made

    def close(self) -> None:
        """Flush everything, write the clean shutdown mark, unlock. Raises KafkaStorageError."""
        try:
            self._mark.close()
        except OSError as error:
            failure = self.directory.health.fail(f"closing {self._mark.path}", error)
            self.directory.close(clean=False)
            raise failure from error
        self.directory.close(clean=True)


def _remove_tree(file_system: FileSystem, path: str) -> None:
    if not file_system.is_directory(path):
        return
    for name in file_system.list_directory(path):
        inside = f"{path}/{name}"
        if file_system.is_directory(inside):
            _remove_tree(file_system, inside)
        else:
            file_system.unlink(inside)
    file_system.remove_directory(path)


def _words(error: OSError | StorageFailure) -> str:
    """Text of an error, with the file's name if the system gave one."""
    # Compiled modules raise without a cause: mypyc leaves "from error" out.
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, OSError):
        return f"{cause.filename or error}: {cause.strerror or cause}"
    return str(error)

"""Condition of a voter's directory, read before it is changed, and whether it may vote.

Not here: what is done about damage (voter_directory; metadata_rebuild, where no majority is fit).
"""

from __future__ import annotations

from typing import NamedTuple

from ...cluster.quorum.metadata_snapshot import decode_snapshot
from ...cluster.quorum.voter import LogEnd
from ...cluster.quorum.voter_history import voters_in
from ...protocol.topic_name import METADATA_TOPIC
from ...storage.directories.directory_checkpoints import LOG_STARTS, RECOVERY_POINTS
from ...storage.directories.partition_directory import directory_name
from ...storage.disk.checkpoint_file import read_offsets
from ...storage.disk.file_system import FileSystem
from ...storage.segments.segment_files import LOG_SUFFIX
from .acknowledged_offset import AcknowledgedOffset
from .metadata_log_check import MetadataLogCheck, check_metadata_log
from .quorum_state_file import FoundQuorumState
from .replicated_log import FoundSnapshot, find_snapshot

DAMAGED_SUFFIX = "-damaged"
"""Suffix of the directory of a log that was set aside."""


class LogCondition(NamedTuple):
    """Condition of the log. acknowledged: offset up to which the voter has acknowledged the log;
    whole_to: offset up to which it is undamaged. damage: flaw in what was acknowledged; None: all
    of it is there.
    """

    acknowledged: int
    whole_to: int
    damage: str | None


class VoterFiles(NamedTuple):
    """Files found in `log_path` and next to it."""

    log_path: str
    state: FoundQuorumState
    check: MetadataLogCheck
    snapshot: FoundSnapshot
    mark: LogEnd | None
    log_start: int
    """Start of the log, as stored when it was last dropped up to a snapshot; 0: nothing stored."""
    recovery_point: int
    """Stored recovery point: the log is fsynced up to it; 0: nothing stored."""

    @property
    def voters(self) -> tuple[str, ...]:
        """Voters by the newest readable record, even behind damage."""
        for run in reversed(self.check.runs):
            named = list(voters_in(run.batches))
            if named and named[-1][0] >= self.snapshot.end.offset:
                return named[-1][1]
        if self.snapshot.data:
            return decode_snapshot(self.snapshot.data).voters
        return self.state.state.voters if self.state.state else ()

    @property
    def had_log(self) -> bool:
        """Whether there was a log, whatever is left of it. A vote or voters alone do not prove it:
        a node may vote before it has a log, and a crash may come between storing the voters and
        creating the log.
        """
        return self.mark is not None or bool(self.check.segments or self.snapshot.end.offset)

    def is_misread(self, *, was_clean: bool) -> bool:
        """Whether opening would misread the log, though no acknowledged entry is damaged: it scans
        only the last segment, from the recovery point on (nothing after a clean stop), and
        truncates it at a torn batch.
        """
        check, start = self.check, self.snapshot.end.offset
        flaw = check.flaw_from(start)
        is_cut = flaw is None or (
            not was_clean
            and flaw.offset >= self.recovery_point
            and flaw.path.endswith(f"/{check.last_segment:020d}{LOG_SUFFIX}")
        )
        return (
            not is_cut
            or bool(check.obstacles)
            or check.is_out_of_order
            or check.flaw_from(0) != flaw
            # A snapshot is lost, and the entries that it replaced are not yet deleted.
            or self.log_start > start
        )

    def condition(self, directory_id: str) -> LogCondition:
        """Condition of the log of voter `directory_id`; without a log nothing is acknowledged."""
        check, snapshot, mark = self.check, self.snapshot, self.mark
        acknowledged = max(snapshot.end.offset, 0 if mark is None else mark.offset)
        if mark is None or not set(self.voters) - {directory_id}:
            # A single voter fsyncs each batch before the next: batches behind a flaw could not have
            # been written if it had been there, so all of them were acknowledged.
            acknowledged = max(acknowledged, check.end_offset)
        whole_to = check.whole_to(snapshot.end.offset)
        return LogCondition(acknowledged, whole_to, self._damage(acknowledged, whole_to))

    def _damage(self, acknowledged: int, whole_to: int) -> str | None:
        check, snapshot = self.check, self.snapshot
        if not check.segments and (not snapshot.end.offset or acknowledged > snapshot.end.offset):
            return f"{self.log_path} is gone, or there is no log in it"
        begins_at = min((run.base_offset for run in check.runs), default=0)
        flaw = check.flaw_from(snapshot.end.offset)
        if begins_at > snapshot.end.offset and (flaw is None or flaw.offset >= begins_at):
            lost = "; ".join(snapshot.flaws) or "it is missing"
            return (
                f"the log in {self.log_path} begins at {begins_at}, and the snapshot that stands "
                f"for what was before cannot be read: {lost}"
            )
        if whole_to >= acknowledged:
            return None
        if flaw is not None:
            return str(flaw)
        return f"{self.log_path} ends at offset {whole_to}, and {acknowledged} was acknowledged"


def log_path_in(path: str) -> str:
    """Path of the log in a voter's directory, `<data dir>/metadata`."""
    return f"{path}/{directory_name(METADATA_TOPIC, 0)}"


def read_voter_files(file_system: FileSystem, path: str, state: FoundQuorumState) -> VoterFiles:
    """Read the files in a voter's directory, `<data dir>/metadata`, which may be absent. Raises
    OSError.
    """
    log_path = log_path_in(path)

    def noted(name: str) -> int:
        checkpoint = f"{path}/{name}"
        if not file_system.exists(checkpoint) or file_system.is_directory(checkpoint):
            return 0
        return (read_offsets(file_system, checkpoint) or {}).get((METADATA_TOPIC, 0), 0)

    snapshot = find_snapshot(file_system, log_path)
    return VoterFiles(
        log_path,
        state,
        check_metadata_log(file_system, log_path, snapshot.end),
        snapshot,
        AcknowledgedOffset(file_system, path).read(),
        noted(LOG_STARTS),
        noted(RECOVERY_POINTS),
    )

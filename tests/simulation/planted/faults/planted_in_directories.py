"""Planted faults of log directories, and of what is deleted and moved there; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.handlers.records import fetch_reading
from bradbury.replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from bradbury.replication.logs.directory_lifecycle import DirectoryLifecycle
from bradbury.replication.logs.log_flusher import LogFlusher
from bradbury.replication.manager.offline_replicas_manager import OfflineReplicasManager
from bradbury.replication.manager.replica_manager import ReplicaManager
from bradbury.replication.partition.delayed_delete_records import DelayedDeleteRecords
from bradbury.replication.partition.replica_flush import ReplicaFlush
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.directories.partition_directory import directory_name
from bradbury.storage.directories.replica_directories import ReplicaPlacements
from bradbury.storage.log import retention
from bradbury.storage.log.local_log import LocalLog
from bradbury.storage.log.partition_log import PartitionLog

from ..fault_registry import Patch, fault

# --- disks that fail -----------------------------------------------------------------------------

FAILING = {"kinds": ("disk error", "kill"), "min_insync": 2, "fault_every_ms": 150}


@fault(**FAILING, flushes=True)
def a_failed_fsync_counts(patch: Patch) -> None:
    """The leader takes what it could not bring to the disk for durable, and its disk for sound."""

    def on_work_done(flush: ReplicaFlush, work: Any, failure: Any, now_ms: int) -> None:
        flush._is_flushing = False
        work.complete()
        flush._replica.on_flushed()

    patch(ReplicaFlush, "on_work_done", on_work_done)
    patch(ReplicaManager, "on_storage_failure", lambda manager: None)


@fault(**FAILING)
def a_failed_disk_is_believed_in_the_next_life(patch: Patch) -> None:
    """The token stays, as if only the process had died."""
    patch(DirectoryLifecycle, "on_directory_failed", lambda lifecycle: None)


@fault(kinds=("damage", "kill"), min_insync=2, fault_every_ms=150)
def a_damaged_log_counts_as_whole(patch: Patch) -> None:
    """What was cut off where it was torn by nobody's death is not missed."""
    patch(
        LogDirectory,
        "has_all_data",
        lambda directory, is_intact: (
            directory.was_clean
            or directory.identity.node_id is None
            or is_intact(directory.identity.directory_id)
        ),
    )


@fault(
    kinds=("damage", "kill", "controller", "group"),
    min_insync=2,
    fault_every_ms=100,
    outage_ms=100,
    checkpoint_ms=900,
    flushes=False,
)
def damage_is_reported_by_one_life_only(patch: Patch) -> None:
    """As this cluster once did: the damage is cut off, and if this life ends before it has reported
    it, the next one finds nothing wrong.
    """
    original = DirectoryLifecycle.open

    def open_directories(lifecycle: DirectoryLifecycle, wall_ms: int) -> None:
        make_token = lifecycle._token_of

        def token_of(directories: Any) -> Any:
            token = make_token(directories)
            token.remove = lambda: None
            return token

        lifecycle._token_of = token_of
        original(lifecycle, wall_ms)
        del lifecycle._token.remove

    patch(DirectoryLifecycle, "open", open_directories)


@fault(kinds=("stop", "kill"), min_insync=1, fault_every_ms=80, fsync_ms=10, outage_ms=100)
def the_token_goes_before_the_clean_mark_is_there(patch: Patch) -> None:
    """As this cluster once did: who is killed while it stops is taken for one that lost its data."""
    original = DirectoryLifecycle.end

    def end(lifecycle: DirectoryLifecycle) -> Any:
        if lifecycle._token is not None:
            lifecycle._token.remove()
        return original(lifecycle)

    patch(DirectoryLifecycle, "end", end)


@fault(**FAILING, directories=2)
def a_missing_directorys_partitions_are_created_again(patch: Patch) -> None:
    """Empty, in the directory that is left, where they were acknowledged in the other one."""

    def place(placements: ReplicaPlacements, replicas: Any) -> Any:
        return dict.fromkeys(replicas, placements._online[0])

    patch(ReplicaPlacements, "place", place)
    patch(LogDirectories, "has_all_data", lambda directories, is_intact: True)


# --- directories that fail while the node lives on (KIP-858) ---------------------------------------

LIVING_ON = {
    "kinds": ("disk error",),
    "directories": 2,
    "min_insync": 2,
    "partitions": 3,
    "fault_every_ms": 600,
    "outage_ms": 3_000,
}


@fault(**LIVING_ON)
def what_is_offline_is_not_reported(patch: Patch) -> None:
    """The node lives on and is asked for what it cannot serve, though others could."""
    patch(OfflineReplicasManager, "look", lambda manager: None)


# --- what is deleted -----------------------------------------------------------------------------

DELETING = {"kinds": ("delete records", "kill", "cut"), "fault_every_ms": 150, "min_insync": 2}


@fault(**DELETING)
def deleted_before_all_in_sync_have_done_it(patch: Patch) -> None:
    """DeleteRecords is answered when the leader has deleted."""
    patch(DelayedDeleteRecords, "is_deleted", lambda deletes, offset: True)


@fault(**DELETING, checkpoint_ms=900)
def deleted_before_it_is_on_the_disk(patch: Patch) -> None:
    """DeleteRecords does not wait for the checkpoint of the log start."""

    def checkpoint(flusher: LogFlusher) -> Any:
        return
        yield

    patch(LogFlusher, "checkpoint", checkpoint)


@fault(kinds=("kill", "pause", "group"), retention_ms=1, segment_bytes=400, fault_every_ms=150)
def retention_does_not_stop_at_the_high_watermark(patch: Patch) -> None:
    """Whole segments go as soon as they are old, committed or not."""
    original = retention.choose_deletions
    patch(
        retention,
        "choose_deletions",
        lambda segments, config, **rest: original(
            segments, config, **{**rest, "high_watermark": 2**62}
        ),
    )

    def advance_log_start_offset(log: PartitionLog, offset: int) -> None:
        log.log_start_offset = max(offset, log.log_start_offset)
        log.epochs.truncate_from_start(offset)

    patch(PartitionLog, "advance_log_start_offset", advance_log_start_offset)


@fault(kinds=("kill", "pause"), retention_ms=500, segment_bytes=400, outage_ms=2_000)
def epochs_of_deleted_records_stay(patch: Patch) -> None:
    """As this log once did: a follower that begins again further on keeps its former epochs."""
    original = PartitionLog.truncate_fully_and_start_at

    def truncate_fully_and_start_at(log: PartitionLog, offset: int) -> None:
        kept = log.epochs.entries
        original(log, offset)
        log.epochs.assign_all(kept)

    patch(PartitionLog, "truncate_fully_and_start_at", truncate_fully_and_start_at)


# --- moves between directories -------------------------------------------------------------------

MOVING = {"directories": 2, "fault_every_ms": 100, "fsync_ms": 10, "pace_ms": 25}


@fault(
    **{**MOVING, "fsync_ms": 30, "pace_ms": 10},
    kinds=("move", "move", "pause", "group"),
    session_ms=600,
    min_insync=1,
    flushes=False,
    loss=0.1,
)
def a_truncation_is_not_noticed_by_a_move(patch: Patch) -> None:
    """As this cluster once did: the copy takes over with what the log has dropped meanwhile."""
    original = AlterLogDirsManager._switch

    def switch(moves: AlterLogDirsManager, move: Any, source: Any) -> bool:
        move.truncations = move.replica.log.local.truncations
        return original(moves, move, source)

    patch(AlterLogDirsManager, "_switch", switch)


@fault(**MOVING, kinds=("move", "power"), flushes=True, min_insync=2)
def the_former_log_goes_before_the_new_one_is_on_the_disk(patch: Patch) -> None:
    """Nothing is flushed when the copy has taken over."""

    def finish(moves: AlterLogDirsManager, move: Any, source: LogDirectory) -> Any:
        source.deletions.delete([f"{source.path}/{directory_name(*move.key)}"])
        return
        yield

    patch(AlterLogDirsManager, "_finish", finish)


@fault(**MOVING, kinds=("move",))
def a_copy_takes_over_too_early(patch: Patch) -> None:
    """What was appended since the last look at the log is not copied."""
    original = AlterLogDirsManager._switch

    def switch(moves: AlterLogDirsManager, move: Any, source: Any) -> bool:
        log = move.replica.log
        end = move.future.log_end_offset
        if log.log_end_offset > end >= log.log_start_offset:
            log.truncate_to(end)
            move.truncations = log.local.truncations
        return original(moves, move, source)

    patch(AlterLogDirsManager, "_switch", switch)


# --- racks ---------------------------------------------------------------------------------------


@fault(kinds=("kill", "reassign"), racks=2, nodes=5)
def consumers_are_sent_to_any_node_of_their_rack(patch: Patch) -> None:
    """Whether that has a replica in sync or not (KIP-392)."""

    def nearest(replica: Any, wanted: Any, request: Any, context: Any) -> int | None:
        nodes = context.node.image.nodes
        own = nodes.get(context.node.node_id)
        if not request.rack_id or own is None or own.rack == request.rack_id:
            return None
        return next((n.node_id for n in nodes.values() if n.rack == request.rack_id), None)

    patch(fetch_reading, "_nearest", nearest)


@fault(kinds=("move", "power"), directories=2, fault_every_ms=150, segment_bytes=1_500)
def a_copy_from_another_life_may_have_gaps(patch: Patch) -> None:
    """As this node once did: a move that is gone on with after a start copies to where a power loss
    has left a gap; and where another one leaves one later, nobody misses it.
    """
    original = LogDirectory._open_log

    def open_log(directory: LogDirectory, path: str, *arguments: Any, **more: Any) -> PartitionLog:
        if path.endswith("-future"):
            more["cleaner_offset"] = 0
        return original(directory, path, *arguments, **more)

    original_switch = AlterLogDirsManager._switch

    def switch(manager: AlterLogDirsManager, move: Any, source: LogDirectory) -> bool:
        cleaner_offset = move.future.compaction.cleaner_offset
        has_switched = original_switch(manager, move, source)
        if has_switched:
            move.future.compaction.cleaner_offset = cleaner_offset
        return has_switched

    patch(LogDirectory, "_open_log", open_log)
    patch(AlterLogDirsManager, "_switch", switch)


@fault(kinds=("full disk", "delete records", "kill"), fault_every_ms=100, outage_ms=100)
def a_deletion_that_a_full_disk_refused_is_answered(patch: Patch) -> None:
    """As this node once did: the log start is not on the disk when it is said to be."""
    original = LogFlusher.checkpoint

    def checkpoint(flusher: LogFlusher, log: PartitionLog | None = None) -> Any:
        return original(flusher)

    patch(LogFlusher, "checkpoint", checkpoint)


@fault(
    kinds=("full disk", "kill"),
    fault_every_ms=100,
    outage_ms=500,
    retention_ms=1_000,
    segment_bytes=600,
)
def what_was_deleted_on_a_full_disk_counts_as_lost(patch: Patch) -> None:
    """As this node once did: nothing is left of a deleted segment, and the checkpoint with the new
    log start was refused.
    """
    original = LocalLog.delete_old_files

    def delete_old_files(local: LocalLog, now_ms: int, *, keeps_marks: bool = False) -> int:
        return original(local, now_ms)

    patch(LocalLog, "delete_old_files", delete_old_files)

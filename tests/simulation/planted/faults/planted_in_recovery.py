"""Planted faults for the world of damaged voters; see recovery_world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bradbury.cluster.metadata import metadata_recovery
from bradbury.cluster.metadata.metadata_records import AccessControlEntryRecord
from bradbury.cluster.metadata.metadata_recovery import KnownMetadata
from bradbury.controller.voter_files import (
    metadata_copies,
    metadata_rebuild,
    voter_condition,
    voter_directory,
)
from bradbury.controller.voter_files.metadata_copies import MetadataCopy, UnitedLog
from bradbury.controller.voter_files.metadata_log_check import MetadataLogCheck
from bradbury.controller.voter_files.metadata_rebuild import MetadataRebuild
from bradbury.controller.voter_files.voter_condition import VoterFiles
from bradbury.controller.voter_files.voter_directory import VoterDirectory

from ..fault_registry import Patch, PlantedFault, fault

RECOVERY_FAULTS: dict[str, PlantedFault] = {}


@fault(RECOVERY_FAULTS)
def rules_of_access_are_left_out(patch: Patch) -> None:
    """As once in shipped code."""
    original = KnownMetadata._apply

    def apply(known: KnownMetadata, record: Any) -> None:
        if not isinstance(record, AccessControlEntryRecord):
            original(known, record)

    patch(KnownMetadata, "_apply", apply)


@fault(RECOVERY_FAULTS)
def one_copy_counts_the_first_of_the_furthest(patch: Patch) -> None:
    """As once in shipped code: what another one has in its place is not looked for."""
    original = metadata_copies.unite

    def unite(copies: Sequence[MetadataCopy]) -> UnitedLog:
        return original([max(copies, key=lambda each: each.end)])

    patch(metadata_rebuild, "unite", unite)


@fault(RECOVERY_FAULTS, first_seed=110)
def what_another_copy_has_in_a_gap_is_taken_unseen(patch: Patch) -> None:
    """It may have been written by a controller that had lost already."""
    patch(metadata_copies, "equal_up_to", lambda copy, last_of_epochs: copy.end.offset)


@fault(RECOVERY_FAULTS)
def a_log_whose_snapshot_is_gone_begins_where_that_ended(patch: Patch) -> None:
    """As once in shipped code, while the log still has what the snapshot stood for."""
    patch(voter_condition, "read_offsets", lambda file_system, path: {})


@fault(RECOVERY_FAULTS)
def a_hole_is_an_end(patch: Patch) -> None:
    """As once in shipped code: a segment that is gone, and an empty one behind it."""
    patch(
        MetadataLogCheck,
        "end_offset",
        property(lambda check: max((run.next_offset for run in check.runs), default=0)),
    )
    ignored = property(lambda check: False, lambda check, value: None)
    patch(MetadataLogCheck, "is_out_of_order", ignored)


@fault(RECOVERY_FAULTS)
def the_mark_is_not_looked_at(patch: Patch) -> None:
    """A log that ends early is taken for one that was never longer."""
    original = voter_condition.read_voter_files

    def read(*arguments: Any) -> VoterFiles:
        return original(*arguments)._replace(mark=None)

    patch(metadata_rebuild, "read_voter_files", read)
    patch(voter_directory, "read_voter_files", read)


@fault(RECOVERY_FAULTS)
def what_is_set_aside_takes_nothing_with_it(patch: Patch) -> None:
    """The acknowledged offset of a voter is forgotten; as once in shipped code."""
    original = VoterDirectory._set_log_aside

    def set_aside(directory: VoterDirectory, now_ms: int, *, keeps_mark: bool = False) -> None:
        original(directory, now_ms, keeps_mark=keeps_mark)
        files = directory._file_system
        for name in files.list_directory(directory.path):
            path = f"{directory.path}/{name}/acknowledged-offset"
            if files.exists(path):
                files.unlink(path)

    patch(VoterDirectory, "_set_log_aside", set_aside)


@fault(RECOVERY_FAULTS)
def leader_epochs_begin_where_the_records_say(patch: Patch) -> None:
    """The records may be older than what is in the partitions' directories."""
    original = metadata_recovery._Recovery._partition_records

    def records(recovery: Any, topic_id: Any, name: str, here: Any) -> Any:
        lower = {
            index: [each._replace(leader_epoch=0) for each in found]
            for index, found in here.items()
        }
        return original(recovery, topic_id, name, lower)

    patch(metadata_recovery._Recovery, "_partition_records", records)


@fault(RECOVERY_FAULTS)
def a_majority_is_thought_to_be_somewhere(patch: Patch) -> None:
    """Voters that are not among the directories count as fit, though none of them is there."""
    original = metadata_rebuild._lost_voters
    patch(metadata_rebuild, "_lost_voters", lambda found: ((), original(found)[1]))


@fault(RECOVERY_FAULTS)
def a_recovery_that_was_killed_is_taken_for_done(patch: Patch) -> None:
    """Its renames are not finished."""
    patch(MetadataRebuild, "finish", lambda rebuild: None)

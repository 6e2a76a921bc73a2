"""Planted faults of the metadata quorum, for its own world; see planted_faults and quorum_world.

Some show only there, as a cluster hardly has five voters and rival controllers at once. The others
are those of planted_in_controllers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bradbury.cluster.quorum.metadata_quorum import MetadataQuorum
from bradbury.cluster.quorum.metadata_snapshot import encode_snapshot, end_of
from bradbury.cluster.quorum.voter import LogEnd
from bradbury.controller import metadata_voter
from bradbury.controller.candidate_state import AdoptedLog
from bradbury.controller.metadata_leader import MetadataLeader

from ..fault_registry import Patch, PlantedFault, fault
from ..planted_faults import FAULTS

QUORUM_FAULTS: dict[str, PlantedFault] = {}
"""`seen_by`: arguments of a QuorumWorld in which it shows."""


def _also(name: str, **seen_by: Any) -> None:
    known = FAULTS[name]
    QUORUM_FAULTS[name] = PlantedFault(name, known.says, known.plant, seen_by)


_also("entries of former epochs are counted", snapshots=0, changes=0, rivals=2, short_lives=1)
_also("the longest log is adopted", snapshots=0, changes=0, rivals=1)
_also("half of the voters are a majority")
_also("a vote does not survive")
_also("a voter answers before its fsync")
_also("a voter obeys everybody")
_also("a contradicting suffix is kept")
_also("answered before it is committed", snapshots=0)
_also("a new voter counts before it has the log", changes=4, voters=1)


@fault(QUORUM_FAULTS, snapshots=1)
def a_snapshot_of_the_whole_log(patch: Patch) -> None:
    """It stands for what is not committed yet, too."""
    original = MetadataLeader.append

    def append(leader: MetadataLeader, batch: bytes, count: int, now: Any, **rest: Any) -> int:
        end_offset = original(leader, batch, count, now, **rest)
        if end_offset % 4 == 0:
            log = leader._replication
            image = AdoptedLog(log.snapshot, log.batches).image()
            leader.compact(end_of(image), encode_snapshot(image, now_ms=0), now)
        return end_offset

    patch(MetadataLeader, "append", append)
    patch(MetadataQuorum, "compact", lambda quorum, end: setattr(quorum, "start", end))


@fault(QUORUM_FAULTS, snapshots=1, changes=0)
def a_log_is_kept_behind_another_ones_snapshot(patch: Patch) -> None:
    """A voter does not begin its log again when it is not what the snapshot stands for."""
    original = metadata_voter.on_snapshot
    patch(
        metadata_voter,
        "on_snapshot",
        lambda *args, **rest: original(*args, **rest)._replace(keeps_log=True),
    )


def _appends_do_not_wait(patch: Patch) -> None:
    """For each other: a leader that brings one batch at a time changes nothing too early."""
    original = MetadataLeader.append

    def append(leader: MetadataLeader, *args: Any, **rest: Any) -> int:
        leader.deadlines.commits_at = None
        return original(leader, *args, **rest)

    patch(MetadataLeader, "append", append)
    patch(MetadataLeader, "is_appending", property(lambda leader: False))


@fault(QUORUM_FAULTS, changes=8, snapshots=0, rivals=2)
def the_voters_are_changed_again_at_once(patch: Patch) -> None:
    """Before the last change is committed; only an entry of the own epoch is."""

    def change_voters(quorum: MetadataQuorum, voters: Collection[str]) -> None:
        assert quorum._led_from is not None
        if quorum.committed <= quorum._led_from:
            raise ValueError("no entry of this epoch is committed yet")
        quorum._voters = frozenset(voters)

    _appends_do_not_wait(patch)
    patch(MetadataQuorum, "change_voters", change_voters)


@fault(QUORUM_FAULTS, changes=6, snapshots=0, rivals=2, short_lives=0.3)
def the_voters_are_changed_before_the_epoch_is_committed(patch: Patch) -> None:
    """The error in Raft's first rule of membership changes: rivals' majorities need not meet."""

    def change_voters(quorum: MetadataQuorum, voters: Collection[str]) -> None:
        if quorum._voters_from and quorum.committed <= quorum._voters_from:
            raise ValueError("the previous change of the voters is not committed yet")
        quorum._voters_from = quorum.end.offset
        quorum._voters = frozenset(voters)

    _appends_do_not_wait(patch)
    patch(MetadataQuorum, "change_voters", change_voters)


@fault(QUORUM_FAULTS, changes=6, rivals=2)
def a_controller_goes_by_the_voters_of_before(patch: Patch) -> None:
    """By those that it knew when it began, not by those of the log that it adopts."""
    original = MetadataQuorum.on_vote

    def on_vote(quorum: MetadataQuorum, voter: str, end: LogEnd, voters: Any = ()) -> None:
        del voters
        original(quorum, voter, end)

    patch(MetadataQuorum, "on_vote", on_vote)

"""Planted faults of damage and its healing; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from bradbury.replication.logs.log_compactor import LogCompactor
from bradbury.replication.logs.log_scrub import LogScrub
from bradbury.replication.logs.segment_healer import SegmentHealer
from bradbury.replication.partition.replica import Replica
from bradbury.replication.procedure import ProcedureSteps
from bradbury.storage.log import segment_patch
from bradbury.storage.log.log_damage import LogDamage
from bradbury.storage.log.segment_patch import SegmentPatch
from bradbury.storage.producers.healed_producers import HealedSegment
from bradbury.storage.segments.segment_files import CLEANED_SUFFIX

from ..fault_registry import Patch, fault

ROTTING = {
    "kinds": ("rot",),
    "segment_bytes": 600,
    "fault_every_ms": 100,
    "min_insync": 2,
    "careless_producers": 0,
    "is_reckless": False,
}


def rotting(*others: str) -> dict[str, Any]:
    return {**ROTTING, "kinds": ("rot", "rot", *others)}


@fault(**ROTTING)
def the_scrub_believes_what_it_has_written_itself(patch: Patch) -> None:
    """A closed segment of this life is never read again, so nobody finds out in time."""

    def scrub(step: LogScrub) -> ProcedureSteps:
        yield from step._examine_all(only_doubted=True)

    patch(LogScrub, "scrub", scrub)


@fault(**ROTTING)
def damage_is_known_and_left(patch: Patch) -> None:
    """It is said, and nobody is asked for what is missing."""
    patch(SegmentHealer, "sources", lambda healer, replica: [])


@fault(**rotting("power"), outage_ms=100)
def a_healed_segment_is_not_synced(patch: Patch) -> None:
    """It takes the place of what was safe on the disk, but for one batch."""

    def finish(healed: SegmentPatch) -> None:
        healed._add_aborted()
        healed.segment.close_indexes()

    patch(SegmentPatch, "finish", finish)


@fault(**ROTTING)
def a_leader_keeps_what_nobody_can_copy(patch: Patch) -> None:
    """As this node once did: damage that is not committed yet is no reason to let another lead."""
    patch(SegmentHealer, "_look_whether_committed", lambda healer, replica, damage: None)


@fault(**ROTTING)
def what_is_sent_in_vain_is_sent_forever(patch: Patch) -> None:
    """A follower that comes for the same records again and again does not make a leader wonder."""
    patch(LogDamage, "on_sent", lambda damage, node_id, offset, next_offset: None)


@fault(**{**ROTTING, "kinds": ("rot", "disk"), "outage_ms": 100})
def a_follower_is_led_past_a_gap(patch: Patch) -> None:
    """What is behind the damage is given to whoever keeps it."""

    def refuse_gap(damage: LogDamage, offset: int) -> None:
        pass

    def _beyond(damage: LogDamage, lost: Any) -> int:
        end: int = lost.end
        return end

    patch(LogDamage, "refuse_gap", refuse_gap)
    patch(LogDamage, "_beyond", _beyond)


@fault(**{**ROTTING, "compacts": True, "groups": 1, "transactional_ids": 0})
def a_healed_log_is_not_compacted_any_more(patch: Patch) -> None:
    """As this node once did, until its restart."""
    patch(LogCompactor, "_is_left", lambda compactor, log: log in compactor.uncleanable)


@fault(**{**ROTTING, "compacts": True, "groups": 2, "transactional_ids": 0})
def a_repair_writes_the_cleaners_files(patch: Patch) -> None:
    """Both make a segment of the same offset, and one of them removes what the other has made."""
    patch(segment_patch, "HEALED_SUFFIX", CLEANED_SUFFIX)


@fault(**ROTTING)
def a_healing_that_fails_is_the_last(patch: Patch) -> None:
    """Another replica may come back, or what was not committed may be now."""
    original = SegmentHealer._heal

    def _heal(healer: SegmentHealer, replica: Replica, damage: LogDamage) -> ProcedureSteps:
        attempts = healer._attempts.get(damage)
        if attempts is None or not attempts.count:
            yield from original(healer, replica, damage)

    patch(SegmentHealer, "_heal", _heal)


@fault(**rotting("cut", "kill"), outage_ms=500)
def producers_are_forgotten_with_the_damage(patch: Patch) -> None:
    """What damaged headers have said of producers is believed when they are whole again."""
    patch(HealedSegment, "is_known", lambda healed, state, read, expiration_ms: True)


@fault(
    **{
        **ROTTING,
        "groups": 0,
        "transactional_ids": 2,
        "producers": 1,
        "kinds": ("rot", "rot", "kill producer"),
    }
)
def a_healed_segment_has_no_aborted_transactions(patch: Patch) -> None:
    """Its records are read as if they were committed."""
    patch(SegmentPatch, "_add_aborted", lambda healed: None)
    patch(SegmentPatch, "_copy_aborted", lambda healed: None)


@fault(**{**rotting("move"), "directories": 2})
def what_cannot_be_moved_is_moved(patch: Patch) -> None:
    """A copy that cannot be made is taken for the log."""
    original = AlterLogDirsManager._catch_up

    def _catch_up(manager: AlterLogDirsManager, move: Any) -> ProcedureSteps:
        try:
            yield from original(manager, move)
        except Exception:
            move.future.local.roll(now_ms=0, at_offset=move.replica.log.log_end_offset)

    patch(AlterLogDirsManager, "_catch_up", _catch_up)

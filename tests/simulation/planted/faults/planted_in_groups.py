"""Planted faults of group coordinators; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.coordinators.coordinator_context import CoordinatorContext
from bradbury.coordinators.coordinator_loader import CoordinatorLoader
from bradbury.coordinators.coordinator_runtime import CoordinatorRuntime
from bradbury.coordinators.coordinator_timer import CoordinatorTimer
from bradbury.coordinators.rules_effects import Append, StartTimer
from bradbury.groups.classic.classic_group import ClassicGroup
from bradbury.groups.classic.group_members import GroupMembers
from bradbury.groups.classic.group_rebalance import GroupRebalance
from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.group_effects import (
    AssignmentStored,
    OffsetsDeleted,
    OffsetsStored,
    TimerKey,
    TimerKind,
)
from bradbury.groups.offsets.group_offsets import GroupOffsets
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaStorageError

from ..fault_registry import Patch, fault

GROUPS = {"groups": 2, "group_members": 3, "offsets_partitions": 2}
MOVING = {**GROUPS, "kinds": ("kill", "pause", "elect", "group"), "fault_every_ms": 150}
RESTLESS = {
    **GROUPS,
    "kinds": ("kill member", "pause member", "leave", "kill"),
    "fault_every_ms": 150,
    "outage_ms": 500,
}


# --- the log -------------------------------------------------------------------------------------


@fault(**MOVING)
def a_commit_is_answered_before_it_is_replicated(patch: Patch) -> None:
    """OffsetCommit is answered when the record is in the coordinator's own log."""
    _applied_at_once(patch, OffsetsStored)


@fault(**{**MOVING, "kinds": (*MOVING["kinds"], "kill member")})
def an_assignment_is_handed_out_before_it_is_replicated(patch: Patch) -> None:
    """After a failover another assignment has the same generation."""
    _applied_at_once(patch, AssignmentStored)


@fault(**MOVING)
def a_deletion_is_answered_before_it_is_replicated(patch: Patch) -> None:
    """After a failover the offsets are there again."""
    _applied_at_once(patch, OffsetsDeleted)


@fault(**MOVING)
def nothing_expires(patch: Patch) -> None:
    """Replicas and coordinators agree; the offsets are only there forever."""
    patch(GroupOffsets, "expired", lambda offsets, **given: ([], False))


@fault(**MOVING)
def a_deleted_group_keeps_its_offsets(patch: Patch) -> None:
    """Its record is gone, theirs are not."""
    patch(GroupOffsets, "tombstones", lambda offsets: [])


def _applied_at_once(patch: Patch, kind: type) -> None:
    original = CoordinatorContext._append

    def append(context: CoordinatorContext, append: Append, now_ms: int, wall_ms: int) -> None:
        original(context, append, now_ms, wall_ms)
        if isinstance(append.completion, kind):
            context.on_committed(context._pending[-1], now_ms=now_ms, wall_ms=wall_ms)

    patch(CoordinatorContext, "_append", append)
    refused = CoordinatorContext._on_append_refused

    def on_refused(context: CoordinatorContext, pending: Any, error: Any, **now: int) -> None:
        if pending in context._pending:  # else it was taken for committed
            refused(context, pending, error, **now)

    patch(CoordinatorContext, "_on_append_refused", on_refused)


@fault(**MOVING)
def a_coordinator_serves_before_its_log_is_read(patch: Patch) -> None:
    """It says of a group that it knows nothing of it."""
    patch(CoordinatorLoader, "begin", lambda loader: setattr(loader, "is_complete", True))


@fault(**MOVING)
def a_coordinator_reads_only_what_it_knows_to_be_committed(patch: Patch) -> None:
    """A new leader does not know yet of all that is committed."""
    patch(CoordinatorLoader, "_end", property(lambda loader: loader._log.high_watermark))


@fault(**{**MOVING, "kinds": ("kill", "group", "elect", "cut"), "pace_ms": 10, "readers": 0})
def a_coordinator_shows_what_is_not_committed(patch: Patch) -> None:
    """It serves as soon as it has read its log, though the end of that may yet be dropped."""
    patch(CoordinatorLoader, "_is_committed", True)


@fault(**MOVING)
def a_former_coordinator_goes_on(patch: Patch) -> None:
    """Whoever leads no more keeps its groups, and what it had read before, when it leads again."""
    patch(CoordinatorRuntime, "on_resigned", lambda runtime, partition: None)
    original = CoordinatorRuntime.on_leader

    def on_leader(runtime: Any, partition: int, epoch: int, log: Any, **now: int) -> Any:
        known = runtime._contexts.get(partition)
        if known is None:
            return original(runtime, partition, epoch, log, **now)
        known.leader_epoch = epoch
        return None

    patch(CoordinatorRuntime, "on_leader", on_leader)


@fault(**MOVING, log_errors=0.1)
def a_commit_in_doubt_is_taken_for_none(patch: Patch) -> None:
    """What may yet be in the log is forgotten, as if it had been refused."""

    def on_unknown_outcome(
        context: CoordinatorContext, error: Any, now_ms: int, wall_ms: int
    ) -> None:
        refused = KafkaStorageError(str(error))
        pending = context._pending[0]
        context._on_append_refused(pending, refused, now_ms=now_ms, wall_ms=wall_ms)
        context._complete(now_ms, wall_ms)

    patch(CoordinatorContext, "_on_unknown_outcome", on_unknown_outcome)


@fault(**MOVING, log_errors=0.1)
def a_refused_append_is_taken_for_a_commit(patch: Patch) -> None:
    """What is nowhere in the log is shown and acknowledged."""

    def _on_append_refused(
        context: CoordinatorContext, pending: Any, error: Any, **now: int
    ) -> None:
        context.on_committed(pending, **now)

    patch(CoordinatorContext, "_on_append_refused", _on_append_refused)


# --- members -------------------------------------------------------------------------------------


@fault(**RESTLESS, static_members=2)
def the_generation_of_a_commit_is_not_checked(patch: Patch) -> None:
    """A member that was away commits over the one that has its partitions now."""
    original = ClassicGroup.check_commit
    patch(
        ClassicGroup,
        "check_commit",
        lambda group, member_id, instance_id, generation: original(
            group,
            member_id,
            instance_id,
            group.metadata.generation if generation >= 0 else generation,
        ),
    )


@fault(**RESTLESS)
def anybody_may_commit(patch: Patch) -> None:
    """Also a member that was removed from the group."""
    patch(
        ClassicGroup,
        "check_commit",
        lambda group, member_id, instance_id, generation: ErrorCode.NONE,
    )


@fault(
    **{
        **GROUPS,
        "static_members": 2,
        "kinds": ("twin", "pause member", "kill member"),
        "fault_every_ms": 150,
    }
)
def a_static_member_is_not_fenced(patch: Patch) -> None:
    """Whoever has the instance id may act, whichever process has its place now."""

    def check(members: GroupMembers, member_id: str, instance_id: str | None) -> ErrorCode:
        known = member_id in members or (
            instance_id is not None and members.static_member_id(instance_id) is not None
        )
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    patch(GroupMembers, "check", check)


@fault(**RESTLESS)
def silent_members_stay(patch: Patch) -> None:
    """Nobody counts their sessions."""
    original = CoordinatorTimer.start

    def start(timer: CoordinatorTimer, key: TimerKey, after_ms: int, *, now_ms: int) -> None:
        if key.kind is not TimerKind.SESSION:
            original(timer, key, after_ms, now_ms=now_ms)

    patch(CoordinatorTimer, "start", start)


@fault(**RESTLESS)
def a_timer_fires_once_and_never_again(patch: Patch) -> None:
    """What was queued for a key when it fired is taken for what is queued for it now."""
    original = CoordinatorTimer._push

    def push(timer: CoordinatorTimer, key: TimerKey, at_ms: int) -> None:
        if key not in timer._queued_at:
            original(timer, key, at_ms)
        timer._queued_at[key] = 0

    patch(CoordinatorTimer, "_push", push)


@fault(**RESTLESS)
def sessions_end_with_the_coordinator(patch: Patch) -> None:
    """A new coordinator waits for nobody whom it knows only from its log."""
    original = GroupCoordinator.on_loaded

    def on_loaded(coordinator: GroupCoordinator, *, now_ms: int) -> Any:
        return [
            effect
            for effect in original(coordinator, now_ms=now_ms)
            if not (isinstance(effect, StartTimer) and effect.key.kind is TimerKind.SESSION)
        ]

    patch(GroupCoordinator, "on_loaded", on_loaded)


@fault(**RESTLESS)
def a_generation_is_used_twice(patch: Patch) -> None:
    """A rebalance does not count on."""
    original = GroupRebalance._complete_join

    def complete_join(rebalance: GroupRebalance) -> None:
        generation = rebalance._group.generation
        original(rebalance)
        if rebalance._group.generation > generation > 0:
            rebalance._group.generation = generation

    patch(GroupRebalance, "_complete_join", complete_join)

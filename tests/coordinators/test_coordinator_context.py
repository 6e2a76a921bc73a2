"""Does a coordinator's start end, whatever becomes of its log meanwhile?"""

from dataclasses import dataclass

from bradbury.coordinators.coordinator_context import (
    RELOAD_MS,
    ContextState,
    CoordinatorContext,
)
from bradbury.coordinators.coordinator_effects import ReadLog
from bradbury.groups.coordinator.group_coordinators import group_coordinators
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_counters import GroupCounters, MemberMemory
from bradbury.protocol.errors import KafkaStorageError, OffsetOutOfRange


@dataclass
class Log:
    log_start_offset: int = 0
    log_end_offset: int = 10
    high_watermark: int = 10


def loading(log: Log) -> tuple[CoordinatorContext, ReadLog]:
    config = GroupCoordinatorConfig()
    memory = MemberMemory(config.bradbury_group_members_max_bytes)
    kind = group_coordinators(config, memory, GroupCounters())
    context = CoordinatorContext(kind, 3, 1, log)
    context.load(now_ms=0, wall_ms=0)
    (read,) = context.effects
    assert isinstance(read, ReadLog)
    context.effects.clear()
    return context, read


def test_a_log_whose_last_records_were_deleted_while_it_was_read_is_loaded() -> None:
    log = Log()
    context, read = loading(log)
    log.log_start_offset = 10
    context.on_log_read_failed(read, OffsetOutOfRange("deleted"), now_ms=1, wall_ms=1)
    assert context.state is ContextState.ACTIVE


def test_a_log_that_cannot_be_read_is_read_again_later() -> None:
    context, read = loading(Log())
    context.on_log_read_failed(read, KafkaStorageError("disk"), now_ms=1, wall_ms=1)
    assert context.state is ContextState.LOADING
    assert context.effects == []
    assert context.next_deadline_ms == 1 + RELOAD_MS
    context.on_tick(now_ms=1 + RELOAD_MS, wall_ms=1)
    assert [type(effect) for effect in context.effects] == [ReadLog]


def test_damage_that_another_replica_may_have_whole_is_read_again_later() -> None:
    context, read = loading(Log())
    damage = KafkaStorageError("offsets 3 to 7 are unreadable")
    context.on_log_damaged(read, damage, 8, has_other_replicas=True, now_ms=1, wall_ms=1)
    assert context.state is ContextState.LOADING
    assert context.next_deadline_ms == 1 + RELOAD_MS


def test_damage_that_nobody_can_heal_is_passed_over() -> None:
    context, read = loading(Log())
    damage = KafkaStorageError("offsets 3 to 7 are unreadable")
    context.on_log_damaged(read, damage, 8, has_other_replicas=False, now_ms=1, wall_ms=1)
    (following,) = context.effects
    assert isinstance(following, ReadLog)
    assert following.offset == 8
    context.on_log_damaged(following, damage, 12, has_other_replicas=False, now_ms=1, wall_ms=1)
    assert context.state is ContextState.ACTIVE

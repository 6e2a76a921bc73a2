"""The cut-over: from then on the target cluster is the one in use.

    1  wait until the source is idle: no new records, no open transaction, no group members
    2  fence the process that follows, and copy the remaining records
    3  compare both sides, except what was compared before
    4  copy topic configs and group offsets from the source
    5  note the end offsets of both sides, where a migration back starts

Invariants: a cut-over that ends before the last step leaves the state of the migration as it
was, except that the process that followed has ended; a killed cut-over also leaves its note.
Records that arrive in the source later ("late") are detected, and copied by another cut-over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ...clients.admin.admin import Admin
from ...clients.producer.transactions.transaction_errors import is_ended_by_another
from ...protocol.errors import ConnectionFailed, InvalidConfig, InvalidRequest, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..mirrors import mirror_positions
from ..mirrors.mirror_checkpoints import groups_with_offsets
from ..mirrors.mirror_settings import MirrorFailed, MirrorProgress, MirrorSettings
from ..mirrors.mirrored_topics import NameFilter, set_configs
from ..mirrors.offset_syncs import OffsetSync
from .migration_notes import (
    MIGRATION,
    CutOverEnds,
    MigrationNote,
    cut_over_ends,
    cut_over_note,
    first_names,
)
from .migration_session import MigrationSession, now_ms
from .migration_status import source_ends
from .moved_groups import EMPTY_STATES, GroupMover, MovedGroup
from .verification import PartitionCheck
from .verifier import Verifier, late_checks, log_sides

LOOK_SECONDS: Final = 0.5
_THROTTLES: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
)
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class CutOver:
    """Result of a cut-over.

    is_done: False: `checks` has the reason, and nothing was changed. is_late: a repeated cut-over,
    for late records. records: copied by it. remarks: differences to be checked by hand.
    """

    is_done: bool
    is_late: bool
    records: int
    partitions: int
    groups: tuple[MovedGroup, ...]
    checks: tuple[PartitionCheck, ...]
    remarks: tuple[str, ...]


def wait_until_quiet(
    source: Admin,
    topics: NameFilter,
    groups: NameFilter | None,
    *,
    quiet_s: float,
    timeout_s: float,
    on_wait: Callable[[str], None],
) -> None:
    """Return when the source has been idle for `quiet_s` seconds.

    groups: must have no members in the source; None: groups are not checked.

    Raises:
        MirrorFailed: the source was not idle within `timeout_s`; the text says why.
    """
    deadline = time.monotonic() + timeout_s
    ends = source_ends(source, topics)
    changed_at, moved, said = time.monotonic(), "", ""
    while True:
        found = source_ends(source, topics)
        now = time.monotonic()
        if found != ends:
            where = first_names(key for key in found if found[key] != ends.get(key))
            moved = f"{where}: new records arrive; stop their producers"
            ends, changed_at = found, now
        what = _why_not_idle(source, ends, groups)
        if what is None and now - changed_at >= quiet_s:
            return
        what = what or moved or "waiting for the source to stay idle"
        if now >= deadline:
            raise MirrorFailed(f"not cut over, nothing was changed: {what}")
        if what != said:
            on_wait(what)
            said = what
        time.sleep(min(LOOK_SECONDS, max(0.0, deadline - now)))


def _why_not_idle(
    source: Admin, ends: Mapping[TopicPartition, tuple[int, int]], groups: NameFilter | None
) -> str | None:
    is_open = [key for key, (stable, end) in ends.items() if stable < end]
    if is_open:
        return (
            f"a transaction is open in {first_names(is_open)}: wait for its producer to end it, or "
            "see `bradbury transactions find-hanging`"
        )
    if groups is None:
        return None
    wanted = set(groups_with_offsets(source, groups))
    live = sorted(
        each.group_id
        for each in source.list_groups()
        if each.group_id in wanted and each.state.lower() not in EMPTY_STATES
    )
    if live:
        more = f" and {len(live) - 3} more" if len(live) > 3 else ""
        return (
            f"groups with members in the source: {', '.join(live[:3])}{more}: stop them, or use "
            "--allow-live-groups; then what they read from now on is delivered again in the target"
        )
    return None


def cut_over(
    settings: MirrorSettings,
    wanted: MigrationNote,
    *,
    is_late: bool,
    verify: bool,
    on_progress: Callable[[MirrorProgress], None],
    on_step: Callable[[str], None],
) -> CutOver:
    """Steps 2 to 5. Raises MirrorFailed: records still arrive in the source, or another process has
    taken over.
    """
    with MigrationSession(settings, wanted, cuts_over=not is_late, is_late=is_late) as session:
        try:
            done = _copied_and_moved(
                session,
                settings,
                is_late=is_late,
                verify=verify,
                on_progress=on_progress,
                on_step=on_step,
            )
        except BaseException as error:
            if isinstance(error, KafkaError) and is_ended_by_another(error):
                raise MirrorFailed(
                    "not cut over: another `bradbury migrate` of this cluster has taken over; end "
                    "what starts it, and cut over again"
                ) from error
            with suppress(KafkaError, ConnectionFailed):  # then only its note remains
                session.give_back()
            raise
        if not done.is_done:
            session.give_back()
        return done


def _copied_and_moved(
    session: MigrationSession,
    settings: MirrorSettings,
    *,
    is_late: bool,
    verify: bool,
    on_progress: Callable[[MirrorProgress], None],
    on_step: Callable[[str], None],
) -> CutOver:
    session.topics.look(must_find=True)
    copier = session.copier
    copier.copy(threading.Event(), on_progress, math.inf)
    copier.commit_starts()  # advances past a skip at the end
    _check_all_copied(session, settings)
    if is_late:
        _set_timestamp_configs(session)
    copied = session.progress = copier.progress
    checks: list[PartitionCheck] = []
    if verify:
        on_step("comparing both sides")
        if is_late:
            checks = late_checks(settings, session.placed)
        else:
            checks = Verifier(settings, session.source, session.target).verify()
        if not all(one.is_same for one in checks):
            return CutOver(
                False,
                is_late,
                copied.records,
                len(copier.positions.offsets),
                (),
                tuple(checks),
                (),
            )
    session.write_own_note()  # raises if fenced, before anything is changed
    remarks = [] if is_late else align_configs(settings, session, on_step)
    groups: Sequence[MovedGroup] = ()
    if not is_late:
        on_step("setting the groups' offsets")
        groups = GroupMover(
            session.source,
            session.target,
            *log_sides(settings),
            copier.syncs,
            session.base.late,
            _partitions(session),
        ).move(settings.groups)
    _note(session, settings)
    return CutOver(
        True,
        is_late,
        copied.records,
        len(_partitions(session)),
        tuple(groups),
        tuple(checks),
        tuple(remarks),
    )


def _partitions(session: MigrationSession) -> list[TopicPartition]:
    targets = session.copier.targets
    return sorted(key for key in session.copier.positions.offsets if key.topic in targets)


def _check_all_copied(session: MigrationSession, settings: MirrorSettings) -> None:
    offsets = session.copier.positions.offsets
    ends = source_ends(session.source, settings.topics)
    targets = session.copier.targets
    moved = [
        key for key, (_, end) in ends.items() if key.topic in targets and offsets.get(key) != end
    ]
    if moved:
        raise MirrorFailed(
            f"not cut over: {first_names(moved)} got new records; stop their producers and cut "
            "over again. Until then keep following: bradbury migrate"
        )


def _note(session: MigrationSession, settings: MirrorSettings) -> None:
    """Record the cut-over in the target, in one transaction."""
    topic = mirror_positions.positions_topic(settings.alias)
    keys = _partitions(session)
    here = {key: at.offset for key, at in session.target.list_offsets(keys).items()}
    offsets = session.copier.positions.offsets
    ends = CutOverEnds({key: (offsets[key], here[key]) for key in keys}, {})
    number = session.note.number
    if session.note.is_cut_over:  # late: the way back still starts at the first cut-over
        state = mirror_positions.read_state(session.target, topic, settings.limits)
        before = cut_over_ends(state.notes(session.cluster), number)
        late: dict[TopicPartition, tuple[OffsetSync, ...]] = dict(before.late)
        for key, pieces in session.placed.items():
            if key in before.ends:
                late[key] = (*late.get(key, ()), *pieces)
        kept = {
            key: (offsets[key], before.ends.get(key, both)[1]) for key, both in ends.ends.items()
        }
        ends = CutOverEnds(kept, late)
    note = replace(session.note, state="cut over", at=now_ms())
    with session.producer.transaction():
        for name in sorted({key.topic for key in keys}):
            mirror_positions.write_note(
                session.producer,
                topic,
                session.cluster,
                cut_over_note(name),
                ends.content(number, name),
            )
        mirror_positions.write_note(
            session.producer, topic, session.cluster, MIGRATION, note.content()
        )
    session.note = note


def _set_timestamp_configs(session: MigrationSession) -> None:
    """Set the source's type and bounds of timestamps again, which were others to copy records."""
    for topic in sorted(session.copier.targets):
        changes = session.timestamp_configs(topic)
        if changes:
            session.target.alter_configs(topic, changes)


def align_configs(
    settings: MirrorSettings, session: MigrationSession, on_step: Callable[[str], None]
) -> list[str]:
    """Set the source's topic configs in the target; returns remarks on those it refuses."""
    on_step("setting the topics' configs")
    remarks = []
    for topic in sorted(session.copier.targets):
        wanted = {
            key: value
            for key, value in set_configs(session.source, topic).items()
            if key not in _THROTTLES and key not in settings.without_configs
        }
        wanted |= session.timestamp_configs(topic)
        here = session.target.describe_configs(topic)
        replicas = min(
            len(one.replicas) for one in session.target.describe_topics([topic])[0].partitions
        )
        if int(wanted.get(_MIN_ISR, 1)) > replicas:
            remarks.append(
                f"{topic}: {_MIN_ISR}={wanted.pop(_MIN_ISR)} was not set: the topic has "
                f"{replicas} replicas in the target"
            )
        for key, value in wanted.items():
            known = here.get(key)
            if known is not None and known.value == value:
                continue
            try:
                session.target.alter_configs(topic, {key: value})
            except (InvalidConfig, InvalidRequest) as error:
                remarks.append(f"{topic}: {key}={value} was not set: {error}")
    return remarks

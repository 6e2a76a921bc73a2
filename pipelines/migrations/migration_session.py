"""Mirror session of a migration: unchanged topic names, groups, and the direction.

Invariants:
    A topic of the target with records that this migration did not copy is not written to.
    The way back starts where the way there was cut over, so that nothing is copied twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...clients.admin.admin import Admin
from ...protocol.errors import ConnectionFailed
from ...protocol.topic_partition import TopicPartition
from ..mirrors import mirror_positions
from ..mirrors.mirror_positions import MirrorPosition, MirrorState
from ..mirrors.mirror_session import MirrorSession, cluster_to_read
from ..mirrors.mirror_settings import MirrorFailed, MirrorSettings, no_topic_matches
from ..mirrors.mirrored_topics import TIMESTAMP_BOUNDS, UNBOUNDED, is_set_on_topic
from ..mirrors.offset_syncs import OffsetSync
from ..mirrors.record_copier import known_of
from .migration_notes import (
    MIGRATION,
    CutOverEnds,
    MigrationNote,
    beginning,
    cut_over_ends,
    first_names,
    late_records,
    migration_alias,
    turned,
    turned_positions,
)

TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"


@dataclass(frozen=True, slots=True)
class BothWays:
    """State of the migrations between two clusters.

    state: of this direction, kept in the target. back: of the other direction, kept in the source.
    """

    cluster: str
    target_cluster: str
    state: MirrorState
    back: MirrorState

    @property
    def note(self) -> MigrationNote | None:
        return MigrationNote.read(self.state.notes(self.cluster))

    @property
    def back_note(self) -> MigrationNote | None:
        return MigrationNote.read(self.back.notes(self.target_cluster))

    @property
    def is_turned_back(self) -> bool:
        """Whether the other direction is the newer one."""
        note, back = self.note, self.back_note
        return back is not None and (note is None or back.number > note.number)

    @property
    def base(self) -> CutOverEnds:
        """Start of the way back: the ends of the way there, as (current source, current target)."""
        note, back = self.note, self.back_note
        if back is None or not back.is_cut_over or (note is not None and note.number < back.number):
            return CutOverEnds({}, {})
        there = cut_over_ends(self.back.notes(self.target_cluster), back.number)
        return CutOverEnds(
            {key: (there_end, here_end) for key, (here_end, there_end) in there.ends.items()},
            {key: tuple(turned(one) for one in late) for key, late in there.late.items()},
        )


def read_both_ways(settings: MirrorSettings, source: Admin, target: Admin) -> BothWays:
    """Read the state of both directions. Raises ConnectionFailed, which names the cluster."""
    cluster = cluster_to_read(source)
    try:
        target_cluster = target.describe_cluster().cluster_id
    except ConnectionFailed as error:
        raise type(error)(f"the target cluster: {error}") from None
    source_limits = replace(
        settings.limits, fetch=replace(settings.limits.fetch, security=settings.source_security)
    )
    return BothWays(
        cluster,
        target_cluster,
        mirror_positions.read_state(
            target,
            mirror_positions.positions_topic(migration_alias(cluster)),
            settings.limits,
        ),
        mirror_positions.read_state(
            source,
            mirror_positions.positions_topic(migration_alias(target_cluster)),
            source_limits,
        ),
    )


class MigrationSession(MirrorSession):
    """Session of a migration.

    note: the wanted note; number and state are set here. cuts_over: it is the session of a cut-over
    and writes that to the note at its beginning: so the following process, which it fences, ends
    without an error. is_late: copies late records after a cut-over.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        wanted: MigrationNote,
        *,
        cuts_over: bool = False,
        is_late: bool = False,
    ) -> None:
        super().__init__(settings)
        self._wanted = wanted
        self._cuts_over = cuts_over
        self._is_late = is_late
        self.note = wanted
        self.base = CutOverEnds({}, {})
        self.placed: dict[TopicPartition, list[OffsetSync]] = {}
        """Pieces of late records, source and target offsets, by partition."""

    def _begin(self) -> None:
        settings = self._settings
        if not settings.topics.of(each.name for each in self.source.describe_topics()):
            raise MirrorFailed(no_topic_matches(settings))  # before any note of it is written
        ways = read_both_ways(settings, self.source, self.target)
        if self._is_late:
            assert ways.note is not None
            number, is_turned = ways.note.number, False
            self.note = ways.note
        else:
            begins = beginning(ways.note, ways.back_note, settings.source, settings.target)
            number, is_turned = begins.number, begins.is_turned
            is_same = ways.note is not None and ways.note.number == number
            at = ways.note.at if ways.note is not None and is_same else now_ms()
            self.note = replace(self._wanted, number=number, state="following", at=at)
            if self._cuts_over:
                self.note = replace(self.note, state="cutting over", at=now_ms())
        known = known_of(ways.state.positions, self.cluster, self.source)
        if is_turned:
            known = self._turned(ways, known)
        if not self._is_late and (ways.note is None or ways.note != self.note):
            self._write_beginning(known if is_turned else [])
        self.base = read_both_ways(settings, self.source, self.target).base
        back_topic = mirror_positions.positions_topic(migration_alias(ways.target_cluster))
        self.take_over(
            known,
            turned_around=frozenset({back_topic} if ways.back_note is not None else ()),
            skips=self.base.late,
            on_placed=self._on_placed,
        )

    def _on_placed(self, placed: Mapping[TopicPartition, OffsetSync]) -> None:
        if self._is_late:
            for key, piece in placed.items():
                self.placed.setdefault(key, []).append(piece)

    def _turned(self, ways: BothWays, known: Sequence[MirrorPosition]) -> list[MirrorPosition]:
        """Positions of the way back. Raises MirrorFailed if late records were not copied."""
        back = ways.back_note
        assert back is not None
        there = cut_over_ends(ways.back.notes(ways.target_cluster), back.number)
        found = turned_positions(
            ways.back,
            there.ends,
            ways.cluster,
            {each.name: str(each.topic_id) for each in self.source.describe_topics()},
            {each.name: str(each.topic_id) for each in self.target.describe_topics()},
            ways.target_cluster,
        )
        keys = [each.source for each in found]
        ends = {key: at.offset for key, at in self.target.list_offsets(keys).items()}
        late = late_records({key: there.ends[key] for key in keys}, ends)
        if late:
            raise MirrorFailed(
                f"{first_names(late)} of {self._settings.target} got records after the cut-over; "
                f"copy them first: bradbury migrate cut-over --from {self._settings.target} "
                f"--bootstrap {self._settings.source}"
            )
        mixed = [key for key in keys if not all(one.is_exact for one in there.late.get(key, ()))]
        if mixed:
            raise MirrorFailed(
                f"{first_names(mixed)}: records that arrived in {self._settings.target} after the "
                f"cut-over lie between those of producers in {self._settings.source}, and would be "
                "copied back to the former; leave the topic out with --exclude, and mirror it "
                "under another name (bradbury mirror)"
            )
        turned_keys = set(keys)
        return [*found, *(each for each in known if each.source not in turned_keys)]

    def _write_beginning(self, known: Sequence[MirrorPosition]) -> None:
        """Write the note and the positions at which the way back starts, in one transaction."""
        topic = mirror_positions.positions_topic(self._settings.alias)
        with self.producer.transaction():
            mirror_positions.write_note(
                self.producer, topic, self.cluster, MIGRATION, self.note.content()
            )
            mirror_positions.write_positions(
                self.producer,
                topic,
                self.cluster,
                mirror_positions.as_offsets(known),
                {each.source.topic: each.target for each in known},
                {each.source: each.syncs for each in known},
                [each.source for each in known],
            )

    def _check_target(self, topic: str, partitions: int) -> None:
        described = self.target.describe_topics([topic])[0]
        where = f"topic {topic!r} exists in {self._settings.target} already"
        remedy = "delete it there, or leave it out with --exclude"
        if len(described.partitions) > partitions:
            raise MirrorFailed(
                f"{where}, with {len(described.partitions)} partitions and not {partitions}: "
                f"keys would go to other partitions; {remedy}"
            )
        keys: list[Any] = [(topic, one.partition) for one in described.partitions]
        ends = self.target.list_offsets(keys)
        starts = self.target.list_offsets(keys, "earliest")
        if any(ends[key].offset > starts[key].offset for key in ends):
            raise MirrorFailed(f"{where}, with records that this migration did not copy: {remedy}")

    def _prepare_target(self, topic: str) -> None:
        """Make the topic keep all timestamps; the cut-over copies the source's settings."""
        here = self.target.describe_configs(topic)
        wanted = {TIMESTAMP_TYPE: CREATE_TIME}
        wanted |= {key: UNBOUNDED for key in self._bounds() if is_set_on_topic(here.get(key))}
        changes = {key: value for key, value in wanted.items() if here[key].value != value}
        if changes:
            self.target.alter_configs(topic, changes)

    def timestamp_configs(self, topic: str) -> dict[str, str]:
        """Type and bounds of timestamps that the source has, as far as the target has others."""
        there, here = self.source.describe_configs(topic), self.target.describe_configs(topic)
        names = [TIMESTAMP_TYPE]
        names += [
            key
            for key in self._bounds()
            if is_set_on_topic(there.get(key)) or is_set_on_topic(here.get(key))
        ]
        return {
            key: there[key].value or ""
            for key in names
            if key in there and key in here and there[key].value != here[key].value
        }

    def _bounds(self) -> list[str]:
        return [key for key in TIMESTAMP_BOUNDS if key not in self._settings.without_configs]

    def sync_groups(self) -> None:
        if not self._is_over():
            super().sync_groups()

    def give_back(self) -> None:
        """Set the note's state back to following: the cut-over has failed."""
        if self.note.state == "cutting over":
            self.note = replace(self.note, state="following", at=now_ms())
            self.write_own_note()

    def write_own_note(self) -> None:
        """Write the note in a transaction. Raises ProducerFenced: another process has begun."""
        topic = mirror_positions.positions_topic(self._settings.alias)
        with self.producer.transaction():
            mirror_positions.write_note(
                self.producer, topic, self.cluster, MIGRATION, self.note.content()
            )

    def _is_over(self) -> bool:
        """Whether another process cuts over: an idle session does not notice fencing."""
        topic = mirror_positions.positions_topic(self._settings.alias)
        state = mirror_positions.read_state(self.target, topic, self._settings.limits)
        note = MigrationNote.read(state.notes(self.cluster))
        return note is not None and not note.is_following


def now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Notes that a migration keeps in the target, besides the positions of its mirror. Pure.

    note "migration"           {"number": ..., "state": "following", "cutting over" or "cut over",
                                "at": ms, "topics": [...], "exclude": [...], "groups": [...], ...}
    note "cut-over/<topic>"    {"number": ..., "ends": [[partition, end in source, in target], ...],
                                "late": [[partition, start, end, start, end, 1 if alone], ...]}
                               late: records that arrived in the source afterwards
    note "verified/<topic>"    the end offsets up to which both sides were found to be the same;
                                "ids": ids of the compared topic in source and target

Each change of direction has a number. Of the note of the migration from A to B, which is in B, and
that from B to A, which is in A, the one with the higher number is valid:

    from A   into B   number 1   cut over: B is in use
    from B   into A   number 2   following: starts at the ends of number 1, known on both sides
    from B   into A   number 2   cut over: A is in use again
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

from ...protocol.topic_partition import TopicPartition
from ..mirrors.mirror_positions import MirrorPosition, MirrorState, Notes, read_sync
from ..mirrors.mirror_settings import MirrorFailed
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs

MIGRATION: Final = "migration"
_CUT_OVER: Final = "cut-over/"
_VERIFIED: Final = "verified/"
_NO_ALIAS: Final = re.compile(r"[^A-Za-z0-9_-]")

Ends = Mapping[TopicPartition, tuple[int, int]]
"""End offsets (source, target), by partition, which has the same name on both sides."""


def migration_alias(cluster: str) -> str:
    """Alias of the mirror that migrates the cluster with this id."""
    return f"migrate-{_NO_ALIAS.sub('-', cluster)}"[:100]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationNote:
    """State and settings of a migration.

    at: time of the last change of state, in ms since 1970. topics, exclude, groups, exclude_groups:
    regular expressions. without_configs: names of configs that are not copied.
    """

    number: int
    state: Literal["following", "cutting over", "cut over"]
    at: int
    topics: tuple[str, ...]
    exclude: tuple[str, ...]
    groups: tuple[str, ...]
    exclude_groups: tuple[str, ...]
    without_configs: tuple[str, ...]

    @classmethod
    def begun(cls, patterns: Sequence[tuple[str, ...]], at: int = 0) -> Self:
        """The first note. patterns: topics, exclude, groups, exclude_groups, without_configs."""
        topics, exclude, groups, exclude_groups, without_configs = patterns
        return cls(
            number=1,
            state="following",
            at=at,
            topics=topics,
            exclude=exclude,
            groups=groups,
            exclude_groups=exclude_groups,
            without_configs=without_configs,
        )

    @property
    def is_cut_over(self) -> bool:
        return self.state == "cut over"

    @property
    def is_following(self) -> bool:
        """False: a cut-over is in progress, was killed, or is done."""
        return self.state == "following"

    def content(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def read(cls, notes: Notes) -> Self | None:
        """The migration's note among `notes`; None: there is none."""
        content = notes.get(MIGRATION)
        if content is None:
            return None
        lists = ("topics", "exclude", "groups", "exclude_groups", "without_configs")
        return cls(**{**content, **{name: tuple(content[name]) for name in lists}})


def cut_over_note(topic: str) -> str:
    return _CUT_OVER + topic


def verified_note(topic: str) -> str:
    return _VERIFIED + topic


class CutOverEnds(NamedTuple):
    """End offsets at a cut-over, and late records.

    late: pieces by partition, in order; exact if no other producers' records lie between them.
    """

    ends: dict[TopicPartition, tuple[int, int]]
    late: dict[TopicPartition, tuple[OffsetSync, ...]]

    def content(self, number: int, topic: str) -> dict[str, object]:
        """Content of the note of one topic."""
        return {
            "number": number,
            "ends": [
                [key.partition, *both] for key, both in sorted(self.ends.items()) if key[0] == topic
            ],
            "late": [
                [key.partition, *map(int, piece)]
                for key, pieces in sorted(self.late.items())
                if key[0] == topic
                for piece in pieces
            ],
        }


def cut_over_ends(notes: Notes, number: int) -> CutOverEnds:
    late: dict[TopicPartition, tuple[OffsetSync, ...]] = {}
    for name, content in notes.items():
        if name.startswith(_CUT_OVER) and content["number"] == number:
            for partition, *piece in content["late"]:
                key = TopicPartition(name.removeprefix(_CUT_OVER), int(partition))
                late[key] = (*late.get(key, ()), read_sync(piece))
    return CutOverEnds(_ends(notes, _CUT_OVER, number), late)


def verified_ends(
    notes: Notes, number: int, ids: Mapping[str, Sequence[str]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Ends of verified ranges. ids: current topic ids (source, target); other notes are ignored."""
    current = {
        name: content
        for name, content in notes.items()
        if name.startswith(_VERIFIED)
        and [*content["ids"]] == [*ids.get(name.removeprefix(_VERIFIED), ())]
    }
    return _ends(current, _VERIFIED, number)


def _ends(notes: Notes, kind: str, number: int) -> dict[TopicPartition, tuple[int, int]]:
    return {
        TopicPartition(name.removeprefix(kind), int(partition)): (int(source), int(target))
        for name, content in notes.items()
        if name.startswith(kind) and content["number"] == number
        for partition, source, target in content["ends"]
    }


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start of a migration. number: of its direction. is_turned: it reverses a former one."""

    number: int
    is_turned: bool


def beginning(
    own: MigrationNote | None, back: MigrationNote | None, source: str, target: str
) -> Beginning:
    """Start of a migration, by the notes of this direction and of the other one.

    Raises:
        MirrorFailed: it is cut over already, or the other direction is in progress.
    """
    if back is not None and (own is None or back.number > own.number):
        if not back.is_cut_over:
            raise MirrorFailed(
                f"a migration from {target} to {source} is in progress; cut it over first: "
                f"bradbury migrate cut-over --from {target} --bootstrap {source}"
            )
        return Beginning(back.number + 1, True)
    if own is None:
        return Beginning(1, False)
    if own.is_cut_over:
        raise MirrorFailed(
            f"the migration from {source} is cut over; {target} is in use now. To go back: "
            f"bradbury migrate --from {target} --bootstrap {source}"
        )
    return Beginning(own.number, False)


def turned_positions(
    back: MirrorState,
    ends: Ends,
    cluster: str,
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    back_cluster: str,
) -> list[MirrorPosition]:
    """Positions at which the way back starts: the ends of the way there, with its syncs reversed.

    Topics that were recreated since they were copied have none.

    Args:
        back: state of the way there, whose source (with the id back_cluster) is now the target.
        ends: ends of the way there: (end in the current target, end in the current source).
        cluster: id of the current source.
        source_ids, target_ids: current ids of the topics.
    """
    found = []
    for position in back.positions:
        key = position.source
        if position.cluster != back_cluster or key not in ends:
            continue
        if key.topic not in source_ids or target_ids.get(key.topic) != position.topic_id:
            continue
        found.append(
            MirrorPosition(
                cluster,
                key,
                key.topic,
                source_ids[key.topic],
                ends[key][1],
                OffsetSyncs(tuple(sorted(turned(one) for one in position.syncs.pieces))),
            )
        )
    return found


def turned(sync: OffsetSync) -> OffsetSync:
    source_start, source_end, target_start, target_end, is_exact = sync
    return OffsetSync(target_start, target_end, source_start, source_end, is_exact)


def late_records(
    ends: Ends, now: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Ranges [start, end) of records that arrived in a source after its cut-over."""
    return {key: (end, now[key]) for key, (end, _) in ends.items() if key in now and now[key] > end}


def first_names(partitions: Iterable[TopicPartition], most: int = 3) -> str:
    """Names of the first partitions as text: "a-0, a-1, b-0 and 5 more"."""
    names: Sequence[Any] = sorted({str(one) for one in partitions})
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

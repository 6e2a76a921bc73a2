"""What a migration remembers in the target, besides how far its mirror is. Pure.

    note "migration"           {"number": ..., "state": "following" or "cut over", "at": ms,
                                "topics": [...], "exclude": [...], "groups": [...], ...}
    note "cut-over/<topic>"    {"number": ..., "ends": [[partition, end in source, in target], ...],
                                "late": [[partition, start, end, start, end, 1 if alone], ...]}
                               late: what came to the source afterwards; here too
    note "verified/<topic>"    the ends up to where both sides were compared, and are the same;
                               "ids": of the topics that were compared

Each change of direction has a number. Of two notes, the one from A to B, which is in B, and the one
from B to A, which is in A, the one with the higher number is the last word:

    from A   into B   number 1   cut over: B counts
    from B   into A   number 2   following: begins at the ends of number 1, which both sides have
    from B   into A   number 2   cut over: A counts again
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

from ...clients.wire.record_metadata import TopicPartition
from ..mirrors.mirror_positions import MirrorPosition, MirrorState, Notes, read_sync
from ..mirrors.mirror_settings import MirrorFailed
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs

MIGRATION: Final = "migration"
_CUT_OVER: Final = "cut-over/"
_VERIFIED: Final = "verified/"
_NO_ALIAS: Final = re.compile(r"[^A-Za-z0-9_-]")

Ends = Mapping[TopicPartition, tuple[int, int]]
"""By partition, which has one name on both sides: the ends in the source and in the target."""


def migration_alias(cluster: str) -> str:
    """Of the mirror that moves the cluster of this id."""
    return f"migrate-{_NO_ALIAS.sub('-', cluster)}"[:100]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationNote:
    """at: ms since 1970, of the last change of state. The lists: regular expressions, but for
    without_configs: names of configs that stay behind.
    """

    number: int
    state: Literal["following", "cut over"]
    at: int
    topics: tuple[str, ...]
    exclude: tuple[str, ...]
    groups: tuple[str, ...]
    exclude_groups: tuple[str, ...]
    without_configs: tuple[str, ...]

    @classmethod
    def begun(cls, patterns: Sequence[tuple[str, ...]], at: int = 0) -> Self:
        """patterns: of topics, of those left out, of groups, of those left out; and configs."""
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

    def content(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def read(cls, notes: Notes) -> Self | None:
        """None: there is none."""
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
    """late: of a partition, in order; exact if nobody else's records lie between them."""

    ends: dict[TopicPartition, tuple[int, int]]
    late: dict[TopicPartition, tuple[OffsetSync, ...]]

    def content(self, number: int, topic: str) -> dict[str, object]:
        """Of a topic's note."""
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
    """ids: of the topics in the source and in the target now; of former ones nothing counts."""
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
    """How a migration begins. number: of its direction. is_turned: it goes back where one ended."""

    number: int
    is_turned: bool


def beginning(
    own: MigrationNote | None, back: MigrationNote | None, source: str, target: str
) -> Beginning:
    """From the notes of this direction and of the other one.

    Raises:
        MirrorFailed: it is cut over already, or goes the other way now.
    """
    if back is not None and (own is None or back.number > own.number):
        if not back.is_cut_over:
            raise MirrorFailed(
                f"a migration from {target} into {source} is under way; cut that over first: "
                f"bradbury migrate cut-over --from {target} --bootstrap {source}"
            )
        return Beginning(back.number + 1, True)
    if own is None:
        return Beginning(1, False)
    if own.is_cut_over:
        raise MirrorFailed(
            f"the migration from {source} is cut over; {target} counts now. To go back: "
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
    """Where the way back begins: at the ends of the way there, with its syncs the other way round.

    Of topics that are no longer those which were copied there are none.

    Args:
        back: of the way there, whose source (of the id back_cluster) is now the target.
        ends: of the way there: (end in the target of now, end in the source of now).
        cluster: id of the source of now.
        source_ids, target_ids: the topics' ids now.
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
    """[start, end) of what came to a source after it was cut over."""
    return {key: (end, now[key]) for key, (end, _) in ends.items() if key in now and now[key] > end}


def first_names(partitions: Iterable[TopicPartition], most: int = 3) -> str:
    """For a line of text: "a-0, a-1, b-0 and 5 more"."""
    names: Sequence[Any] = sorted({str(one) for one in partitions})
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""Offsets that a reset of a group sets: each kind of reset as a list of moves.

As in kafka-consumer-groups: an offset outside of the log becomes its nearest end, a time later than
every record the end of the log.

Not here: the command line (group_reset_command), files (group_offsets_file).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..terminal.failure import CommandFailed, UsageError

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...protocol.topic_partition import TopicPartition

_DURATION = re.compile(
    r"(?P<sign>[+-]?)P?(?:(?P<d>\d+)D)?(?:T?(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class OffsetMove:
    """The change of one offset, from `current` (None: nothing is committed) to `wanted`."""

    key: TopicPartition
    current: int | None
    wanted: int
    remark: str = ""

    @property
    def change(self) -> int | None:
        return None if self.current is None else self.wanted - self.current


@dataclass(frozen=True)
class Target:
    """Target of a reset: exactly one of these is set."""

    at: int | None = None
    """Time in ms since 1970, or one of ListOffsets' special timestamps (-1, -2, ...)."""
    offset: int | None = None
    shift: int | None = None
    current: bool = False
    offsets: Mapping[TopicPartition, int] | None = None


def plan_moves(
    admin: Admin,
    keys: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> list[OffsetMove]:
    """Plan the moves of a reset to `target`, in the order of `keys`.

    Raises:
        CommandFailed: a shift, and nothing is committed to shift from.
        UnknownTopicOrPartition: there is no such partition.
    """
    if target.shift is not None:
        missing = [key for key in keys if key not in committed]
        if missing:
            raise CommandFailed(
                f"nothing is committed for {_names(missing)}, so it cannot be shifted; "
                "use --to-earliest or --to-latest for it first"
            )
    starts = admin.list_offsets(keys, "earliest")
    ends = admin.list_offsets(keys, "latest")
    at = admin.list_offsets(keys, target.at) if target.at is not None else {}
    moves = []
    for key in sorted(keys):
        now = committed.get(key)
        remark = ""
        if target.at is not None:
            wanted = at[key].offset
            if wanted < 0:
                wanted, remark = ends[key].offset, "no record is that late: the end"
        elif target.offset is not None:
            wanted = target.offset
        elif target.shift is not None:
            wanted = committed[key] + target.shift
        elif target.offsets is not None:
            wanted = target.offsets[key]
        elif now is not None:
            wanted = now
        else:
            wanted, remark = ends[key].offset, "nothing was committed: the end"
        first, end = starts[key].offset, ends[key].offset
        if wanted < first:
            wanted, remark = first, f"{wanted} is before the first record: the start"
        elif wanted > end:
            wanted, remark = end, f"{wanted} is past the end: the end"
        moves.append(OffsetMove(key, now, wanted, remark))
    return moves


def parse_duration(text: str, option: str) -> int:
    """Parse a duration such as "PT1H30M", "P1D" or "90m" to milliseconds. Raises CommandFailed."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found[unit] for unit in "dhms"):
        raise UsageError(
            f"{option} {text!r} is not a duration; use ISO 8601 as in PT1H30M or P2D, or 90m"
        )
    seconds = sum(
        float(found[unit] or 0) * size
        for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    )
    if found["sign"] == "-":
        seconds = -seconds
    return round(seconds * 1000)


def _names(keys: Sequence[TopicPartition]) -> str:
    names = [f"{topic}-{partition}" for topic, partition in keys[:5]]
    return ", ".join(names) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")

"""Groups as tables and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..terminal.output import note, print_table
from ..terminal.progress import progress_bar

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...clients.admin.group_admin import GroupDescription, GroupMember
    from ...clients.admin.group_lag import GroupLag

NO_GROUPS = "there are no groups, or you may not see them"
OPTIONAL = ("member", "host", "client")
"""Columns left out of a narrow table; `groups members` shows them."""
COLUMNS = ("topic", "partition", "committed", "end", "lag", "behind", "member", "client", "host")


@dataclass(frozen=True)
class DescribedGroup:
    """A group with the lag of its partitions, and the time of the request (ms since 1970)."""

    description: GroupDescription
    partitions: GroupLag
    now_ms: int

    @property
    def lag(self) -> int | None:
        """Sum of the lags of all partitions with a committed offset; None if there is none."""
        return self.partitions.records

    @property
    def age_ms(self) -> int | None:
        """Age of the oldest unread record, in ms; None if it is not known."""
        return self.partitions.age_ms(self.now_ms)

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.description.group_id,
            "state": self.description.state,
            "protocol_type": self.description.protocol_type,
            "protocol": self.description.protocol,
            "coordinator": str(self.description.coordinator),
            "members": len(self.description.members),
            "time": self.now_ms,
            "lag": self.lag,
            "lag_ms": self.age_ms,
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": one.committed.offset if one.committed else None,
                    "leader_epoch": one.committed.leader_epoch if one.committed else None,
                    "metadata": one.committed.metadata if one.committed else None,
                    "log_start_offset": one.log_start_offset,
                    "log_end_offset": one.log_end_offset,
                    "lag": one.lag,
                    "lag_ms": one.age_ms(self.now_ms),
                    "member": member_json(one.member) if one.member else None,
                }
                for one in self.partitions
            ],
        }

    def title(self) -> str:
        group, count = self.description, len(self.description.members)
        behind = f", {age_text(self.age_ms)} behind" if self.age_ms else ""
        return (
            f"{group.group_id}  ({group.state}, {count} member{'' if count == 1 else 's'}, "
            f"lag {'-' if self.lag is None else self.lag}{behind})"
        )

    def rows(self) -> list[Sequence[object]]:
        return [
            (
                one.topic,
                one.partition,
                one.committed.offset if one.committed else "-",
                "-" if one.log_end_offset is None else one.log_end_offset,
                "-" if one.lag is None else one.lag,
                age_text(one.age_ms(self.now_ms)),
                one.member.member_id if one.member else "-",
                one.member.client_id if one.member else "-",
                one.member.host if one.member else "-",
            )
            for one in self.partitions
        ]


def described_groups(admin: Admin, names: Sequence[str], *, times: bool) -> list[DescribedGroup]:
    """Describe these groups, or all, with lags; groups deleted in the meantime are left out."""
    from ...protocol.errors import GroupIdNotFound

    wanted = list(dict.fromkeys(names)) or [one.group_id for one in admin.list_groups()]
    found = []
    with progress_bar("groups", len(wanted), unit="records") as advance:
        for name in wanted:
            try:
                (description,) = admin.describe_groups([name])
                partitions = admin.lag(name, times=times)
            except GroupIdNotFound:
                if names:
                    raise
            else:
                found.append(DescribedGroup(description, partitions, round(time.time() * 1000)))
            advance(1)
    return found


def print_lags(found: Sequence[DescribedGroup]) -> None:
    """Print the lag of each group in a line."""
    if not found:
        note(NO_GROUPS)
        return
    print_table(
        ("group", "state", "members", "partitions", "lag", "behind"),
        [
            (
                one.description.group_id,
                one.description.state,
                len(one.description.members),
                len(one.partitions),
                "-" if one.lag is None else one.lag,
                age_text(one.age_ms),
            )
            for one in found
        ],
    )


def lags_json(found: Sequence[DescribedGroup]) -> list[dict[str, Any]]:
    return [
        {
            "group": one.description.group_id,
            "state": one.description.state,
            "members": len(one.description.members),
            "partitions": len(one.partitions),
            "time": one.now_ms,
            "lag": one.lag,
            "lag_s": None if one.age_ms is None else one.age_ms / 1000,
        }
        for one in found
    ]


def print_groups(found: Iterable[DescribedGroup]) -> None:
    shown = False
    for one in found:
        shown = True
        if one.partitions:
            print_table(COLUMNS, one.rows(), title=one.title(), optional=OPTIONAL)
        else:
            note(f"{one.title()}: no committed offsets")
    if not shown:
        note(NO_GROUPS)


def member_json(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "topics": list(member.topics),
        "assignment": [
            {"topic": topic, "partition": partition} for topic, partition in member.assignment
        ],
    }


def members_of(group: GroupDescription) -> list[Sequence[object]]:
    return [
        (
            member.member_id,
            member.instance_id or "-",
            member.client_id,
            member.host,
            len(member.assignment),
            " ".join(f"{topic}-{partition}" for topic, partition in member.assignment) or "-",
        )
        for member in group.members
    ]


def age_text(age_ms: int | None) -> str:
    """Format an age as "1m 30s"; "-" for None (not known)."""
    if age_ms is None:
        return "-"
    if age_ms < 1000:
        return f"{age_ms} ms" if age_ms else "0"
    seconds = age_ms // 1000
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts = []
    for unit, size in units:
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])

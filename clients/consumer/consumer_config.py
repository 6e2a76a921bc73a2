"""Settings of a consumer, checked: Kafka's names with underscores, and its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...protocol.errors import InvalidConfig, InvalidGroupId
from ..fetch.fetch_state import StartPoint
from ..group.assignor import Assignor
from ..group.assignors import make_assignors
from ..group.membership import GroupConfig
from .positions import parse_reset

_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}

DEFAULT_STRATEGY: Final = ("range", "cooperative-sticky")
"""Kafka's default: range, and able to switch to cooperative-sticky alone (KIP-726)."""


def isolation_level(name: str) -> int:
    """Parse an isolation level to Kafka's number. Raises InvalidConfig: unknown level."""
    if name not in _ISOLATION:
        raise InvalidConfig(f"isolation_level={name!r}: use one of {[*_ISOLATION]}")
    return _ISOLATION[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings from Consumer's arguments, checked as a whole."""

    reset: StartPoint | None
    isolation_level: int
    group: GroupConfig | None
    auto_commit_interval_ms: int | None

    @classmethod
    def of(
        cls,
        topics: tuple[str, ...],
        pattern: str | re.Pattern[str] | None,
        *,
        group: str | None,
        group_instance_id: str | None,
        auto_offset_reset: str,
        isolation_level_name: str,
        enable_auto_commit: bool,
        auto_commit_interval_ms: int,
        partition_assignment_strategy: str | Assignor | Iterable[str | Assignor],
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: int,
        max_poll_records: int | None,
        client_rack: str | None,
    ) -> ConsumerConfig:
        """Check and convert the arguments.

        Raises:
            InvalidConfig: they contradict one another.
            InvalidGroupId: the group's name is empty. Kafka's consumer refuses that, too.
            TypeError: a topic is not a string.
        """
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(
                    f"a topic is a string, not {topic!r}; give topics one by one: "
                    "Consumer('a', 'b')"
                )
        if pattern is not None and (topics or group is None):
            raise InvalidConfig(
                "a pattern needs a group, and replaces topics: give group= and no topics"
            )
        reset = parse_reset(auto_offset_reset)
        level = isolation_level(isolation_level_name)
        if max_poll_records is not None and max_poll_records < 1:
            raise InvalidConfig(
                f"max_poll_records={max_poll_records}: use at least 1, or None for no limit"
            )
        if heartbeat_interval_ms >= session_timeout_ms:
            raise InvalidConfig(
                f"heartbeat_interval_ms={heartbeat_interval_ms} must be less than "
                f"session_timeout_ms={session_timeout_ms}; use a third of it"
            )
        for name, value, least in (
            ("max_poll_interval_ms", max_poll_interval_ms, 1),
            ("heartbeat_interval_ms", heartbeat_interval_ms, 1),
            ("auto_commit_interval_ms", auto_commit_interval_ms, 0),
        ):
            if value < least:
                raise InvalidConfig(f"{name}={value}: use milliseconds, at least {least}")
        if group is not None and not group.strip():
            raise InvalidGroupId(
                f"group={group!r} is empty; use a name, or group=None to read without a group"
            )
        if group is None and group_instance_id is not None:
            raise InvalidConfig(
                f"group_instance_id={group_instance_id!r} needs a group; give group=, too"
            )
        if group is None:
            return cls(reset=reset, isolation_level=level, group=None, auto_commit_interval_ms=None)
        return cls(
            reset=reset,
            isolation_level=level,
            auto_commit_interval_ms=auto_commit_interval_ms if enable_auto_commit else None,
            group=GroupConfig(
                group_id=group,
                group_instance_id=group_instance_id,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                assignors=make_assignors(partition_assignment_strategy),
                client_rack=client_rack,
            ),
        )

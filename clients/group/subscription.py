"""Subscription of a group's member: topics by name, or every topic that a pattern matches.

    Subscription.of(["flights", "gates"])
    Subscription.of(re.compile(r"flights-.*"))

A pattern has to match the whole name, as in Java's client. It is matched again after every metadata
refresh, so a new topic is added after `metadata_max_age_ms` at the latest. Internal topics are
omitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ...protocol.errors import InvalidConfig
from ..wire.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class Subscription:
    """topics: sorted, each once; empty with a pattern. Without either, nothing is subscribed."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, wanted: str | Iterable[str] | re.Pattern[str]) -> Self:
        if isinstance(wanted, re.Pattern):
            return cls(pattern=wanted)
        return cls(tuple(sorted({wanted} if isinstance(wanted, str) else set(wanted))))

    @classmethod
    def matching(cls, pattern: str | re.Pattern[str]) -> Self:
        """Subscription by pattern. Raises InvalidConfig: it is not a regular expression."""
        try:
            return cls(pattern=re.compile(pattern))
        except re.error as error:
            raise InvalidConfig(f"pattern={pattern!r}: {error}") from None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def covers(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.topics
        return self.pattern.fullmatch(topic) is not None

    def topics_in(self, view: ClusterView) -> tuple[str, ...]:
        """Topics for JoinGroup: the named ones, known or not; or those in `view` that match."""
        if self.pattern is None:
            return self.topics
        return tuple(
            sorted(
                topic.name
                for topic in view.topics.values()
                if topic.partitions and not topic.is_internal and self.covers(topic.name)
            )
        )

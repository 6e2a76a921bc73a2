"""A group's coordinator as a join and the heartbeats see it: see consumer_coordinator."""

from __future__ import annotations

from typing import Protocol

from ...protocol.errors import KafkaError
from ..fetch.consumer_metrics import GroupMetrics
from ..wire.coordinator_lookup import CoordinatorLookup
from .membership import GroupConfig, Membership
from .subscription import Subscription


class MemberCoordinator(Protocol):
    """Implemented by coordinator.Coordinator. All of it is used on the I/O thread."""

    config: GroupConfig
    metrics: GroupMetrics
    membership: Membership
    subscription: Subscription
    joined_topics: tuple[str, ...]
    led_counts: dict[str, int] | None
    unsent_commits: int
    lookup: CoordinatorLookup

    def request_rejoin(self, reason: str) -> None:
        """The next poll begins a rebalance."""
        ...

    def reset(self, *, keep_member_id: bool = False) -> None:
        """The member is no longer in a generation."""
        ...

    def on_lost(self, *, keep_member_id: bool = False) -> None:
        """What it owns may be another's: it joins again."""
        ...

    def on_fenced(self, error: KafkaError) -> None:
        """Another process has its group.instance.id."""
        ...

    def fail(self, error: KafkaError) -> None:
        """The next poll raises `error`."""
        ...

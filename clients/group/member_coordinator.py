"""A group's coordinator as a join and the heartbeats see it: see consumer_coordinator."""

from __future__ import annotations

from typing import Protocol

from ...protocol.errors import KafkaError
from ..fetch.consumer_metrics import GroupMetrics
from ..wire.coordinator_lookup import CoordinatorLookup
from .membership import GroupConfig, Membership
from .subscription import Subscription


class MemberCoordinator(Protocol):
    """Implemented by ConsumerCoordinator. All of it is used on the I/O thread."""

    config: GroupConfig
    metrics: GroupMetrics
    membership: Membership
    subscription: Subscription
    joined_topics: tuple[str, ...]
    led_counts: dict[str, int] | None
    unsent_commits: int
    lookup: CoordinatorLookup

    def request_rejoin(self, reason: str) -> None:
        """Let the next poll start a rebalance."""
        ...

    def reset(self, *, keep_member_id: bool = False) -> None:
        """Reset the generation of the member."""
        ...

    def on_lost(self, *, keep_member_id: bool = False) -> None:
        """Handle the loss of the membership: its partitions may belong to another; it rejoins."""
        ...

    def on_fenced(self, error: KafkaError) -> None:
        """Handle fencing: another process has its group.instance.id."""
        ...

    def fail(self, error: KafkaError) -> None:
        """Let the next poll raise `error`."""
        ...

"""A member's standing in its group, as a join and the heartbeats reach it: see coordinator."""

from __future__ import annotations

from typing import Protocol

from ...protocol.errors import KafkaError
from ..fetch.consumer_metrics import GroupMetrics
from ..wire.connection import Address
from ..wire.io_thread import Steps
from .membership import GroupConfig, Membership
from .subscription import Subscription


class Standing(Protocol):
    """Implemented by coordinator.Coordinator. All of it is used on the I/O thread."""

    config: GroupConfig
    metrics: GroupMetrics
    membership: Membership
    subscription: Subscription
    joined_topics: tuple[str, ...]
    led_counts: dict[str, int] | None
    unsent_commits: int

    @property
    def generation(self) -> int: ...

    def find(self) -> Steps[Address]:
        """The coordinator's address; it is looked for as long as it is not known."""
        ...

    def forget(self) -> None:
        """It is no longer the coordinator."""
        ...

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

    def leave_group(self, member_id: str, reason: str) -> Steps[None]:
        """LeaveGroup, once, whatever the answer."""
        ...

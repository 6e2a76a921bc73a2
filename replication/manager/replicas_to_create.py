"""Replicas whose logs could not be created for lack of disk space: retried until they are.

They are created in the directory that was chosen for them: if another one were used, a start could
find a part in each. If that directory has failed they stay offline, like all replicas in it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from ...protocol.topic_partition import TopicPartitionPair
from ..effects import DeadlineMoved, Effects

RETRY_MS: Final = 1_000
"""Pause between attempts; a failed one costs one refused write."""


class MakingNode(Protocol):
    """Node that creates the replicas."""

    def make_replicas(self, keys: Collection[TopicPartitionPair], now_ms: int) -> bool:
        """Begin to create the replicas; False: not now, other work is under way."""
        ...


class ReplicasToCreate:
    """Such replicas of one incarnation of a node. A step: `next_deadline_ms`, `on_tick`."""

    def __init__(self, node: MakingNode, effects: Effects) -> None:
        self._node = node
        self._effects = effects
        self._keys: dict[TopicPartitionPair, None] = {}
        self._tries_at_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self._keys)

    def wait_for(self, keys: Collection[TopicPartitionPair], now_ms: int) -> None:
        """Note replicas that could not be created."""
        if keys:
            self._keys.update(dict.fromkeys(keys))
            self._tries_at_ms = now_ms + RETRY_MS
            self._effects.append(DeadlineMoved(self))

    def forget(self, key: TopicPartitionPair) -> None:
        """Forget a replica that is created, or no longer assigned to this node."""
        self._keys.pop(key, None)

    @property
    def next_deadline_ms(self) -> int | None:
        """See effects.TickingStep."""
        return self._tries_at_ms if self._keys else None

    def on_tick(self, now_ms: int) -> None:
        if not self._keys or self._tries_at_ms is None or now_ms < self._tries_at_ms:
            return
        # Until the outcome is known; replicas that fail again are passed to wait_for.
        self._tries_at_ms = now_ms + RETRY_MS
        self._node.make_replicas(list(self._keys), now_ms)

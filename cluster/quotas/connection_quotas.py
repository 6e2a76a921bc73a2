"""Limits of connections: which is refused, which waits, which is closed for another one.

Kafka's ConnectionQuotas.

A listener is under two limits of each kind, the node's and its own; without a setting of its own,
its own limit is the value of the node, for this listener alone. The listener between nodes is
protected where there are others: only its own limits hold for it, so a crowd of clients does not
keep nodes from each other. If the node then has more connections than its limit, those of the other
listeners are closed, the least recently used first.

Not here: quotas of new connections of an address, see client_quota_rates.
Source: ConnectionQuotas in SocketServer.scala; KIP-402, KIP-612.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Protocol, TypeVar

SHORTEST_WAIT_SECONDS = 0.01


class ListenerSession(Protocol):
    """What is known of a connection: the listener that it came by."""

    @property
    def listener(self) -> str: ...


class OpenConnection(Protocol):
    """An open connection. last_activity: when bytes last went either way."""

    @property
    def session(self) -> ListenerSession: ...
    @property
    def last_activity(self) -> float: ...


C = TypeVar("C", bound=OpenConnection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits for one listener: the node's for all of its listeners, and the listener's own.

    The most connections, and the most new ones per second.
    """

    of_node: int
    rate_of_node: int
    of_listener: int
    rate_of_listener: int


class ConnectionQuotas:
    """Counts of the connections of one node. `between`: the listener that nodes use."""

    def __init__(self, between: str) -> None:
        self._between = between
        self._by_listener: dict[str, int] = {}
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._node_rate = _Bucket()
        self._rates: dict[str, _Bucket] = {}

    def add_listener(self, listener: str, now: float) -> None:
        """Begin to count for a listener; its rate, and the node's, is measured from `now` on."""
        self._by_listener.setdefault(listener, 0)
        self._rates[listener] = _Bucket(now)
        self._node_rate = _Bucket(now)

    def is_protected(self, listener: str) -> bool:
        """Whether the limits of the node do not hold for this listener."""
        return listener == self._between and len(self._by_listener) > 1

    def seconds_to_wait(self, listener: str, limits: ConnectionLimits, now: float) -> float:
        """Seconds until the next connection may be accepted; 0: now."""
        wait = self._rates[listener].seconds_to_wait(limits.rate_of_listener, now)
        if self.is_protected(listener):
            return wait
        return max(wait, self._node_rate.seconds_to_wait(limits.rate_of_node, now))

    def take(self, listener: str) -> None:
        """Count a connection against the rates, whether it is served or refused."""
        self._rates[listener].take()
        if not self.is_protected(listener):
            self._node_rate.take()

    def refusal(
        self, listener: str, address: str, limits: ConnectionLimits, most_of_address: int
    ) -> str | None:
        """Name of the setting that one more connection would exceed, or None."""
        if not self.is_protected(listener) and self._total >= limits.of_node:
            return "max.connections"
        if self._by_listener[listener] >= limits.of_listener:
            return f"listener.name.{listener.lower()}.max.connections"
        if self._by_address[address] >= most_of_address:
            return "max.connections.per.ip"
        return None

    def add(self, listener: str, address: str) -> None:
        self._by_listener[listener] += 1
        self._by_address[address] += 1
        self._total += 1

    def remove(self, listener: str, address: str) -> None:
        self._by_listener[listener] -= 1
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def excess(self, connections: Iterable[C], of_node: int) -> list[C]:
        """The connections to close as there are more than `of_node`: the least recently used of
        listeners that are not protected. Cost: constant, unless there are too many.
        """
        count = self._total - of_node
        if count <= 0:
            return []
        others = (each for each in connections if not self.is_protected(each.session.listener))
        return nsmallest(count, others, key=lambda each: each.last_activity)


class _Bucket:
    """Token bucket that holds one second's connections, empty at first."""

    __slots__ = ("_filled_at", "_tokens")

    def __init__(self, now: float = 0.0) -> None:
        self._tokens = 0.0
        self._filled_at = now

    def seconds_to_wait(self, rate: int, now: float) -> float:
        self._tokens = min(float(rate), self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._tokens >= 1:
            return 0.0
        return max(SHORTEST_WAIT_SECONDS, (1 - self._tokens) / rate)

    def take(self) -> None:
        self._tokens -= 1

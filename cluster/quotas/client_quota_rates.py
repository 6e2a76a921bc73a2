"""Rates of all clients of a node, for one kind of quota: bytes, time, or connections.

Invariants: a client without a quota costs a dict look-up and is not measured; at most
MOST_RATES rates are kept, and rates that were not used for an hour are dropped when others come.
Source: ClientQuotaManager in apache/kafka, whose sensors expire after an hour, too.
"""

from __future__ import annotations

from math import inf
from typing import Final

from .quota_limits import Limits, Sharers
from .quota_rate import QuotaRate

EXPIRES_MS: Final = 3_600_000
LOOK_MS: Final = 60_000
MOST_RATES: Final = 10_000
"""Most rates kept; client ids are chosen by clients, and one might send a new one each time."""


class ClientQuotaRates:
    """Rates by client. `samples`, `window_ms`: see QuotaRate. `longest_ms`: longest throttle time
    of an answer.
    """

    def __init__(
        self, limits: Limits, *, samples: int, window_ms: int, longest_ms: int | None = None
    ) -> None:
        self._limits = limits
        self._samples = samples
        self._window_ms = window_ms
        self._longest_ms = longest_ms
        self._rates: dict[Sharers, QuotaRate] = {}
        self._known: dict[tuple[str, str], tuple[Sharers, float | None]] = {}
        self._expired_at_ms = 0

    def follow(self, limits: Limits) -> None:
        """Adopt other quotas, which also apply to earlier use."""
        if limits != self._limits:
            self._limits = limits
            self._known.clear()

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count the use of `value` by a client. Returns the throttle time in ms."""
        sharers, limit = self._find(user, client_id)
        if limit is None:
            return 0
        rate = self._rate(sharers, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return throttle_ms if self._longest_ms is None else min(throttle_ms, self._longest_ms)

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Take back a counted `value`: the client did not get it."""
        sharers, limit = self._find(user, client_id)
        if limit is not None:
            self._rate(sharers, now_ms).record(-value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float:
        """Burst that a client without recent use may have; inf: there is no limit."""
        _, limit = self._find(user, client_id)
        if limit is None:
            return inf
        return limit * (self._samples - 1) * self._window_ms / 1000

    def _find(self, user: str, client_id: str) -> tuple[Sharers, float | None]:
        who = user, client_id
        found = self._known.get(who)
        if found is None:
            if len(self._known) >= MOST_RATES:
                self._known.clear()
            found = self._known[who] = self._limits.of(user, client_id)
        return found

    def _rate(self, sharers: Sharers, now_ms: int) -> QuotaRate:
        rate = self._rates.get(sharers)
        if rate is None:
            self._expire(now_ms)
            rate = QuotaRate(samples=self._samples, window_ms=self._window_ms)
            self._rates[sharers] = rate
        return rate

    def _expire(self, now_ms: int) -> None:
        if now_ms - self._expired_at_ms >= LOOK_MS:
            self._expired_at_ms = now_ms
            for sharers, rate in list(self._rates.items()):
                if now_ms - rate.used_at_ms >= EXPIRES_MS:
                    del self._rates[sharers]
        while len(self._rates) >= MOST_RATES:
            del self._rates[next(iter(self._rates))]

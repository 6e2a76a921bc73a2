"""Rate of a client, and the time until it falls to its quota.

A rate is the use in the last `samples` slices of `window_ms`, divided by the time that they cover.
Slices that a new client does not have yet count as covered, so it may use the quota of
`samples - 1` slices at once. A slice begins with the first use after the former slice has ended,
and counts until `samples` times `window_ms` after its last use.

A token bucket is filled at the quota's rate, up to the quota of `samples` slices, and may go into
debt. It measures changes of topics: after a burst a client waits until the debt is repaid, and no
longer (KIP-599).

Both give Kafka's throttle times to the millisecond. Not shared with replication_quota, which
measures from the first byte on, as Kafka's replication quotas do (SimpleRate).
Source: Rate, SampledStat, TokenBucket, QuotaUtils in apache/kafka; KIP-13, KIP-219.
"""

from __future__ import annotations

from math import floor


class QuotaRate:
    """Recent use of one client, or of several that share a quota. Units are the caller's."""

    __slots__ = ("_current", "_samples", "_slices", "_window_ms", "used_at_ms")

    def __init__(self, *, samples: int, window_ms: int) -> None:
        """Measure over `samples` slices of `window_ms`: quota.window.num and
        quota.window.size.seconds.
        """
        self._samples = samples
        self._window_ms = window_ms
        self._slices: list[list[float]] = []
        """(begin, last use, sum) of up to samples + 1 slices, a ring."""
        self._current = 0
        self.used_at_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`. Cost: constant."""
        self.used_at_ms = now_ms
        if not self._slices:
            self._slices.append([now_ms, now_ms, value])
            return
        current = self._slices[self._current]
        if now_ms - current[0] >= self._window_ms:
            self._current = (self._current + 1) % (self._samples + 1)
            if self._current == len(self._slices):
                self._slices.append([now_ms, now_ms, value])
                return
            current = self._slices[self._current]
            current[0] = now_ms
            current[2] = 0.0
        current[1] = now_ms
        current[2] += value

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Time in ms until the rate falls to `limit` per second if nothing more is used; 0: it is
        not above.

        Cost: linear in the number of slices.
        """
        expires_ms = self._samples * self._window_ms
        total = 0.0
        oldest = float(now_ms)
        for one in self._slices:
            if now_ms - one[1] >= expires_ms:
                one[0] = one[1] = now_ms
                one[2] = 0.0
            total += one[2]
            oldest = min(oldest, one[0])
        window_ms = self._covered_ms(now_ms - oldest)
        rate = total / window_ms * 1000
        if rate <= limit:
            return 0
        return floor((rate - limit) / limit * window_ms + 0.5)

    def _covered_ms(self, elapsed_ms: float) -> float:
        """Time in ms that the slices cover."""
        missing = self._samples - 1 - int(elapsed_ms / self._window_ms)
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1)


class TokenBucket:
    """Token bucket, full at first."""

    __slots__ = ("_filled_at_ms", "_seconds", "_tokens")

    def __init__(self, *, samples: int, window_ms: int, now_ms: int) -> None:
        self._seconds = samples * window_ms / 1000
        self._tokens: float | None = None
        self._filled_at_ms = now_ms

    @property
    def used_at_ms(self) -> int:
        return self._filled_at_ms

    def take(self, value: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self._seconds * limit, self._fill(limit, now_ms) - value)

    def is_in_debt(self, limit: float, now_ms: int) -> bool:
        return self._fill(limit, now_ms) < 0

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Time in ms until the debt is repaid, at `limit` tokens per second; 0: no debt."""
        tokens = self._fill(limit, now_ms)
        return floor(-tokens / limit * 1000 + 0.5) if tokens < 0 else 0

    def _fill(self, limit: float, now_ms: int) -> float:
        most = self._seconds * limit
        if self._tokens is None:
            self._tokens = most
        else:
            added = limit * (now_ms - self._filled_at_ms) / 1000
            self._tokens = min(most, self._tokens + added)
        self._filled_at_ms = now_ms
        return self._tokens

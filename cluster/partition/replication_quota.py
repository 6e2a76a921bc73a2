"""Rate limit of copying by replicas that catch up.

A rate is measured over the last `samples` slices of about a second. Once it is above the limit, a
partition waits until time, or the expiry of slices, brings it down again; so the average over a
long copy is the limit, and a pause is followed by a burst of no more than one slice's worth.

Pure: the time comes from the caller. Not here: which replicas are throttled (storage/
throttled_replicas), and where the limit applies (replication/partition/replication_throttle).
Source: ReplicationQuotaManager, SimpleRate in apache/kafka; KIP-73.
"""

from __future__ import annotations

from collections import deque

from ...protocol.config_key import LONG_MAX


class ReplicationQuota:
    """Bytes that one node sent, received or moved lately. Not thread-safe."""

    def __init__(self, *, samples: int, sample_ms: int) -> None:
        """Measure over `samples` slices of `sample_ms`: replication.quota.window.num and
        .size.seconds.
        """
        self._samples = samples
        self._sample_ms = sample_ms
        self._sizes: deque[tuple[float, int]] = deque()
        """(beginning, bytes) of slices, oldest first; a slice begins with its first bytes."""
        self._total = 0

    def record(self, size: int, now_ms: float) -> None:
        """Count `size` copied bytes. Cost: constant."""
        self._forget(now_ms)
        self._total += size
        if self._sizes and now_ms - self._sizes[-1][0] < self._sample_ms:
            began, before = self._sizes[-1]
            self._sizes[-1] = began, before + size
        else:
            self._sizes.append((now_ms, size))

    def wait_ms(self, bytes_per_second: int, now_ms: float) -> float:
        """Time in ms until the rate is no longer above the limit; 0: it is not above."""
        if bytes_per_second >= LONG_MAX:
            return 0.0
        self._forget(now_ms)
        if not self._sizes:
            return 0.0
        elapsed = max(now_ms - self._sizes[0][0], self._sample_ms)
        if bytes_per_second > 0:
            needed = self._total * 1000 / bytes_per_second
            if needed <= elapsed:
                return 0.0
            wait = self._sizes[0][0] + needed - now_ms
        else:
            wait = float(self._samples * self._sample_ms)
        # When the oldest slice expires the rest may be below the limit: check again then.
        return min(wait, self._expires_in(now_ms))

    def _expires_in(self, now_ms: float) -> float:
        return max(1.0, self._sizes[0][0] + self._samples * self._sample_ms - now_ms)

    def _forget(self, now_ms: float) -> None:
        while self._sizes and self._sizes[0][0] + self._samples * self._sample_ms <= now_ms:
            self._total -= self._sizes.popleft()[1]

"""Throttler: how long to wait so that a rate is not exceeded on average.

Source: apache/kafka server-common/.../util/Throttler.java.
"""

from __future__ import annotations

CHECK_INTERVAL_MS = 300


class Throttler:
    """Rate limit in bytes per second. Not thread-safe: callers that share one hold a lock."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_ms = bytes_per_second / 1000
        self._period_start_ms: float | None = None
        self._observed = 0

    def set_rate(self, bytes_per_second: float) -> None:
        """Set another rate from now on."""
        self._bytes_per_ms = bytes_per_second / 1000

    def observe(self, size: int, now_ms: float) -> float:
        """Count `size` bytes; returns the milliseconds to wait before any more.

        Checked every CHECK_INTERVAL_MS, so a burst of that length passes before the first wait.
        """
        if self._period_start_ms is None:
            self._period_start_ms = now_ms
        self._observed += size
        elapsed_ms = now_ms - self._period_start_ms
        if elapsed_ms < CHECK_INTERVAL_MS or self._observed == 0:
            return 0.0
        wait_ms = max(0.0, self._observed / self._bytes_per_ms - elapsed_ms)
        # The next period begins when the wait is over, or the wait would be counted as idle time.
        self._period_start_ms = now_ms + wait_ms
        self._observed = 0
        return wait_ms

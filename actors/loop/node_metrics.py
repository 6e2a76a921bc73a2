"""Counters of one node: its requests, its connections, the lag of its event loop.

Plain integers on the node's loop; actors/metrics/metrics_collector.py turns them into metrics.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

from ...handlers.ports.request_metrics import Histogram, RequestMetrics

LAG_PROBE_SECONDS: Final = 0.1
QUOTAS: Final = ("produce", "fetch", "request", "controller_mutation", "connection")


class NodeMetrics(RequestMetrics):
    """Counters of one node; see the module. Labels (limits, reasons) have few, fixed values."""

    def __init__(self) -> None:
        super().__init__()
        self.connections_accepted = 0
        self.connections_refused: Counter[str] = Counter()
        self.connections_closed: Counter[str] = Counter()
        self.throttles = {quota: Histogram() for quota in QUOTAS}
        """Times that clients were told to wait, by quota."""
        self.loop_lag = Histogram()
        self.unexpected_errors = 0


class LoopProbe:
    """Probe of the event loop's lag: a timer that records how late it fires."""

    def __init__(self, lag: Histogram) -> None:
        self._lag = lag
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        self._due = time.perf_counter() + LAG_PROBE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(LAG_PROBE_SECONDS, self._fire)

    def _fire(self) -> None:
        self._lag.observe(max(0.0, time.perf_counter() - self._due))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

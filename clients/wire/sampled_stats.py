"""Statistics of the last minute, and totals: the values of Kafka's metrics.

Invariants:
    Recording is a few additions, done once a batch or request, and takes no lock: each figure is
    recorded by one thread, or under a lock of its owner's. Any thread may read.
    A rate counts at least one whole window, so that the first records do not give an extreme rate.

Source: SampledStat, Rate in apache/kafka clients/.../common/metrics/stats; metrics.num.samples and
metrics.sample.window.ms at their defaults.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final

WINDOW_SECONDS: Final = 30.0
WINDOW_COUNT: Final = 2

Figures = dict[str, float]


class _Window:
    __slots__ = ("count", "highest", "started", "sum")

    def __init__(self, started: float) -> None:
        self.started = started
        self.sum = 0.0
        self.count = 0
        self.highest = -math.inf


class SampledStat:
    """Sum, average and highest of the values of the last windows. Times are time.monotonic()."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[_Window] = deque(maxlen=WINDOW_COUNT)

    def record(self, value: float, now: float) -> None:
        windows = self._windows
        if not windows or now - windows[-1].started >= WINDOW_SECONDS:
            windows.append(_Window(now))
        window = windows[-1]
        window.sum += value
        window.count += 1
        window.highest = max(window.highest, value)

    def average(self, now: float) -> float:
        """Average of the values; NaN without a value, as in Kafka's clients (also the highest)."""
        live = self._live(now)
        count = sum(window.count for window in live)
        return sum(window.sum for window in live) / count if count else math.nan

    def highest(self, now: float) -> float:
        return max((window.highest for window in self._live(now)), default=math.nan)

    def per_second(self, now: float) -> float:
        """Sum of the values per second of the windows."""
        live = self._live(now)
        if not live:
            return 0.0
        elapsed = now - live[0].started
        missing = WINDOW_COUNT - 1 - int(elapsed / WINDOW_SECONDS)
        elapsed += max(0, missing) * WINDOW_SECONDS
        return sum(window.sum for window in live) / elapsed

    def _live(self, now: float) -> list[_Window]:
        oldest = now - WINDOW_SECONDS * WINDOW_COUNT
        return [window for window in list(self._windows) if window.started > oldest]


class Meter:
    """Metrics `<name>-total`, and `<name>-rate` per second (or `-rate-per-hour`, as in Kafka)."""

    __slots__ = ("_name", "_per_hour", "_stat", "total")

    def __init__(self, name: str, *, per_hour: bool = False) -> None:
        self.total = 0.0
        self._name = name
        self._per_hour = per_hour
        self._stat = SampledStat()

    def record(self, value: float, now: float) -> None:
        self.total += value
        self._stat.record(value, now)

    def figures(self, now: float) -> Figures:
        rate = self._stat.per_second(now)
        if self._per_hour:
            return {
                f"{self._name}-total": self.total,
                f"{self._name}-rate-per-hour": rate * 3600,
            }
        return {f"{self._name}-total": self.total, f"{self._name}-rate": rate}


class Average:
    """`<name>-avg` and `<name>-max`, or one of them where Kafka has no other."""

    __slots__ = ("_average", "_highest", "_name", "_stat")

    def __init__(self, name: str, *, average: bool = True, highest: bool = True) -> None:
        self._name = name
        self._average = average
        self._highest = highest
        self._stat = SampledStat()

    def record(self, value: float, now: float) -> None:
        self._stat.record(value, now)

    def figures(self, now: float) -> Figures:
        found: Figures = {}
        if self._average:
            found[f"{self._name}-avg"] = self._stat.average(now)
        if self._highest:
            found[f"{self._name}-max"] = self._stat.highest(now)
        return found


Metrics = dict[str, Figures]
"""Metrics of a client: {group: {name: figure}}. Groups of a topic or partition name it, as
in Kafka's JMX names: "producer-topic-metrics,topic=flights".
"""


def tagged(group: str, tags: Mapping[str, object]) -> str:
    return ",".join([group, *(f"{name}={value}" for name, value in tags.items())])

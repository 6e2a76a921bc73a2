"""Number of members that a group should have, by its lag.

Like KEDA's Kafka scaler and Ray Serve's replicas: lag divided by `target_lag`, or the current
number multiplied by the ratio of the oldest record's age to `target_lag_s`; at most the number of
partitions that lag, and within the bounds. The group grows when a higher number was wanted for
`upscale_delay_s`, and shrinks to the highest number wanted in the last `downscale_delay_s`.

Pure: times are seconds, passed by the caller.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from ...protocol.errors import InvalidConfig

UPSCALE_DELAY_S: Final = 2.0
DOWNSCALE_DELAY_S: Final = 60.0
MAX_GROWTH: Final = 2
"""Maximum growth factor per step by age, as the age after the step is not known."""


class Backlog(NamedTuple):
    """Unread records of one partition, and the age of the first of them in seconds."""

    records: int
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """Settings of the autoscaler; target_lag, target_lag_s or both are given."""

    min_actors: int
    max_actors: int
    target_lag: int | None
    target_lag_s: float | None
    upscale_delay_s: float
    downscale_delay_s: float

    def __post_init__(self) -> None:
        """Check the settings. Raises InvalidConfig."""
        if not 1 <= self.min_actors <= self.max_actors:
            raise InvalidConfig(
                f"min_actors={self.min_actors}, max_actors={self.max_actors}: use at least 1, and "
                "no maximum below it"
            )
        if self.target_lag is None and self.target_lag_s is None:
            raise InvalidConfig(
                "max_actors needs target_lag (records for each actor) or target_lag_s (seconds)"
            )
        for name in ("target_lag", "target_lag_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidConfig(f"{name}={value}: use more than 0")
        if self.upscale_delay_s < 0 or self.downscale_delay_s < 0:
            raise InvalidConfig("upscale_delay_s and downscale_delay_s cannot be negative")


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """Change of the number of members, done or about to be."""

    at: datetime
    actors_before: int
    actors: int
    lag: int
    lag_s: float | None

    def __str__(self) -> str:
        age = "" if self.lag_s is None else f", the oldest {self.lag_s:.1f} s old"
        return f"{self.actors_before} -> {self.actors} actors: lag {self.lag:,} records{age}"


class LagScaling:
    """Decisions for one group."""

    def __init__(self, config: ScalingConfig) -> None:
        self._config = config
        self._wanted: deque[tuple[float, int]] = deque()
        self._began_at: float | None = None

    def decide(self, now: float, actors: int, partitions: Sequence[Backlog]) -> int:
        """Return the number of members that the group should have from now on."""
        config = self._config
        wanted = self._wanted_now(actors, partitions)
        if self._began_at is None:
            self._began_at = now
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - max(config.downscale_delay_s, config.upscale_delay_s):
            self._wanted.popleft()
        lately = [count for at, count in self._wanted if at >= now - config.upscale_delay_s]
        grown = min(lately)
        if now - self._began_at >= config.upscale_delay_s and grown > actors:
            return grown
        since_down = now - config.downscale_delay_s
        if now - self._began_at >= config.downscale_delay_s:
            most = max(count for at, count in self._wanted if at >= since_down)
            if most < actors:
                return most
        return min(max(actors, config.min_actors), config.max_actors)

    def _wanted_now(self, actors: int, partitions: Sequence[Backlog]) -> int:
        config = self._config
        wanted = wanted_members(
            actors, partitions, target_lag=config.target_lag, target_lag_s=config.target_lag_s
        )
        return max(min(wanted, config.max_actors), config.min_actors)


def wanted_members(
    members: int,
    partitions: Sequence[Backlog],
    *,
    target_lag: int | None,
    target_lag_s: float | None,
) -> int:
    """Number of members for the current lag; 0 if there is none."""
    lagging = [one for one in partitions if one.records > 0]
    if not lagging:
        return 0
    wanted = 1
    if target_lag is not None:
        wanted = math.ceil(sum(one.records for one in lagging) / target_lag)
    if target_lag_s is not None:
        oldest = max((one.age_s or 0.0 for one in lagging), default=0.0)
        by_age = math.ceil(max(1, members) * min(oldest / target_lag_s, MAX_GROWTH))
        wanted = max(wanted, by_age)
    return min(wanted, len(lagging))

"""How many members a group should have, from how far it is behind.

Like KEDA's Kafka scaler and Ray Serve's replicas: as many as have `target_lag` records each, or as
many more as the oldest record is older than `target_lag_s`; never more than there are partitions
that lag, and within the bounds. It grows when that was so for `upscale_delay_s`, and shrinks to the
greatest number that was wanted in the last `downscale_delay_s`.

Pure: times are seconds, given by the caller.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from ...protocol.errors import InvalidConfig

MAX_GROWTH: Final = 2
"""By age alone the number at most doubles at once: how old it will be then is not known."""


class Backlog(NamedTuple):
    """Of one partition: unread records, and how old the first of them is."""

    records: int
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """target_lag, target_lag_s: at least one of them."""

    min_actors: int
    max_actors: int
    target_lag: int | None
    target_lag_s: float | None
    upscale_delay_s: float
    downscale_delay_s: float

    def __post_init__(self) -> None:
        """Raises InvalidConfig."""
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
    """The group has, or is about to have, another number of members."""

    at: datetime
    actors_before: int
    actors: int
    lag: int
    lag_s: float | None

    def __str__(self) -> str:
        age = "" if self.lag_s is None else f", the oldest {self.lag_s:.1f} s old"
        return f"{self.actors_before} -> {self.actors} actors: lag {self.lag:,} records{age}"


class LagScaling:
    """Of one group."""

    def __init__(self, config: ScalingConfig) -> None:
        self._config = config
        self._wanted: deque[tuple[float, int]] = deque()
        self._began_at: float | None = None

    def decide(self, now: float, actors: int, partitions: Sequence[Backlog]) -> int:
        """The number of members there should be from now on."""
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
    """As many as the lag needs at this moment; 0 if there is none."""
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

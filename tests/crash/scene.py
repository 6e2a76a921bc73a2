"""The cluster as a nemesis finds it, and what a nemesis is."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .cluster import CrashCluster
from .history import Lines


class Scene:
    """The cluster, and what a nemesis needs to trouble it."""

    def __init__(
        self,
        cluster: CrashCluster,
        lines: Lines,
        seed: int,
        leaders: Callable[[], list[int]],
        most_seconds: float,
        *,
        in_sync: Callable[[], list[int]],
        topic: str,
    ) -> None:
        """`leaders`, `in_sync`: of each partition of `topic`, as clients are told."""
        self.cluster = cluster
        self.topic = topic
        self.in_sync = in_sync
        self.random = random.Random(seed)
        self.leaders = leaders
        self.most_seconds = most_seconds
        """The longest that a fault may take, of those that can be longer or shorter."""
        self._lines = lines
        self.count = 0
        self.recoveries: list[float] = []

    @property
    def partitions(self) -> int:
        """The topic's partitions."""
        return len(self.leaders())

    def fault(self, what: str, **fields: Any) -> None:
        """Say it right before doing it."""
        self.count += 1
        self.note("fault", what=what, **fields)

    def note(self, event: str, **fields: Any) -> None:
        self._lines.write(event=event, time=time.monotonic_ns(), **fields)

    def some_partition_actor(self) -> str:
        """A third of the time each: the leader of most, one that leads less, any."""
        names = self.cluster.of_kind("partitions")
        by_id = self.cluster.node_ids()
        led = [by_id[leader] for leader in self.leaders() if leader in by_id]
        ranked = sorted(names, key=led.count)
        return self.random.choice([ranked[-1], ranked[0], self.random.choice(names)])

    def some_seconds(self, least: float, most: float) -> float:
        """Short ones as often as long ones."""
        most = max(least, min(most, self.most_seconds))
        seconds: float = least * (most / least) ** self.random.random()
        return seconds


@dataclass(frozen=True)
class Nemesis:
    """pause: seconds between one fault and the next, least and most. cluster: what it is done to.

    config: of the cluster. needs_networks: the Ray nodes must have networks of their own; see
    networks.
    """

    name: str
    what: str
    act: Callable[[Scene], None]
    pause: tuple[float, float] = (3, 10)
    cluster: Callable[..., Any] = CrashCluster
    config: Mapping[str, Any] = field(default_factory=dict)
    needs_networks: bool = False

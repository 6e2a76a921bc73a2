"""When each node last asked the controller for news, and when it last had all there was.

Wall-clock times, as DescribeQuorum shows them; sessions go by another clock. Soft state: a new
controller knows of those who have asked it.
"""

from __future__ import annotations

from typing import NamedTuple


class PollTime(NamedTuple):
    """In ms; -1: never."""

    last_ms: int = -1
    caught_up_ms: int = -1


class PollTimes:
    def __init__(self) -> None:
        self._times: dict[int, PollTime] = {}

    def on_poll(self, node_id: int, *, has_all: bool, now_ms: int) -> None:
        """has_all: what it said to have was everything at that moment."""
        before = self._times.get(node_id, PollTime())
        self._times[node_id] = PollTime(now_ms, now_ms if has_all else before.caught_up_ms)

    def clear(self) -> None:
        self._times.clear()

    def of_all(self) -> dict[int, PollTime]:
        """By node id."""
        return dict(self._times)

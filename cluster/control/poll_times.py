"""Times of the nodes' last polls of the controller, and of the last polls in which they were caught
up.

Wall-clock times, as DescribeQuorum returns them; sessions use a monotonic clock. Soft state: a new
controller has the times of the nodes that have polled it.
"""

from __future__ import annotations

from typing import NamedTuple


class PollTime(NamedTuple):
    """Times of one node in ms since 1970; -1: never."""

    last_ms: int = -1
    caught_up_ms: int = -1


class PollTimes:
    def __init__(self) -> None:
        self._times: dict[int, PollTime] = {}

    def on_poll(self, node_id: int, *, has_all: bool, now_ms: int) -> None:
        """Note a poll. has_all: the node had applied the whole metadata log."""
        before = self._times.get(node_id, PollTime())
        self._times[node_id] = PollTime(now_ms, now_ms if has_all else before.caught_up_ms)

    def clear(self) -> None:
        self._times.clear()

    def of_all(self) -> dict[int, PollTime]:
        """Poll times by node id."""
        return dict(self._times)

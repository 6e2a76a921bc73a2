"""Which groups are looked at for expired offsets, and what time it is for them.

A round goes over all groups a few at a time, with everybody's turn in between, and then rests for
offsets.retention.check.interval.ms.

The time is the wall's, because it is compared with times in the log, which other machines wrote.
But a wall clock may leap: set wrong by an operator or a guest that wakes up, it would expire the
offsets of every idle group at once, for good. So between two rounds at most twice the interval
counts. A leap that is taken back has expired nothing; one that stays is caught up with, slowly.

What always holds: `now_ms` is never ahead of the wall clock, so nothing expires early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .group_config import GroupCoordinatorConfig

GROUPS_AT_ONCE = 200
"""A few milliseconds of work."""


class Retention:
    def __init__(self, config: GroupCoordinatorConfig, *, now_ms: int) -> None:
        self.now_ms = now_ms
        self._interval_ms = config.offsets_retention_check_interval_ms
        self._to_do: deque[str] = deque()

    def next_groups(self, group_ids: Iterable[str], *, wall_ms: int) -> list[str]:
        """The next few of the round; a new round, of `group_ids`, begins if none is under way."""
        if not self._to_do:
            self._to_do.extend(group_ids)
            self.now_ms = min(wall_ms, self.now_ms + 2 * self._interval_ms)
        count = min(GROUPS_AT_ONCE, len(self._to_do))
        return [self._to_do.popleft() for _ in range(count)]

    @property
    def rest_ms(self) -> int:
        """Until the next call of next_groups."""
        return 0 if self._to_do else self._interval_ms

"""Schedule of the checks for expired offsets, and the time that applies to them.

A round checks all groups, a few at a time with other work in between; the next round begins after
offsets.retention.check.interval.ms.

Retention uses wall-clock time, because it is compared with timestamps in the log, which other
machines wrote. But a wall clock may leap: set wrong by an operator, or when a virtual machine
resumes, it would expire the offsets of every idle group at once, for good. So retention time begins
with the newest timestamp in the log, never goes back, and follows the wall clock at no more than
LEAP_FACTOR times the pace of the timer. A leap that is soon undone expires nothing; a lasting one
is caught up with.

Commits written while the clock is set back must not look old when it is corrected: they get no
timestamp before the newest in the log. Commits written while it is ahead keep that timestamp, and
are kept longer: a machine that was switched off looks the same, and there the wall clock is right.
For that reason a coordinator that starts during such a leap, and finds records of it in the log,
accepts that time.

Invariants: `now_ms` never decreases, and is at most the greatest wall-clock time seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ..group_config import GroupCoordinatorConfig

GROUPS_AT_ONCE = 200
OFFSETS_AT_ONCE = 5_000
"""Most groups or offsets of one check, a few milliseconds of work; its last group may exceed it."""
LEAP_FACTOR = 6
"""Most intervals that retention time advances per check interval: one hour per ten minutes, so a
day without power is caught up with in five hours.
"""


class Retention:
    def __init__(self, config: GroupCoordinatorConfig, *, now_ms: int, newest_ms: int = 0) -> None:
        """`now_ms`: wall-clock time. `newest_ms`: latest timestamp in the log, 0 if none."""
        self.now_ms = min(newest_ms or now_ms, now_ms)
        self._newest_ms = newest_ms
        self._interval_ms = config.offsets_retention_check_interval_ms
        self._to_do: deque[str] = deque()

    def next_groups(
        self, group_ids: Iterable[str], count_of: Callable[[str], int], *, wall_ms: int
    ) -> list[str]:
        """Next groups of the round; a new round, of `group_ids`, begins if none is under way.

        count_of: the number of offsets of a group.
        """
        if not self._to_do:
            self._to_do.extend(group_ids)
            known_ms = min(wall_ms, self.now_ms + LEAP_FACTOR * self._interval_ms)
            self.now_ms = max(known_ms, self.now_ms)
        found: list[str] = []
        offsets = 0
        while self._to_do and len(found) < GROUPS_AT_ONCE and offsets < OFFSETS_AT_ONCE:
            found.append(self._to_do.popleft())
            offsets += count_of(found[-1])
        return found

    def to_write(self, wall_ms: int) -> int:
        """Timestamp to store at the wall-clock time `wall_ms`."""
        return max(wall_ms, self.now_ms, self._newest_ms)

    @property
    def rest_ms(self) -> int:
        """Time in ms until the next call of next_groups."""
        return 0 if self._to_do else self._interval_ms

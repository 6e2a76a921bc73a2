"""Daily hours in which background work may run: `22-6`, from 22:00 to 6:00 UTC; empty: all day."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..protocol.config_key import HOUR_MS

_TEXT: Final = re.compile(r"(\d{1,2})-(\d{1,2})")


class DailyHours(NamedTuple):
    """Hours from `start` up to, not including, `end`; `end` is on the next day unless it is later
    than `start`.
    """

    start: int
    end: int

    def has(self, wall_ms: int) -> bool:
        """Whether a time is within these hours. wall_ms: ms since 1970."""
        hour = wall_ms // HOUR_MS % 24
        if self.start < self.end:
            return self.start <= hour < self.end
        return hour >= self.start or hour < self.end


ALL_DAY: Final = DailyHours(0, 24)


def parse_daily_hours(text: str) -> DailyHours:
    """Parse the text of a setting. Raises ValueError: not two different hours of a day."""
    if not text.strip():
        return ALL_DAY
    match = _TEXT.fullmatch(text.strip())
    if match is not None:
        hours = DailyHours(int(match[1]), int(match[2]))
        if hours.start < 24 and hours.end <= 24 and hours.start != hours.end:
            return hours
    raise ValueError(f"{text!r} is not hours of the day such as 22-6, or nothing for all day")

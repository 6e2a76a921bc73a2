"""Rate-limited log lines about peers: a flood of bad peers must not become a flood of lines.

A token bucket of BURST lines (or `burst`), refilled by PER_SECOND. Suppressed lines are counted;
the count is logged before the next line, or by `report_suppressed`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

BURST = 50
PER_SECOND = 2.0


class LineLimit:
    def __init__(
        self,
        logger: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        *,
        burst: float = BURST,
        per_second: float = PER_SECOND,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._left = burst
        self._filled_at = clock()
        self.suppressed_count = 0

    def info(self, message: str, *values: object) -> None:
        if self._logger.isEnabledFor(logging.INFO) and self._take_token():
            self._logger.info(message, *values)

    def warning(self, message: str, *values: object) -> None:
        if self._take_token():
            self._logger.warning(message, *values)

    def error(self, message: str, *values: object, cause: BaseException | None = None) -> None:
        if self._take_token():
            self._logger.error(message, *values, exc_info=cause)

    def report_suppressed(self) -> None:
        """Log how many lines were suppressed, once there is room for a line."""
        if self.suppressed_count and self._has_room():
            self._report()

    def _has_room(self) -> bool:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        return self._left >= 1

    def _take_token(self) -> bool:
        if not self._has_room():
            self.suppressed_count += 1
            return False
        if self.suppressed_count:
            self._report()
        self._left -= 1
        return True

    def _report(self) -> None:
        self._logger.warning("%d lines about peers were suppressed", self.suppressed_count)
        self.suppressed_count = 0
        self._left -= 1

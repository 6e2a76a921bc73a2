"""How long a continuous mirror waits before it looks for new records again. Pure.

Where records keep coming it looks again after as long as the last look took, copying included: it
is at work half of the time at most, however many partitions a look has to ask for. Each look that
finds nothing doubles the pause, so that an idle mirror costs nothing worth naming.
"""

from __future__ import annotations

from typing import Final

LEAST_SECONDS: Final = 0.002
MOST_SECONDS: Final = 0.2


class LookPauses:
    """commits: of the copier, so far."""

    def __init__(self, commits: int = 0) -> None:
        self._commits = commits
        self._pause_s = MOST_SECONDS

    def next_s(self, commits: int, took_s: float) -> float:
        """After a look of so many seconds, which has found something if commits are more now."""
        has_found = commits != self._commits
        self._commits = commits
        pause_s = max(LEAST_SECONDS, took_s) if has_found else 2 * self._pause_s
        self._pause_s = min(MOST_SECONDS, pause_s)
        return self._pause_s

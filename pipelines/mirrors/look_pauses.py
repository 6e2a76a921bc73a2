"""How long a continuous mirror waits before it looks for new records again. Pure.

Where records keep coming it looks at once, and each is on the other side within some ten
milliseconds; each look that finds nothing doubles the pause, so that an idle mirror costs nothing
worth naming.
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

    def next_s(self, commits: int) -> float:
        """After a look, which has committed something if there are more than before."""
        has_found = commits != self._commits
        self._commits = commits
        self._pause_s = LEAST_SECONDS if has_found else min(MOST_SECONDS, 2 * self._pause_s)
        return self._pause_s

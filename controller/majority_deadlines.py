"""Deadlines by which a controller needs a majority: for the batch it has appended, and for itself.

Invariants:
    A controller ends only if a majority has been silent for the whole time, and for `answer_ms`
    more from when it noticed. At a deadline its process may have stood still (SIGSTOP, a suspended
    machine), for a part of the time or for all of it, and have answers that it has not read: a new
    controller would have to be elected, and would give each node that is gone a session.
"""

from __future__ import annotations

from collections.abc import Iterable

from .quorum_times import QuorumTimes


class MajorityDeadlines:
    """Pure state: times in ms of a clock that never jumps."""

    def __init__(self, times: QuorumTimes) -> None:
        self._times = times
        self.commits_at: tuple[int, int] | None = None
        """End offset of the batch being replicated, and the deadline of its commit."""
        self._is_commit_late = False
        """Whether that deadline was reached, and is now the time that answers have to be read."""
        self._unconfirmed_until_ms = 0
        """Extended deadline of a missing majority; below the first one until that is reached."""

    def on_appended(self, end_offset: int, now_ms: int) -> None:
        """Set the deadline of a batch that is to be committed."""
        self.commits_at = end_offset, now_ms + self._times.commit_ms
        self._is_commit_late = False

    def on_committed(self, committed: int) -> bool:
        """Whether the batch is committed now that this offset is."""
        if self.commits_at is None or committed < self.commits_at[0]:
            return False
        self.commits_at = None
        return True

    def next_ms(self, confirmed_ms: Iterable[int]) -> list[int]:
        """The deadlines. `confirmed_ms`: when each voter confirmed the controller; may be empty."""
        times = list(confirmed_ms)
        deadlines = [] if self.commits_at is None else [self.commits_at[1]]
        if times:
            deadlines.append(max(self._majority_ms(times), self._unconfirmed_until_ms))
        return deadlines

    def silence_ms(self, confirmed_ms: Iterable[int], now_ms: int) -> int | None:
        """Milliseconds without a majority, if the controller has to end for it; else None."""
        if self.commits_at is not None and now_ms >= self.commits_at[1]:
            if self._is_commit_late:
                return self._times.commit_ms
            self._is_commit_late = True
            self.commits_at = self.commits_at[0], now_ms + self._times.answer_ms
        times = list(confirmed_ms)
        if times and now_ms >= max(self._majority_ms(times), self._unconfirmed_until_ms):
            if self._unconfirmed_until_ms >= self._majority_ms(times):
                return self._times.commit_ms + self._times.confirm_ms
            self._unconfirmed_until_ms = now_ms + self._times.answer_ms
        return None

    def _majority_ms(self, confirmed_ms: list[int]) -> int:
        """Time at which a majority will not have confirmed the controller for too long."""
        newest_ms = sorted(confirmed_ms)[(len(confirmed_ms) - 1) // 2]  # that a majority reached
        return newest_ms + self._times.commit_ms + self._times.confirm_ms

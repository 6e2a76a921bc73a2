"""Deadlines by which a controller needs a majority: for the batch it has appended, and for itself.

Invariants:
    A controller ends only if no majority has answered by the deadline, nor within `answer_ms` after
    it noticed that. At a deadline its process may have been stopped (SIGSTOP, a suspended machine)
    for some or all of the time, and have answers that it has not read. If it ended then, a new
    controller would have to be elected, and would wait a whole session for each dead node.
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
        """Whether that deadline was reached, and was extended so that answers can be read."""
        self._unconfirmed_until_ms = 0
        """Extended deadline for a majority; before the regular one until that is reached."""

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
        """Time by which a majority has to confirm the controller again."""
        # A majority has confirmed it at this time or later.
        newest_ms = sorted(confirmed_ms)[(len(confirmed_ms) - 1) // 2]
        return newest_ms + self._times.commit_ms + self._times.confirm_ms

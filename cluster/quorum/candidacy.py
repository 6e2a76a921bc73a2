"""Candidacy of a node with a voter: when it stands for controller, as the current one does not
answer.

Ray restarts the controller when its process or node has died, but takes long to detect that a node
is dead. A candidate needs a new epoch and a majority's votes like any controller, so there may be
two if the former one is alive after all: only a little work is lost. The controller that Ray
restarts comes later and takes over in the same way.

The first live voter in order stands first; each of the others waits STAGGER_MS longer than the one
before it.
"""

from __future__ import annotations

from dataclasses import dataclass

UNREACHABLE_MS = 500
"""Time for which calls must have failed until the controller's process counts as dead."""
INACTIVE_MS = 6_000
"""Time for which a reachable node must have answered that it is not the controller (any more, or
yet).
"""
STAGGER_MS = 500


@dataclass(slots=True)
class Candidacy:
    """Failures of one node's polls of the controller. Soft state; times on a monotonic clock."""

    _failing_since_ms: int | None = None
    _answered_ms: int | None = None

    def on_poll_answered(self) -> None:
        """Called when the controller has answered a poll."""
        self._failing_since_ms = self._answered_ms = None

    def on_poll_failed(self, *, now_ms: int, is_reachable: bool) -> None:
        """Note a failed poll; `is_reachable`: a node answered that it is not the controller."""
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        if is_reachable:
            self._answered_ms = now_ms

    def on_vote_granted(self, *, now_ms: int) -> None:
        """Note that the voter granted its vote to a controller, which may announce itself soon."""
        if self._failing_since_ms is not None:
            self._failing_since_ms = self._answered_ms = now_ms

    def is_due(self, *, now_ms: int, voters_before: int) -> bool:
        """Whether to stand for controller now, given the number of live voters before this one."""
        if self._failing_since_ms is None:
            return False
        waits_until_ms = self._failing_since_ms + UNREACHABLE_MS
        if self._answered_ms is not None:
            # It may be about to become active; if it stops answering, the shorter time applies.
            waits_until_ms = min(
                self._failing_since_ms + INACTIVE_MS, self._answered_ms + INACTIVE_MS // 2
            )
        return now_ms >= waits_until_ms + STAGGER_MS * voters_before

"""Timeouts and intervals of a controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumTimes:
    """Times in ms."""

    answer_ms: int = 3_000
    """Timeout of a voter's answer: a voter whose node is dead must not delay the others."""
    fetch_ms: int = 10_000
    """Timeout of fetching a piece of the log or of a snapshot that is adopted."""
    commit_ms: int = 10_000
    """Timeout for a majority to have an entry."""
    confirm_ms: int = 2_000
    """Interval in which an idle leader lets voters confirm that it has their votes."""
    retry_ms: int = 200
    """Pause before a failed voter is asked again; doubled each time, up to longest_retry_ms."""
    longest_retry_ms: int = 1_000
    find_ms: int = 1_000
    """Pause before searching again for an absent voter."""
    late_ms: int = 100
    """Time to wait for the remaining voters after a majority has answered a survey."""
    start_ms: int = 100
    """Pause before a failed start is retried."""
    poll_ms: int = 2_000
    """Longest time that a poll is parked; a third of a session if that is less."""
    tick_ms: int = 500
    """Interval of checks of the nodes' sessions."""
    catch_up_ms: int = 20
    """Interval of checks whether a new voter has caught up."""
    unclean_ms: int = 5_000
    """Interval of checks for leaderless partitions with unclean.leader.election.enable."""

"""How long a controller waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumTimes:
    """All in ms."""

    answer_ms: int = 3_000
    """For a voter: one whose node is gone must not keep a controller from serving the others."""
    fetch_ms: int = 10_000
    """For a piece of the log or of a snapshot that is adopted."""
    commit_ms: int = 10_000
    """For a majority to have an entry."""
    retry_ms: int = 200
    """Before a voter that failed is asked again; doubled each time, up to longest_retry_ms."""
    longest_retry_ms: int = 1_000
    find_ms: int = 1_000
    """Before a voter that is not there is looked for again."""
    late_ms: int = 100
    """For the other voters, once a majority has answered a survey."""
    start_ms: int = 100
    """Before a start that could not go on is tried again."""
    poll_ms: int = 2_000
    """That a question for news is parked at most, if that is a third of a session or less."""
    tick_ms: int = 500
    """Between two looks at the sessions of nodes."""
    catch_up_ms: int = 20
    """Between two looks whether a new voter has everything."""
    unclean_ms: int = 5_000
    """Between two looks for leaderless partitions with unclean.leader.election.enable."""

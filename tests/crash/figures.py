"""The figures of a run, from its history: how much, and how long nothing came."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from .checker import Fault
from .harness import Outcome
from .history import SECOND, History
from .replicas import Comparison

END_OF_TIME = 1 << 63
REORDERED = ("nonmonotonic-send", "real-time", "nonmonotonic-poll", "poll-skip")
OTHER = (
    "inconsistent-offset",
    "phantom",
    "failed-read",
    "offset-regression",
    "visible-regression",
    "end-state",
    "nothing-happened",
)


@dataclass
class Figures:
    """The figures of one run. Gaps in seconds.

    unknown: neither acknowledged nor known to be in the log's absence. produce_gap: the longest time
    in which no record of some partition was acknowledged to any writer; produce_gap_confluent: to a
    writer on librdkafka. consume_gap: the same, of records handed to the readers together.
    gap_per_fault: the longest produce gap around each fault, in the middle of all. under_replicated:
    the longest time in which not all replicas were in sync.
    """

    nemesis: str
    seconds: float
    faults: int
    sent: int
    acknowledged: int
    unknown: int
    lost: int
    duplicated: int
    reordered: int
    divergent: int
    other: int
    group_faults: int
    produce_gap: float
    produce_gap_confluent: float
    gap_per_fault: float
    consume_gap: float
    under_replicated: float
    heal_seconds: float
    recovery_seconds: float
    elections: int
    offsets_compared: int
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        wrong = self.lost + self.duplicated + self.reordered + self.divergent + self.other
        return not (wrong or self.group_faults or self.problems)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.is_good}


def measure(
    nemesis: str,
    seconds: float,
    history: History,
    faults: Iterable[Fault],
    group_faults: int,
    comparison: Comparison,
    outcome: Outcome,
) -> Figures:
    kinds = [one.kind for one in faults]
    acked = [one for one in history.sends if one.outcome == "ok"]
    gaps = produce_gaps(history)
    return Figures(
        nemesis=nemesis,
        seconds=seconds,
        faults=outcome.faults,
        sent=len(history.sends),
        acknowledged=len(acked),
        unknown=len(history.sends) - len(acked),
        lost=kinds.count("lost") + kinds.count("unseen"),
        duplicated=kinds.count("duplicate"),
        reordered=sum(kinds.count(kind) for kind in REORDERED),
        divergent=len(comparison.divergent) + len(comparison.misplaced) + len(comparison.missing),
        other=sum(kinds.count(kind) for kind in OTHER),
        group_faults=group_faults,
        produce_gap=_longest(gaps),
        produce_gap_confluent=_longest(produce_gaps(history, "confluent")),
        gap_per_fault=_per_fault(history, gaps),
        consume_gap=_longest(consume_gaps(history)),
        under_replicated=_under_replicated(history),
        heal_seconds=round(outcome.heal_seconds, 1),
        recovery_seconds=round(max(outcome.recoveries, default=0.0), 1),
        elections=outcome.elections,
        offsets_compared=comparison.offsets,
        problems=outcome.problems,
    )


Gap = tuple[int, int]
"""Begin and end, in nanoseconds."""


def produce_gaps(history: History, kind: str = "") -> list[Gap]:
    """Gaps between one acknowledgement and the next, of each partition. kind: of writers."""
    times: dict[int, list[int]] = defaultdict(list)
    for one in history.sends:
        if one.end is not None and kind in one.process:
            times[one.partition].append(one.end)
    return _between(times)


def consume_gaps(history: History) -> list[Gap]:
    """Gaps between one poll with records and the next, of each partition and reader."""
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for poll in history.polls:
        if not poll.final and not poll.in_group:
            times[poll.process, poll.partition].append(poll.time)
    return _between(times)


def _between(times: dict[Any, list[int]]) -> list[Gap]:
    gaps = []
    for each in times.values():
        each.sort()
        gaps += list(pairwise(each))
    return gaps


def _longest(gaps: list[Gap]) -> float:
    return round(max((end - begin for begin, end in gaps), default=0) / SECOND, 2)


def _under_replicated(history: History) -> float:
    gaps: list[Gap] = []
    since: int | None = None
    for state in history.states:
        is_whole = min(state.in_sync) >= history.end.replication_factor
        if is_whole and since is not None:
            gaps.append((since, state.time))
            since = None
        elif not is_whole and since is None:
            since = state.time
    return _longest(gaps)


def _per_fault(history: History, gaps: list[Gap]) -> float:
    """A gap counts to the last fault before its end."""
    times = sorted(one.time for one in history.faults)
    longest = []
    for time, following in pairwise([*times, END_OF_TIME]):
        around = [end - begin for begin, end in gaps if time < end <= following]
        if around:
            longest.append(max(around))
    return round(median(longest) / SECOND, 2) if longest else 0.0

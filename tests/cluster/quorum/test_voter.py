"""Which controller may write to a voter's log, and what comes of what it writes?"""

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.quorum.voter import (
    NO_SNAPSHOT,
    AppendPlan,
    Candidate,
    CommittedEntryLost,
    InstallPlan,
    LogEnd,
    LogMismatch,
    MetadataEntry,
    grant_vote,
    on_append,
    on_snapshot,
)
from bradbury.protocol.errors import FencedLeaderEpoch


class Log:
    """A log of one-record entries, given by their epochs; a snapshot may stand for the first."""

    def __init__(self, *epochs: int, snapshot: LogEnd = NO_SNAPSHOT) -> None:
        self.epochs = epochs
        self.snapshot = snapshot

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    def epoch_at(self, offset: int) -> int:
        assert offset >= self.snapshot.offset - 1, "that is no more in the log"
        return self.epochs[offset] if offset < len(self.epochs) else -1

    def epoch_start(self, offset: int) -> int:
        return self.epochs.index(self.epochs[offset])


def append(
    log: Log, previous: LogEnd, *epochs: int, committed: int = 0, candidate: Candidate | None = None
) -> AppendPlan | LogMismatch:
    start = previous.offset
    entries = [MetadataEntry(start + n, start + n + 1, epoch) for n, epoch in enumerate(epochs)]
    me = candidate or Candidate(epoch=9, owner="me")
    return on_append(Candidate(), me, log, previous=previous, entries=entries, committed=committed)


def test_the_first_to_ask_gets_the_vote_and_may_ask_again() -> None:
    mine = Candidate(epoch=0, owner="a")
    assert grant_vote(Candidate(), mine) == mine
    assert grant_vote(mine, mine) == mine


def test_a_newer_epoch_takes_over_and_the_older_is_refused_forever() -> None:
    older, newer = Candidate(epoch=3, owner="a"), Candidate(epoch=4, owner="b")
    assert grant_vote(older, newer) == newer
    with pytest.raises(FencedLeaderEpoch):
        grant_vote(newer, older)
    with pytest.raises(FencedLeaderEpoch):
        on_append(newer, older, Log(), previous=LogEnd(-1, 0), entries=(), committed=0)


def test_two_owners_of_one_epoch_are_one_too_many() -> None:
    with pytest.raises(FencedLeaderEpoch):
        grant_vote(Candidate(epoch=3, owner="a"), Candidate(epoch=3, owner="b"))


def test_what_joins_on_is_appended_and_a_vote_of_its_epoch_with_it() -> None:
    plan = append(Log(1, 1, 2), LogEnd(2, 3), 9, 9)
    assert plan == AppendPlan(Candidate(epoch=9, owner="me"), None, 0)


def test_a_log_that_is_too_short_says_where_it_ends() -> None:
    assert append(Log(1, 1), LogEnd(2, 5), 9) == LogMismatch(Candidate(epoch=9, owner="me"), 2)


def test_a_log_of_another_epoch_goes_back_to_where_that_began() -> None:
    plan = append(Log(1, 1, 2, 2, 2), LogEnd(3, 5), 9)
    assert plan == LogMismatch(Candidate(epoch=9, owner="me"), 2)


def test_what_contradicts_is_cut_and_what_is_there_is_passed_over() -> None:
    plan = append(Log(1, 1, 2, 2), LogEnd(1, 1), 1, 3, 3)
    assert plan == AppendPlan(Candidate(epoch=9, owner="me"), truncate_to=2, first_missing=1)


def test_a_repeated_or_late_append_changes_nothing_and_cuts_nothing_behind_it() -> None:
    assert append(Log(1, 1, 1), LogEnd(1, 1), 1) == AppendPlan(
        Candidate(epoch=9, owner="me"), None, 1
    )
    assert append(Log(1, 1, 1), LogEnd(1, 1)) == AppendPlan(Candidate(epoch=9, owner="me"), None, 0)


def test_what_is_committed_is_never_cut() -> None:
    assert isinstance(append(Log(1, 1, 2), LogEnd(1, 2), 3, committed=2), AppendPlan)
    with pytest.raises(CommittedEntryLost):
        append(Log(1, 1, 2), LogEnd(1, 2), 3, committed=3)


def test_behind_a_snapshot_the_log_goes_on_as_behind_any_other_entry() -> None:
    log = Log(1, 1, 2, 2, snapshot=LogEnd(2, 3))
    assert append(log, LogEnd(2, 4), 9) == AppendPlan(Candidate(epoch=9, owner="me"), None, 0)
    assert append(log, LogEnd(2, 3), 2, 9) == AppendPlan(Candidate(epoch=9, owner="me"), None, 1)
    assert append(log, LogEnd(3, 4), 9) == LogMismatch(Candidate(epoch=9, owner="me"), 3)


def test_entries_that_a_snapshot_covers_are_skipped_when_they_are_repeated() -> None:
    log = Log(1, 1, 2, 2, snapshot=LogEnd(2, 3))
    assert append(log, LogEnd(-1, 0), 1, 1) == AppendPlan(Candidate(epoch=9, owner="me"), None, 2)
    assert append(log, LogEnd(1, 1), 1, 2, 3) == AppendPlan(Candidate(epoch=9, owner="me"), 3, 2)


def test_a_log_that_differs_where_a_snapshot_ends_is_an_error_and_unchanged() -> None:
    with pytest.raises(CommittedEntryLost):
        append(Log(1, 1, 2, 2, snapshot=LogEnd(2, 3)), LogEnd(3, 3), 9)


def snapshot(log: Log, end: LogEnd, *, committed: int = 0) -> InstallPlan:
    me = Candidate(epoch=9, owner="me")
    return on_snapshot(Candidate(), me, log, end=end, committed=committed)


def test_a_log_that_has_what_a_snapshot_covers_keeps_the_rest() -> None:
    assert snapshot(Log(1, 1, 2, 2), LogEnd(1, 2)).keeps_log
    assert snapshot(Log(1, 1, 2, 2), LogEnd(2, 4)).keeps_log


def test_a_log_that_ends_earlier_or_diverges_starts_again_after_a_snapshot() -> None:
    assert not snapshot(Log(1, 1), LogEnd(1, 3)).keeps_log
    assert not snapshot(Log(1, 1, 1, 1), LogEnd(2, 3)).keeps_log
    assert not snapshot(Log(), LogEnd(2, 3)).keeps_log


def test_a_snapshot_that_is_there_already_or_older_is_not_installed() -> None:
    log = Log(1, 1, 2, 2, snapshot=LogEnd(2, 3))
    assert not snapshot(log, LogEnd(2, 3)).is_newer
    assert not snapshot(log, LogEnd(1, 2)).is_newer
    assert snapshot(log, LogEnd(2, 4)).is_newer


def test_a_snapshot_never_takes_away_what_is_committed_and_only_who_has_the_vote_may_bring_it() -> (
    None
):
    with pytest.raises(CommittedEntryLost):
        snapshot(Log(1, 1, 1, 1), LogEnd(2, 3), committed=4)
    with pytest.raises(FencedLeaderEpoch):
        on_snapshot(
            Candidate(epoch=4, owner="b"),
            Candidate(epoch=3, owner="a"),
            Log(),
            end=LogEnd(3, 5),
            committed=0,
        )


@given(
    asks=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from("abc")), max_size=30)
)
def test_a_vote_never_falls_and_an_epoch_has_one_owner(
    asks: list[tuple[bool, int, str]],
) -> None:
    vote = Candidate()
    owners: dict[int, str] = {}
    for is_append, epoch, owner in asks:
        candidate = Candidate(epoch=epoch, owner=owner)
        try:
            if is_append:
                accepted = on_append(
                    vote, candidate, Log(), previous=LogEnd(-1, 0), entries=(), committed=0
                ).vote
            else:
                accepted = grant_vote(vote, candidate)
        except FencedLeaderEpoch:
            continue
        assert accepted.epoch >= vote.epoch
        assert owners.setdefault(accepted.epoch, accepted.owner) == accepted.owner
        vote = accepted

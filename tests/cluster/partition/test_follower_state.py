"""What does a follower do to its log so that it becomes the leader's, and what does it leave alone?"""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.partition.follower_state import (
    UNKNOWN,
    Truncate,
    TruncateFullyAndStartAt,
    next_high_watermark,
    on_diverging,
    on_first_batch,
    on_out_of_range,
)


@dataclass
class Log:
    """`epochs`: the leader epoch of each record, from `log_start_offset` on."""

    epochs: list[int]
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.epochs)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """As storage/log/leader_epoch_cache answers it."""
        if not self.epochs or leader_epoch > self.epochs[-1]:
            return UNKNOWN, UNKNOWN
        count = sum(epoch <= leader_epoch for epoch in self.epochs)
        return self.epochs[count - 1] if count else leader_epoch, self.log_start_offset + count

    def truncate(self, offset: int) -> None:
        del self.epochs[offset - self.log_start_offset :]

    def records(self) -> set[tuple[int, int]]:
        """(offset, epoch) of each: an epoch has one leader, so equal ones are the same record."""
        return set(enumerate(self.epochs, self.log_start_offset))


def diverging(leader: Log, follower: Log) -> tuple[int, int] | None:
    """What the leader answers to the follower's next fetch; None: its log is a part of ours."""
    if not follower.epochs:
        return None
    last = follower.epochs[-1]
    epoch, end = leader.end_offset_for_epoch(last)
    return (epoch, end) if epoch < last or end < follower.log_end_offset else None


def follow(leader: Log, follower: Log) -> int:
    """Fetch until the logs do not diverge. Returns how often the log was truncated."""
    rounds = 0
    while (answer := diverging(leader, follower)) is not None:
        step = on_diverging(follower, *answer)
        assert isinstance(step, Truncate)
        assert step.offset < follower.log_end_offset, "the same question again, without an end"
        follower.truncate(step.offset)
        rounds += 1
    return rounds


class Case(NamedTuple):
    """Epochs of the follower's records, of the leader's, and what the follower keeps."""

    own: list[int]
    leaders: list[int]
    kept: list[int]


@pytest.mark.parametrize(
    "case",
    [
        Case([1, 1], [1, 1, 1, 2], [1, 1]),
        Case([1, 1, 1, 1], [1, 1, 2], [1, 1]),
        # The leader has more of the last common epoch than we: our end of that epoch counts.
        Case([1, 2, 2, 2], [1, 1, 1, 3, 3], [1]),
        # We do not have the epoch that it names at all: the end of the one before it.
        Case([0, 2, 2], [0, 1, 1, 3], [0]),
        # It does not have ours between two that both have.
        Case([1, 2, 2, 4], [1, 3, 3, 3, 5], [1]),
        Case([2, 2], [1, 1, 3], []),
    ],
)
def test_what_both_have_is_kept_and_all_behind_it_goes(case: Case) -> None:
    follower = Log(case.own.copy())
    follow(Log(case.leaders), follower)
    assert follower.epochs == case.kept


def test_one_answer_leads_as_far_back_as_both_sides_allow() -> None:
    follower = Log([1, 1, 2, 2])
    assert on_diverging(follower, 1, 1) == Truncate(1), "the leader's end of the epoch is before"
    assert on_diverging(follower, 1, 3) == Truncate(2), "ours is"
    assert on_diverging(follower, 2, 9) == Truncate(4), "nothing behind our end"


def test_a_log_without_epochs_goes_by_the_leaders_end_alone() -> None:
    class Old(Log):
        def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
            return UNKNOWN, UNKNOWN

    follower = Old([0, 0, 0])
    assert on_diverging(follower, 1, 2) == Truncate(2)
    assert on_diverging(follower, 1, 5) == Truncate(3)


EPOCHS = st.lists(st.integers(0, 3), max_size=4)


@given(EPOCHS, EPOCHS, EPOCHS, st.data())
def test_a_log_becomes_part_of_its_leaders_and_loses_nothing_that_both_have(
    common: list[int], own: list[int], leaders: list[int], data: st.DataObject
) -> None:
    """Behind what is common, each has epochs of its own (odd, even), the leader the newest."""
    common.sort()
    latest = common[-1] if common else 0
    own = sorted(each for number in own if (each := 2 * number + 1) >= latest)
    leaders = [*sorted(each for number in leaders if (each := 2 * number) >= latest), 8]
    follower, leader = Log(common + own), Log(common + leaders)
    for log in (follower, leader):  # only what is committed is deleted
        start = data.draw(st.integers(0, len(common)))
        log.epochs, log.log_start_offset = log.epochs[start:], start
    shared = follower.records() & leader.records()
    own_epochs = len(set(follower.epochs))
    rounds = follow(leader, follower)
    deleted = {each for each in follower.records() if each[0] < leader.log_start_offset}
    assert follower.records() - deleted == shared
    assert follower.log_end_offset >= len(common)
    assert rounds <= own_epochs, "each question goes back by an epoch"


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "step"),
    [
        (0, 9, Truncate(9)),
        (0, 10, None),
        (0, 11, None),
        (10, 12, None),
        (11, 12, TruncateFullyAndStartAt(11)),
        (11, 11, TruncateFullyAndStartAt(11)),
    ],
)
def test_a_log_outside_of_its_leaders_is_cut_or_begins_where_that_one_does(
    leader_start: int, leader_end: int, step: Truncate | TruncateFullyAndStartAt | None
) -> None:
    assert on_out_of_range(Log([1] * 8, 2), leader_start, leader_end) == step


@pytest.mark.parametrize(
    ("first_offset", "leader_start", "step"),
    [
        (8, 10, TruncateFullyAndStartAt(10)),
        (8, 11, TruncateFullyAndStartAt(10)),
        (9, 10, TruncateFullyAndStartAt(10)),
        (10, 10, None),
        (8, 9, None),
    ],
)
def test_a_batch_from_before_our_end_is_taken_whole_where_the_leader_has_deleted_ours(
    first_offset: int, leader_start: int, step: TruncateFullyAndStartAt | None
) -> None:
    assert on_first_batch(Log([1] * 8, 2), first_offset, leader_start) == step


def test_an_empty_log_is_not_dropped_again() -> None:
    assert on_first_batch(Log([], 10), 8, 10) is None


def test_the_high_watermark_is_the_lesser_of_the_leaders_and_our_end() -> None:
    log = Log([1] * 3)
    assert [next_high_watermark(log, each) for each in (2, 3, 4)] == [2, 3, 3]

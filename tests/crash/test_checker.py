"""Does the checker find what is wrong, call it by its name, and find nothing in what is right?

A sound history of two producers, two readers and a group, and what can be wrong in it: each mutation
must be found as its class of fault, and as no other.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bradbury.tests.crash.checker import check, excerpt, report
from bradbury.tests.crash.history import (
    Committed,
    EndState,
    Fetched,
    History,
    Poll,
    Send,
)

RECORDS = 12
ALICE, BOB, INFO = 1000, 2000, 1500


def sound() -> History:
    """Partition 0: two producers in turn, each waiting for its acknowledgement; 12 records.

    A third producer's record at offset 12 was never acknowledged, and is there.
    """
    history = History(partitions=1)
    for offset in range(RECORDS):
        process, value = ("alice", ALICE) if offset % 2 == 0 else ("bob", BOB)
        begin = offset * 10
        history.sends.append(Send(process, 0, value + offset, begin, begin + 5, "ok", offset))
    history.sends.append(Send("carol", 0, INFO, 200))
    records = tuple((one.offset or 0, one.value) for one in history.sends[:-1])
    records += ((RECORDS, INFO),)
    for name, cut in (("reader-1", 5), ("reader-2", 9)):
        history.polls.append(Poll(name, 0, 0, 300, records[:cut]))
        history.polls.append(Poll(name, 0, 0, 310, records[cut:]))
    history.polls.append(Poll("member", 1, 0, 400, records[:7], in_group=True))
    history.polls.append(Poll("member", 1, 0, 420, records[6:], in_group=True))
    history.polls.append(Poll("final", 0, 0, 500, records, final=True))
    history.committed = [Committed("group", 0, 7, 410), Committed("group", 0, 13, 430)]
    history.fetched = [Fetched("group", 0, 7, 415), Fetched("group", 0, 13, 440)]
    history.end = EndState(3, {0: 3}, {"group": 0}, {"group": "Stable"})
    return history


def change_polls(
    history: History,
    change: Callable[[tuple[tuple[int, int], ...]], tuple[tuple[int, int], ...]],
    *names: str,
) -> None:
    """The records of the polls of some readers; of all, if none is named."""
    history.polls = [
        replace(poll, records=change(poll.records)) if not names or poll.process in names else poll
        for poll in history.polls
    ]


def without(*offsets: int) -> Callable[..., tuple[tuple[int, int], ...]]:
    return lambda records: tuple(one for one in records if one[0] not in offsets)


def with_value(offset: int, value: int) -> Callable[..., tuple[tuple[int, int], ...]]:
    return lambda records: tuple((at, value if at == offset else v) for at, v in records)


def send_at(history: History, offset: int) -> Send:
    return next(one for one in history.sends if one.offset == offset)


MUTATIONS: dict[str, tuple[str, Callable[[History], object]]] = {}


def mutation(kind: str) -> Callable[[Callable[[History], object]], Callable[[History], object]]:
    def remember(change: Callable[[History], object]) -> Callable[[History], object]:
        MUTATIONS[change.__name__] = (kind, change)
        return change

    return remember


@mutation("lost")
def a_record_is_gone_foreverybody(history: History) -> None:
    change_polls(history, without(4))


@mutation("lost")
def a_record_that_was_read_is_gone_in_the_end(history: History) -> None:
    change_polls(history, without(4), "final")


@mutation("unseen")
def the_last_records_are_gone(history: History) -> None:
    change_polls(history, without(10, 11, 12))


@mutation("unseen")
def an_acknowledged_record_never_came(history: History) -> None:
    history.sends.append(Send("alice", 0, ALICE + 90, 210, 220, "ok", 13))


@mutation("inconsistent-offset")
def an_acknowledgement_has_another_offset(history: History) -> None:
    send_at(history, 11).offset = 13


@mutation("inconsistent-offset")
def two_readers_see_different_records_at_one_offset(history: History) -> None:
    history.sends.append(Send("dave", 0, 3000, 200))
    change_polls(history, with_value(12, 3000), "reader-1")
    history.polls[-1] = replace(history.polls[-1], records=(*history.polls[-1].records, (13, 3000)))
    history.idempotent = False  # or it would be a duplicate, too


@mutation("duplicate")
def a_record_came_twice(history: History) -> None:
    history.polls[-1] = replace(
        history.polls[-1], records=(*history.polls[-1].records, (13, ALICE))
    )


@mutation("duplicate")
def a_record_came_again_where_another_one_is_not_known(history: History) -> None:
    change_polls(history, with_value(12, BOB + 11))
    history.sends.pop()


@mutation("phantom")
def a_record_that_nobody_sent(history: History) -> None:
    history.sends.pop()


@mutation("phantom")
def garbage_after_the_end(history: History) -> None:
    history.polls[-1] = replace(history.polls[-1], records=(*history.polls[-1].records, (13, 7)))


@mutation("failed-read")
def a_record_that_surely_failed_is_there(history: History) -> None:
    history.sends[-1].outcome = "fail"


@mutation("nonmonotonic-send")
def a_producers_records_are_in_another_order(history: History) -> None:
    """bob's 9 and 11, sent at once."""
    nine, eleven = send_at(history, 9), send_at(history, 11)
    nine.offset, eleven.offset = 11, 9
    eleven.begin = nine.begin
    nine.end = eleven.end = 200
    swap = {9: eleven.value, 11: nine.value}
    change_polls(history, lambda records: tuple((at, swap.get(at, v)) for at, v in records))


@mutation("nonmonotonic-poll")
def a_reader_goes_back(history: History) -> None:
    history.polls.insert(2, Poll("reader-1", 0, 0, 320, ((3, BOB + 3), (4, ALICE + 4))))


@mutation("nonmonotonic-poll")
def a_reader_is_handed_a_record_twice_at_once(history: History) -> None:
    change_polls(history, lambda records: (*records[:3], records[2], *records[3:]), "reader-2")
    history.polls = [one for one in history.polls if (one.process, one.time) != ("reader-2", 310)]


@mutation("nonmonotonic-poll")
def a_members_poll_is_out_of_order_within(history: History) -> None:
    change_polls(history, lambda records: (records[1], records[0], *records[2:]), "member")
    history.polls = [one for one in history.polls if one.time != 420]
    history.polls = [
        replace(one, records=one.records[:2]) if one.process == "member" else one
        for one in history.polls
    ]


@mutation("poll-skip")
def a_reader_passes_over_a_record(history: History) -> None:
    change_polls(history, without(4), "reader-1")


@mutation("poll-skip")
def a_reader_passes_over_records_between_two_polls(history: History) -> None:
    change_polls(history, without(9, 10), "reader-2")


@mutation("poll-skip")
def a_member_passes_over_a_record_within_a_poll(history: History) -> None:
    change_polls(history, without(9), "member")


@mutation("real-time")
def a_record_that_was_sent_later_comes_before(history: History) -> None:
    """alice's 10 begins when bob's 11 is acknowledged."""
    send_at(history, 11).begin, send_at(history, 11).end = 50, 60
    ten = send_at(history, 10)
    ten.begin, ten.end = 100, 105


@mutation("offset-regression")
def a_commit_is_forgotten(history: History) -> None:
    history.fetched.append(Fetched("group", 0, 7, 450))


@mutation("offset-regression")
def all_commits_are_forgotten(history: History) -> None:
    history.fetched.append(Fetched("group", 0, -1001, 412))


@mutation("visible-regression")
def a_record_of_unknown_fate_is_read_and_then_gone(history: History) -> None:
    change_polls(history, without(12), "final")


@mutation("end-state")
def a_replica_stays_out_of_sync(history: History) -> None:
    history.end.in_sync[0] = 2


@mutation("end-state")
def a_group_does_not_finish(history: History) -> None:
    history.end.lags["group"] = 3


@mutation("end-state")
def a_group_is_not_stable(history: History) -> None:
    history.end.states["group"] = "PreparingRebalance"


@mutation("nothing-happened")
def nothing_was_acknowledged(history: History) -> None:
    for send in history.sends:
        send.outcome, send.offset, send.end = "info", None, None


def test_a_sound_history_has_no_faults() -> None:
    assert report(check(sound())) == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_found_as_what_it_is(name: str) -> None:
    kind, change = MUTATIONS[name]
    history = sound()
    change(history)
    faults = check(history)
    assert {one.kind for one in faults} == {kind}, report(faults)


def test_there_are_enough_mutations_of_every_kind() -> None:
    assert len(MUTATIONS) >= 20
    assert len({kind for kind, _ in MUTATIONS.values()}) == 14


def test_a_final_read_that_is_missing_is_a_fault() -> None:
    history = sound()
    history.polls = [poll for poll in history.polls if not poll.final]
    assert {one.kind for one in check(history)} == {
        "nothing-happened",
        "unseen",
        "visible-regression",
    }


def test_a_reader_that_was_assigned_again_may_go_back() -> None:
    history = sound()
    history.polls.append(Poll("reader-1", 1, 0, 600, ((0, ALICE), (1, BOB + 1))))
    assert report(check(history)) == []


def test_retries_without_idempotence_may_duplicate_and_reorder() -> None:
    history = sound()
    a_record_came_twice(history)
    history.idempotent = False
    assert report(check(history)) == []


def test_concurrent_sends_may_come_in_any_order() -> None:
    history = sound()
    ten, eleven = send_at(history, 10), send_at(history, 11)
    eleven.begin, eleven.end, ten.begin, ten.end = 100, 120, 110, 130
    assert report(check(history)) == []


def test_an_offset_read_while_the_commit_was_on_its_way_may_be_the_former() -> None:
    history = sound()
    history.fetched.append(Fetched("group", 0, 7, 430))
    assert report(check(history)) == []


def test_an_excerpt_shows_what_is_known_around_a_fault() -> None:
    history = sound()
    change_polls(history, without(4))
    (fault,) = check(history)
    lines = excerpt(history, fault)
    assert any(str(ALICE + 4) in line for line in lines)
    assert any("reader-1 read" in line for line in lines)
    assert not any(f"({fault.offset + 4}, " in line for line in lines)

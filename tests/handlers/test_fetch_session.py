"""When does a fetch session begin, go on and end, and what is in an incremental answer? (KIP-227)"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from bradbury.handlers.ports.fetch_session import REFUSED_AGAIN_MS, FetchSession, FetchSessionCache
from bradbury.protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from bradbury.protocol.fetch_session_epoch import next_epoch
from bradbury.protocol.messages.fetch import FetchPartition
from bradbury.protocol.records.fetch_response import FetchedPartition

EVICTION_MS = 120_000
NO_ID = UUID(int=0)


def counter() -> Callable[[], int]:
    numbers = iter(range(1, 10_000))
    return lambda: next(numbers)


def cache(slots: int = 3, **limits: int) -> FetchSessionCache:
    return FetchSessionCache(slots, EVICTION_MS, random_id=counter(), **limits)


def begin(
    sessions: FetchSessionCache, size: int = 1, *, now_ms: int = 0, is_follower: bool = False
) -> FetchSession | None:
    session = sessions.create(size, is_follower=is_follower, uses_topic_ids=False, now_ms=now_ms)
    if session is not None:
        for partition in range(size):
            session.put(("t", NO_ID, partition), FetchPartition(partition=partition))
    return session


def use(sessions: FetchSessionCache, session: FetchSession, *, now_ms: int) -> FetchSession:
    return sessions.resume(session.session_id, session.epoch, api_version=12, now_ms=now_ms)


# --- epochs --------------------------------------------------------------------------------------


def test_epochs_count_up_and_begin_again_at_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2)] == [1, 2, 2**31 - 1]
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(-1) == -1


def test_each_request_has_the_next_epoch() -> None:
    sessions = cache()
    session = begin(sessions)
    for epoch in (1, 2, 3):
        assert sessions.resume(1, epoch, api_version=12, now_ms=0) is session
    for wrong in (3, 5, 1):
        with pytest.raises(InvalidFetchSessionEpoch):
            sessions.resume(1, wrong, api_version=12, now_ms=0)
    session.epoch = 2**31 - 1
    sessions.resume(1, 2**31 - 1, api_version=12, now_ms=0)
    sessions.resume(1, 1, api_version=12, now_ms=0)


def test_a_session_that_is_not_there_is_not_found() -> None:
    sessions = cache()
    begin(sessions)
    sessions.remove(1)
    sessions.remove(99)
    for session_id in (0, 1, 99):
        with pytest.raises(FetchSessionIdNotFound):
            sessions.resume(session_id, 1, api_version=12, now_ms=0)


def test_names_and_ids_of_topics_do_not_mix() -> None:
    sessions = cache()
    begin(sessions)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.resume(1, 1, api_version=13, now_ms=0)
    sessions.create(1, is_follower=False, uses_topic_ids=True, now_ms=0)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.resume(2, 1, api_version=12, now_ms=0)


def test_an_id_in_use_is_drawn_again() -> None:
    draws = iter([7, 7, 7, 8])
    sessions = FetchSessionCache(3, EVICTION_MS, random_id=lambda: next(draws))
    assert [begin(sessions).session_id, begin(sessions).session_id] == [7, 8]


# --- room ----------------------------------------------------------------------------------------


def test_a_full_cache_gives_no_session_to_the_like_of_those_it_has() -> None:
    sessions = cache(slots=2)
    first, second = begin(sessions, 2), begin(sessions, 2)
    assert begin(sessions, 9) is None  # those are too young to go
    for session in (first, second):
        use(sessions, session, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 2, now_ms=EVICTION_MS + 2) is None  # and this one is no larger
    assert len(sessions) == 2


def test_a_refusal_holds_for_a_second_unless_a_larger_one_or_a_place_comes() -> None:
    sessions = cache(slots=2)
    first, second = begin(sessions, 2), begin(sessions, 2)
    assert begin(sessions, 3, now_ms=EVICTION_MS) is None  # those are too young to go
    for session in (first, second):
        use(sessions, session, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 3, now_ms=EVICTION_MS + REFUSED_AGAIN_MS - 1) is None  # not looked again
    assert begin(sessions, 4, now_ms=EVICTION_MS + REFUSED_AGAIN_MS - 1) is not None
    assert begin(sessions, 3, now_ms=EVICTION_MS + REFUSED_AGAIN_MS) is not None
    sessions.remove(3)
    assert begin(sessions, 1, now_ms=EVICTION_MS + REFUSED_AGAIN_MS) is not None


def test_the_session_longest_unused_goes_first_however_large() -> None:
    sessions = cache(slots=2)
    old, young = begin(sessions, 50), begin(sessions, 1)
    use(sessions, young, now_ms=10)
    assert begin(sessions, 1, now_ms=EVICTION_MS) is None
    assert begin(sessions, 1, now_ms=EVICTION_MS + 1) is not None
    assert old.is_closed
    assert not young.is_closed
    assert sessions.evictions == 1


def test_a_larger_session_replaces_the_smallest_that_is_old_enough() -> None:
    sessions = cache(slots=3)
    held = [begin(sessions, size) for size in (5, 3, 4)]
    late = EVICTION_MS + 1
    for session in held:
        use(sessions, session, now_ms=late)
    assert begin(sessions, 4, now_ms=late) is not None
    assert [session.is_closed for session in held] == [False, True, False]


def test_a_follower_takes_any_consumers_place_but_never_the_other_way_round() -> None:
    sessions = cache(slots=1)
    consumer = begin(sessions, 9)
    follower = begin(sessions, 1, is_follower=True)
    assert follower is not None
    assert consumer.is_closed
    use(sessions, follower, now_ms=EVICTION_MS + 1)
    assert begin(sessions, 99, now_ms=EVICTION_MS + 2) is None


def test_without_slots_there_are_no_sessions() -> None:
    assert begin(cache(slots=0)) is None


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    sessions = cache(most_partitions=10)
    first = begin(sessions, 6)
    assert begin(sessions, 5) is None
    second = begin(sessions, 4)
    for partition in range(4, 9):
        second.put(("t", NO_ID, partition), FetchPartition(partition=partition))
    sessions.ensure_bound(second)
    assert first.is_closed  # it was used longest ago
    assert not second.is_closed
    for partition in range(9, 15):
        second.put(("t", NO_ID, partition), FetchPartition(partition=partition))
    sessions.ensure_bound(second)
    assert second.is_closed


# --- what changed --------------------------------------------------------------------------------


def is_sent(session: FetchSession, **answer) -> bool:
    fields = {"high_watermark": 5, "log_start_offset": 0} | answer
    return session.partitions["t", NO_ID, 0].must_send(FetchedPartition(0, **fields))


def test_a_partition_is_in_the_answer_when_something_about_it_is_new() -> None:
    session = begin(cache())
    assert is_sent(session)
    assert not is_sent(session)
    assert is_sent(session, high_watermark=6)
    assert not is_sent(session, high_watermark=6)
    assert is_sent(session, high_watermark=6, log_start_offset=1)
    assert is_sent(session, high_watermark=6, log_start_offset=1, records=b"x")
    assert is_sent(session, high_watermark=6, log_start_offset=1, preferred_read_replica=2)
    assert is_sent(session, high_watermark=6, log_start_offset=1, diverging=(1, 2))
    assert not is_sent(session, high_watermark=6, log_start_offset=1)


def test_an_error_is_sent_each_time_and_its_end_once() -> None:
    session = begin(cache())
    is_sent(session)
    for _ in range(2):
        assert is_sent(session, error_code=6, high_watermark=-1, log_start_offset=-1)
    assert is_sent(session)
    assert not is_sent(session)


def test_a_client_that_has_come_to_a_new_leader_epoch_is_told_the_high_watermark() -> None:
    """It did not apply the last answer if that was on its way when the epoch changed."""
    session = begin(cache())
    wanted = FetchPartition(partition=0, current_leader_epoch=1)
    session.put(("t", NO_ID, 0), wanted)
    assert is_sent(session)
    session.put(("t", NO_ID, 0), replace(wanted, fetch_offset=5))
    assert not is_sent(session)
    session.put(("t", NO_ID, 0), replace(wanted, fetch_offset=5, current_leader_epoch=2))
    assert is_sent(session)
    assert not is_sent(session)


class Replica:
    def __init__(self) -> None:
        self.waiters = []

    def park(self, waiter, *, is_follower, is_committed) -> None:
        self.waiters.append(waiter)

    def unpark(self, waiter) -> None:
        self.waiters.remove(waiter)


def test_a_partition_that_was_read_is_looked_at_again_when_its_replica_says_so() -> None:
    session, replica = begin(cache()), Replica()
    (cached,) = session.dirty
    cached.listen(replica)
    cached.listen(replica)
    assert len(replica.waiters) == 1
    session.dirty.clear()
    replica.waiters[0].on_readable(100)
    assert list(session.dirty) == [cached]
    session.dirty.clear()
    replica.waiters[0].on_changed()
    assert list(session.dirty) == [cached]


def test_a_forgotten_partition_and_an_ended_session_listen_no_more() -> None:
    sessions = cache()
    session, replicas = begin(sessions, 3), [Replica() for _ in range(3)]
    for cached, replica in zip(session.partitions.values(), replicas, strict=True):
        cached.listen(replica)
    session.forget(("t", NO_ID, 1))
    session.forget(("t", NO_ID, 1))
    assert [len(replica.waiters) for replica in replicas] == [1, 0, 1]
    cached = session.partitions["t", NO_ID, 0]
    sessions.remove(session.session_id)
    cached.listen(replicas[0])  # by a fetch that was still at work
    assert [len(replica.waiters) for replica in replicas] == [0, 0, 0]


def test_a_partition_that_was_served_comes_last_in_the_next_fetch() -> None:
    session = begin(cache(), 3)
    session.rotate(session.partitions["t", NO_ID, 0])
    assert [cached.key[2] for cached in session.dirty] == [1, 2, 0]
    session.put(("t", NO_ID, 1), FetchPartition(partition=1, fetch_offset=9))
    assert [cached.key[2] for cached in session.dirty] == [1, 2, 0]

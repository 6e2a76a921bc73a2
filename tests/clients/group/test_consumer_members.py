"""What does a member of a group commit, when does it leave, and where does it begin to read?"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import bradbury
from bradbury.protocol.errors import (
    FencedInstanceId,
    InvalidConfig,
    OffsetMetadataTooLarge,
    UnknownMemberId,
)
from bradbury.tests.support.groups.group_members import (
    SECONDS,
    Make,
    RecordingListener,
    all_read,
    fill,
    numbers,
    poll_until,
)

NewTopic = Callable[..., str]


# --- commits -----------------------------------------------------------------------------------


def test_text_is_kept_beside_an_offset(consumer: Make, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    one = consumer()
    one.commit({(topic, 0): bradbury.OffsetAndMetadata(5, "up to here"), (topic, 1): 6})
    assert one.committed((topic, 0), (topic, 1)) == {(topic, 0): 5, (topic, 1): 6}
    found = one.committed_metadata((topic, 0), (topic, 1), (topic, 9))
    assert [None if stored is None else stored[:2] for stored in found.values()] == [
        (5, "up to here"),
        (6, ""),
        None,
    ]
    with pytest.raises(OffsetMetadataTooLarge):
        one.commit({(topic, 0): bradbury.OffsetAndMetadata(5, "x" * 5000)})


def test_an_async_commit_calls_back_in_a_later_poll(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    one = consumer(topic, enable_auto_commit=False)
    one.poll(20_000, max_records=4)
    calls: list[Any] = []
    thread = threading.current_thread()
    future = one.commit_async(
        callback=lambda *call: calls.append((*call, threading.current_thread() is thread))
    )
    future.result(60)
    assert calls == []
    one.poll(0)
    assert calls == [({(topic, 0): (4, "", -1)}, None, True)]
    one.commit_async({(topic, 0): (5, "x" * 5000)}, lambda *call: calls.append(call))
    one.commit({(topic, 0): 6})  # which also calls back what came before
    assert isinstance(calls[1][1], OffsetMetadataTooLarge)
    assert one.committed() == {(topic, 0): 6}


def test_auto_commit_stores_what_was_handed_out_before_the_partition_goes(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(2)
    for partition in range(2):
        fill(bootstrap, topic, 10, partition)
    first = consumer(topic, auto_commit_interval_ms=60_000, max_poll_records=3)
    rows = poll_until(lambda: bool(first.assignment()), first)
    rows += first.poll(10_000).select(["topic", "partition", "offset"]).to_pylist()
    second = consumer(topic, auto_commit_interval_ms=60_000)
    rows += poll_until(lambda: len(numbers(first)) == len(numbers(second)) == 1, first, second)
    rows += poll_until(lambda: all_read(first, second), first, second)
    seen = [(row["partition"], row["offset"]) for row in rows]
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(10)]


def test_auto_commit_also_happens_in_poll_by_the_clock(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    one, watcher = consumer(topic, auto_commit_interval_ms=50), consumer()
    poll_until(lambda: watcher.committed((topic, 0))[topic, 0] == 10, one)


def test_a_consumer_that_has_not_joined_yet_cannot_commit(
    consumer: Make, new_topic: NewTopic
) -> None:
    topic = new_topic()
    one = consumer(topic)
    with pytest.raises(UnknownMemberId, match="has removed this member"):
        one.commit({(topic, 0): 1})
    one.commit()  # there is nothing yet
    calls: list[Any] = []
    one.commit_async({(topic, 0): 1}, lambda *call: calls.append(call))
    one.commit()
    assert isinstance(calls[0][1], UnknownMemberId)


# --- static members ----------------------------------------------------------------------------


def test_a_static_member_leaves_only_on_request(consumer: Make, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    one = consumer(topic, group_instance_id="one")
    two = consumer(topic, group_instance_id="two")
    poll_until(lambda: len(numbers(one)) == len(numbers(two)) == 1, one, two)
    generation = two.group_metadata().generation
    one.close()
    again = consumer(topic, group_instance_id="one")
    poll_until(lambda: bool(again.assignment()), again, two)
    assert two.group_metadata().generation == generation
    again.close(leave=True)
    poll_until(lambda: numbers(two) == [0, 1], two)


def test_a_static_member_that_leaves_while_it_joins_is_gone(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    """Its JoinGroup is parked, so that it does not know its id yet."""
    topic = new_topic(2)
    one = consumer(topic, group_instance_id="one")
    poll_until(lambda: numbers(one) == [0, 1], one)
    two = consumer(topic, group_instance_id="two")
    with bradbury.Admin(bootstrap) as admin:

        def members() -> list[str | None]:
            (group,) = admin.describe_groups([one.group_metadata().group_id])
            return sorted(member.instance_id or "" for member in group.members)

        poll_until(lambda: members() == ["one", "two"], two)  # `one` does not poll: it is parked
        two.close(leave=True)
        assert members() == ["one"]
    poll_until(lambda: numbers(one) == [0, 1], one)


@pytest.mark.slow
def test_a_member_that_stays_silently_is_missed_only_after_its_session(
    consumer: Make, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    one, two = consumer(topic, session_timeout_ms=2_000), consumer(topic)
    poll_until(lambda: len(numbers(one)) == len(numbers(two)) == 1, one, two)
    started = time.monotonic()
    one.close(leave=False)
    poll_until(lambda: numbers(two) == [0, 1], two)
    assert time.monotonic() - started > 1.5


def test_a_fenced_instance_says_so_in_every_poll(consumer: Make, new_topic: NewTopic) -> None:
    topic, reported = new_topic(), RecordingListener()
    one = consumer(topic, group_instance_id="same", listener=reported)
    poll_until(lambda: bool(one.assignment()), one)
    two = consumer(topic, group_instance_id="same")
    with pytest.raises(FencedInstanceId):
        poll_until(lambda: False, two, one)
    with pytest.raises(FencedInstanceId):
        one.poll(0)
    one.close()
    assert reported.events == [("assigned", [0]), ("lost", [0])]
    poll_until(lambda: bool(two.assignment()), two)


# --- positions and times -----------------------------------------------------------------------


def test_times_find_records_and_reading_can_begin_there(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    now_ms = time.time_ns() // 1_000_000
    ages_ms = [7_200_000, 3_000_000, 1_000]
    with bradbury.Producer(bootstrap) as producer:
        for age_ms in ages_ms:
            producer.send(topic, b"v", timestamp_ms=now_ms - age_ms)
    one = consumer(topic, auto_offset_reset="by_duration:PT1H")
    assert one.poll(20_000)["offset"].to_pylist() == [1, 2]
    found = one.offsets_for_times({(topic, 0): now_ms - 3_000_000})
    assert found[topic, 0][:2] == (1, now_ms - 3_000_000)
    assert one.offsets_for_times({(topic, 0): now_ms + 1_000_000}) == {(topic, 0): None}
    one.seek_to_time(now_ms - 2_000)
    assert one.poll(20_000)["offset"].to_pylist() == [2]
    one.seek_to_time(now_ms + 1_000_000, (topic, 0))
    assert one.position((topic, 0)) == 3


def test_a_duration_that_nothing_is_so_young_as_begins_at_the_end(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap) as producer:
        producer.send(topic, b"v", timestamp_ms=1)
    one = consumer(topic, auto_offset_reset="by_duration:PT0.5S")
    poll_until(lambda: bool(one.assignment()), one)
    assert one.position((topic, 0)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:1h",
        "by_duration:-PT1H",
        "newest",
        "latest:PT1H",
        "by_duration:P1M",
    ],
)
def test_only_iso_durations_are_durations(text: str) -> None:
    with pytest.raises(InvalidConfig, match="auto_offset_reset"):
        bradbury.Consumer(bootstrap="127.0.0.1:1", auto_offset_reset=text)


def test_lag_is_known_without_asking_once_something_was_fetched(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    one = consumer(topic)
    poll_until(lambda: bool(one.assignment()), one)
    one.seek((topic, 0), 0)
    one.poll(20_000, max_records=4)
    assert (one.current_lag((topic, 0)), one.lag()) == (6, {(topic, 0): 6})
    one.pause((topic, 0))
    assert one.paused() == [(topic, 0)]
    one.resume((topic, 0))
    assert one.paused() == []
    with pytest.raises(ValueError, match="not assigned"):
        one.current_lag((topic, 5))


# --- wakeup ------------------------------------------------------------------------------------


def test_wakeup_ends_the_poll_that_waits(consumer: Make, new_topic: NewTopic) -> None:
    one = consumer(new_topic())
    poll_until(lambda: bool(one.assignment()), one)
    waker = threading.Timer(0.1, one.wakeup)
    waker.start()
    started = time.monotonic()
    with pytest.raises(bradbury.Wakeup):
        one.poll(20_000)
    assert time.monotonic() - started < 18
    waker.join()
    assert one.poll(20).num_rows == 0


def test_wakeup_ends_the_next_poll_if_none_waits(consumer: Make, new_topic: NewTopic) -> None:
    one = consumer(new_topic())
    one.wakeup()
    with pytest.raises(bradbury.Wakeup):
        one.poll(0)
    one.wakeup()
    one.close()  # which is not ended by it


def test_a_member_that_polls_without_waiting_joins_too(consumer: Make, new_topic: NewTopic) -> None:
    one = consumer(new_topic(2))
    deadline = time.monotonic() + SECONDS
    while len(one.assignment()) < 2:
        one.poll(0)
        assert time.monotonic() < deadline

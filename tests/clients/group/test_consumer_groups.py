"""What does a member of a group see of its rebalances, and which topics does it read?"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import bradbury
from bradbury.clients.group.consumer_protocol import Member
from bradbury.protocol.errors import InvalidConfig, OffsetOutOfRange
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


# --- listeners and protocols -------------------------------------------------------------------


def test_an_eager_listener_gets_all_partitions_before_and_after_each_rebalance(
    consumer: Make, new_topic: NewTopic
) -> None:
    topic, reported, late = new_topic(2), RecordingListener(), RecordingListener()
    first = consumer(topic, listener=reported)
    poll_until(lambda: len(reported.events) == 1, first)
    second = consumer(topic, listener=late)
    poll_until(lambda: len(reported.events) == 3 and len(late.events) == 1, first, second)
    assert reported.events == [
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", numbers(first)),
    ]
    assert late.events == [("assigned", numbers(second))]
    assert sorted([*numbers(first), *numbers(second)]) == [0, 1]
    second.close()
    assert late.events[1:] == [("revoked", late.events[0][1])]


def test_in_a_cooperative_group_only_what_moves_is_committed_revoked_and_given_on(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic, reported, late = new_topic(4), RecordingListener(), RecordingListener()
    for partition in range(4):
        fill(bootstrap, topic, 50, partition)
    options = {"partition_assignment_strategy": "cooperative-sticky", "max_poll_records": 20}
    first = consumer(topic, listener=reported, auto_commit_interval_ms=60_000, **options)
    rows = poll_until(lambda: bool(reported.events) and all_read(first), first)
    second = consumer(topic, listener=late, **options)
    rows += poll_until(lambda: len(numbers(second)) == 2, first, second)
    moved = numbers(second)
    assert reported.events[0] == ("assigned", [0, 1, 2, 3])
    assert [event for event in reported.events if event[0] == "revoked"] == [("revoked", moved)]
    assert [event for event in late.events if event[1]] == [("assigned", moved)]
    for partition in range(4):
        fill(bootstrap, topic, 50, partition)
    rows += poll_until(lambda: all_read(first, second), first, second)
    # Committed before it was revoked: nothing is read twice, nothing is omitted.
    seen = sorted((row["partition"], row["offset"]) for row in rows)
    assert seen == [(partition, offset) for partition in range(4) for offset in range(100)]


def test_what_a_cooperative_member_keeps_is_read_while_the_others_are_waited_for(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(2)
    strategy = "cooperative-sticky"
    first = consumer(topic, partition_assignment_strategy=strategy)
    late = consumer(topic, partition_assignment_strategy=strategy)
    poll_until(lambda: len(numbers(first)) == len(numbers(late)) == 1, first, late)
    generation = first.group_metadata().generation
    # `late` does not poll, so the rebalance that begins now cannot end.
    first.enforce_rebalance()
    first.poll(0)
    fill(bootstrap, topic, 50, numbers(first)[0])
    rows: list[Any] = []
    while len(rows) < 50:
        table = first.poll(10_000)
        assert table.num_rows
        rows += table["offset"].to_pylist()
    assert rows == list(range(50))
    assert first.group_metadata().generation == generation
    poll_until(lambda: first.group_metadata().generation > generation, first, late)


def test_a_cooperative_member_that_leaves_in_the_middle_of_a_rebalance_commits_what_it_read(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(2)
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    first = consumer(topic, auto_commit_interval_ms=60_000, **options)
    late = consumer(topic, **options)
    poll_until(lambda: len(numbers(first)) == len(numbers(late)) == 1, first, late)
    partition = numbers(first)[0]
    first.enforce_rebalance()
    first.poll(0)  # and now it waits for `late`, which does not poll
    fill(bootstrap, topic, 50, partition)
    assert first.poll(20_000).num_rows == 50
    first.close()
    rows = poll_until(lambda: len(numbers(late)) == 2, late)
    assert late.position((topic, partition)) == 50
    assert rows == []


def test_a_group_changes_from_range_to_cooperative_sticky_one_member_at_a_time(
    consumer: Make, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    eager = consumer(topic, partition_assignment_strategy="range")
    both = consumer(topic, partition_assignment_strategy=["cooperative-sticky", "range"])
    poll_until(lambda: len(numbers(eager)) == len(numbers(both)) == 1, eager, both)
    eager.close()
    cooperative = consumer(topic, partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: len(numbers(cooperative)) == len(numbers(both)) == 1, cooperative, both)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_with_every_strategy_each_partition_has_one_reader(
    consumer: Make, new_topic: NewTopic, strategy: str
) -> None:
    topics = [new_topic(3), new_topic(2)]
    members = [consumer(*topics, partition_assignment_strategy=strategy) for _ in range(3)]
    poll_until(
        lambda: (
            sorted(p for one in members for p in one.assignment())
            == sorted(
                (topic, n)
                for topic, count in zip(topics, (3, 2), strict=True)
                for n in range(count)
            )
        ),
        *members,
    )
    if strategy != "range":
        poll_until(lambda: sorted(map(len, map(numbers, members))) == [1, 2, 2], *members)


class ToTheOldest(bradbury.Assignor):
    """Everything to the first member by id."""

    name = "to-the-oldest"

    def assign(
        self, members: Sequence[Member], partition_counts: Mapping[str, int]
    ) -> dict[str, list[bradbury.TopicPartition]]:
        first = min(member.member_id for member in members)
        return {
            first: [
                bradbury.TopicPartition(topic, number)
                for topic, count in partition_counts.items()
                for number in range(count)
            ]
        }


def test_an_own_strategy_decides(consumer: Make, new_topic: NewTopic) -> None:
    topic, reported, other = new_topic(3), RecordingListener(), RecordingListener()
    options = {"partition_assignment_strategy": [ToTheOldest()]}
    one = consumer(topic, listener=reported, client_id="a", **options)
    two = consumer(topic, listener=other, client_id="b", **options)
    poll_until(lambda: bool(reported.events and other.events), one, two)
    poll_until(lambda: numbers(one) == [0, 1, 2] and numbers(two) == [], one, two)


class Broken(ToTheOldest):
    name = "broken"

    def assign(
        self, members: Sequence[Member], partition_counts: Mapping[str, int]
    ) -> dict[str, list[bradbury.TopicPartition]]:
        raise ZeroDivisionError("an application's fault")


def test_what_a_strategy_raises_comes_out_of_poll(consumer: Make, new_topic: NewTopic) -> None:
    one = consumer(new_topic(), partition_assignment_strategy=[Broken()], max_poll_interval_ms=500)
    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: False, one)


def test_what_a_listener_raises_comes_out_of_poll_and_the_rebalance_goes_on(
    consumer: Make, new_topic: NewTopic
) -> None:
    def fail() -> None:
        raise LookupError("an application's fault")

    topic, reported = new_topic(2), RecordingListener(revoked=fail)
    first = consumer(topic, listener=reported)
    poll_until(lambda: bool(reported.events), first)
    second = consumer(topic)
    with pytest.raises(LookupError):
        poll_until(lambda: False, first, second)
    poll_until(lambda: len(numbers(first)) == len(numbers(second)) == 1, first, second)
    assert [what for what, _ in reported.events] == ["assigned", "revoked", "assigned"]
    with pytest.raises(LookupError):
        first.close()  # closed nevertheless
    poll_until(lambda: len(numbers(second)) == 2, second)


def test_a_listener_may_commit_what_is_revoked_and_seek_what_is_assigned(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, 20)

    def begin_at_three() -> None:
        # Time enough for the background to find that nothing is committed, if it looked.
        assert first.committed() == {(topic, 0): None}
        first.seek((topic, 0), 3)

    reported = RecordingListener(
        revoked=lambda: first.commit({(topic, 0): 7}), assigned=begin_at_three
    )
    # Without a policy a partition that has no committed offset would be an error.
    first = consumer(topic, listener=reported, enable_auto_commit=False, auto_offset_reset="none")
    assert first.poll(20_000, max_records=1)["offset"].to_pylist() == [3]
    first.unsubscribe()
    assert (first.assignment(), first.group_metadata().generation) == ([], -1)
    assert reported.events == [("assigned", [0]), ("revoked", [0])]
    second = consumer(topic, auto_offset_reset="none")
    assert second.poll(20_000, max_records=1)["offset"].to_pylist() == [7]


def test_without_a_seek_and_a_policy_the_missing_offset_is_raised(
    consumer: Make, new_topic: NewTopic
) -> None:
    one = consumer(new_topic(), listener=RecordingListener(), auto_offset_reset="none")
    for _ in range(2):  # it is not forgotten by being raised once
        with pytest.raises(OffsetOutOfRange, match="no offset is committed"):
            poll_until(lambda: False, one)


def test_a_missing_offset_is_its_own_partitions_error_only(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(3)
    fill(bootstrap, topic, 3, 1)
    first = consumer(auto_offset_reset="none", enable_auto_commit=False)
    first.assign([(topic, 1)])
    first.seek((topic, 1), 1)
    assert first.poll(20_000)["offset"].to_pylist() == [1, 2]
    first.commit({(topic, 1): 2})
    second = consumer(auto_offset_reset="none")
    second.assign([(topic, 0), (topic, 1), (topic, 2)])
    rows, errors = [], []
    while not rows or not errors:
        try:
            rows += second.poll(20_000).to_pylist()
        except OffsetOutOfRange as error:
            errors.append(str(error))
    assert {(row["partition"], row["offset"]) for row in rows} == {(1, 2)}
    assert f"{topic}-0, {topic}-2: no offset is committed" in errors[0]


def test_a_partition_that_is_sought_while_its_position_is_looked_for_is_not_in_error(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 5)
    one = consumer(auto_offset_reset="none")
    find = one._fetcher._positions._find

    def find_late(states: Any) -> Any:
        one.seek((topic, 0), 3)  # the question is asked already
        return find(states)

    one._fetcher._positions._find = find_late
    one.assign([(topic, 0)])
    assert one.poll(20_000)["offset"].to_pylist() == [3, 4]
    assert one.poll(50).num_rows == 0
    assert not one._fetcher.buffer.has_error()


def test_an_error_of_a_partition_that_was_sought_or_given_up_is_not_raised(
    consumer: Make, new_topic: NewTopic, bootstrap: str
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, 5)
    one = consumer(auto_offset_reset="none")
    one.assign([(topic, 0)])
    one.seek((topic, 0), 99)
    deadline = time.monotonic() + SECONDS
    while not one._fetcher.buffer.has_error():
        assert time.monotonic() < deadline
    one.seek((topic, 0), 3)
    assert one.poll(20_000)["offset"].to_pylist() == [3, 4]
    one.seek((topic, 0), 99)
    while not one._fetcher.buffer.has_error():
        assert time.monotonic() < deadline
    one.assign([])
    assert one.poll(20).num_rows == 0


# --- subscriptions -----------------------------------------------------------------------------


def test_a_pattern_matches_whole_names_and_new_topics_join_by_themselves(
    consumer: Make, new_topic: NewTopic, admin: bradbury.Admin, bootstrap: str
) -> None:
    prefix = f"pattern-{time.time_ns()}"
    admin.create_topic(f"{prefix}-a", 1)
    admin.create_topic(f"x{prefix}-b", 1)
    admin.create_topic(f"{prefix}-longer", 1)
    one = consumer(pattern=f"{prefix}-.", metadata_max_age_ms=100)
    poll_until(lambda: one.assignment() == [(f"{prefix}-a", 0)], one)
    assert one.subscription() == [f"{prefix}-a"]
    admin.create_topic(f"{prefix}-c", 2)
    fill(bootstrap, f"{prefix}-c", 5, 1)
    rows = poll_until(lambda: len(one.assignment()) == 3, one)
    rows += poll_until(lambda: one.current_lag((f"{prefix}-c", 1)) == 0, one)
    assert [row["offset"] for row in rows] == list(range(5))
    admin.delete_topics([f"{prefix}-a"])
    poll_until(lambda: {topic for topic, _ in one.assignment()} == {f"{prefix}-c"}, one)


def test_a_pattern_is_compiled_or_text_and_stands_alone(
    consumer: Make, new_topic: NewTopic
) -> None:
    topic = new_topic()
    one = consumer()
    one.subscribe(re.compile(re.escape(topic)))
    poll_until(lambda: one.assignment() == [(topic, 0)], one)
    for wrong in ({}, {"topics": [topic], "pattern": "a"}, {"pattern": "("}):
        with pytest.raises(InvalidConfig):
            one.subscribe(**wrong)


def test_a_pattern_that_matches_nothing_waits_for_its_topic(
    consumer: Make, admin: bradbury.Admin
) -> None:
    name = f"later-{time.time_ns()}"
    one = consumer(pattern=name, metadata_max_age_ms=100)
    poll_until(lambda: one.group_metadata().generation > 0, one)
    admin.create_topic(name, 1)
    poll_until(lambda: one.assignment() == [(name, 0)], one)


def test_new_partitions_of_a_topic_are_shared_out(
    consumer: Make, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    topic = new_topic(1)
    members = [consumer(topic, metadata_max_age_ms=100) for _ in range(2)]
    poll_until(lambda: sum(map(len, map(numbers, members))) == 1, *members)
    admin.create_partitions(topic, 4)
    poll_until(lambda: [len(numbers(one)) for one in members] == [2, 2], *members)


def test_new_partitions_cost_one_rebalance_however_long_the_others_take_to_join(
    consumer: Make, new_topic: NewTopic, admin: bradbury.Admin, bootstrap: str
) -> None:
    topic, views = new_topic(2), 0

    def count() -> None:
        nonlocal views
        views += 1

    leader = consumer(topic, metadata_max_age_ms=50)
    poll_until(lambda: len(numbers(leader)) == 2, leader)
    other = consumer(topic)
    poll_until(lambda: len(numbers(leader)) == len(numbers(other)) == 1, leader, other)
    before = leader.group_metadata().generation
    admin.create_partitions(topic, 4)
    poll_until(lambda: not numbers(leader), leader)
    leader._client.on_view.append(count)
    poll_until(lambda: views > 2, leader)  # it hears of the partitions again while it waits
    poll_until(lambda: len(numbers(leader)) == len(numbers(other)) == 2, leader, other)
    for partition in range(4):
        fill(bootstrap, topic, 10, partition)
    poll_until(lambda: all_read(leader, other), leader, other)
    assert leader.group_metadata().generation == before + 1


def test_a_member_learns_of_new_partitions_from_the_leader_that_gives_them(
    consumer: Make, new_topic: NewTopic, admin: bradbury.Admin, bootstrap: str
) -> None:
    topic = new_topic(2)
    leader = consumer(topic, metadata_max_age_ms=100)
    poll_until(lambda: len(numbers(leader)) == 2, leader)
    follower = consumer(topic, metadata_max_age_ms=600_000)
    poll_until(lambda: len(numbers(leader)) == len(numbers(follower)) == 1, leader, follower)
    admin.create_partitions(topic, 6)
    for partition in range(6):
        fill(bootstrap, topic, 10, partition)
    rows = poll_until(lambda: len(numbers(leader)) == len(numbers(follower)) == 3, leader, follower)
    rows += poll_until(lambda: all_read(leader, follower), leader, follower)
    seen = sorted((row["partition"], row["offset"]) for row in rows)
    assert seen == [(partition, offset) for partition in range(6) for offset in range(10)]


def test_another_subscription_replaces_the_first(consumer: Make, new_topic: NewTopic) -> None:
    first, second = new_topic(), new_topic()
    reported = RecordingListener()
    one = consumer(first, partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: one.assignment() == [(first, 0)], one)
    one.subscribe([second], listener=reported)
    poll_until(lambda: one.assignment() == [(second, 0)], one)
    assert reported.events[0] == ("revoked", [0])
    one.subscribe([])
    assert one.assignment() == []
    one.assign([(first, 0)])
    assert one.assignment() == [(first, 0)]


def test_an_asked_for_rebalance_makes_a_new_generation(consumer: Make, new_topic: NewTopic) -> None:
    one = consumer(new_topic())
    poll_until(lambda: bool(one.assignment()), one)
    before = one.group_metadata()
    one.enforce_rebalance("a test")
    poll_until(lambda: one.group_metadata().generation > before.generation, one)
    assert one.group_metadata().member_id == before.member_id

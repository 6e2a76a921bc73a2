"""Is a sticky assignment as even as can be, and does it move as little as that allows?

Properties for any members; kafka-python's own sticky strategies are the oracle for how even, how
sticky, and what the bytes mean.
"""

from collections import Counter
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyAssignorUserDataV1 as AioStickyUserData,
)
from hypothesis import given, settings, strategies as st
from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor as TheirCooperative,
)
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from bradbury.clients.group.assignor import Assignment, withhold_owned
from bradbury.clients.group.assignors import make_assignors
from bradbury.clients.group.consumer_protocol import (
    Member,
    decode_assignment,
    decode_sticky_data,
    decode_subscription,
    encode_cooperative_data,
    encode_sticky_data,
    encode_subscription,
)
from bradbury.clients.group.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
    assign_sticky,
)
from bradbury.protocol.errors import InvalidConfig
from bradbury.protocol.topic_partition import TopicPartition

TOPICS = ["a", "b", "c", "d"]
member_ids = st.sampled_from([f"m{number}" for number in range(8)])
partition_counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
any_partition = st.builds(TopicPartition, st.sampled_from([*TOPICS, "gone"]), st.integers(-1, 14))
claims_of_anybody = st.dictionaries(
    member_ids,
    st.tuples(st.lists(any_partition, unique=True, max_size=20), st.integers(-1, 3)),
    max_size=8,
)
groups_alike = st.builds(
    lambda ids, topics: [Member(one, tuple(topics)) for one in ids],
    st.lists(member_ids, min_size=1, max_size=8, unique=True),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
)
groups_unlike = st.dictionaries(
    member_ids, st.lists(st.sampled_from(TOPICS), unique=True), min_size=1, max_size=8
).map(lambda found: [Member(one, tuple(topics)) for one, topics in found.items()])
groups = st.one_of(groups_alike, groups_unlike)


def all_partitions(members: list[Member], counts: dict[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members for topic in member.topics}
    return [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]


def check_complete(members: list[Member], counts: dict[str, int], found: Assignment) -> None:
    assert sorted(chain.from_iterable(found.values())) == sorted(all_partitions(members, counts))
    for member in members:
        assert {topic for topic, _ in found[member.member_id]} <= set(member.topics)


def unevenness(members: list[Member], found: Assignment) -> int:
    """The largest difference that one partition given to another member would lessen."""
    return max(
        len(found[giver.member_id]) - len(found[taker.member_id])
        for giver in members
        for taker in members
        if giver is taker or {topic for topic, _ in found[giver.member_id]} & set(taker.topics)
    )


@given(members=groups, counts=partition_counts, claims=claims_of_anybody)
def test_whatever_members_claim_each_partition_has_one_owner_and_shares_are_even(
    members: list[Member], counts: dict[str, int], claims: Any
) -> None:
    found = assign_sticky(members, counts, claims)
    check_complete(members, counts, found)
    assert unevenness(members, found) <= 1


@given(members=groups, counts=partition_counts, claims=claims_of_anybody)
def test_what_was_assigned_stays_as_it_is_when_nothing_changes(
    members: list[Member], counts: dict[str, int], claims: Any
) -> None:
    before = assign_sticky(members, counts, claims)
    again = assign_sticky(members, counts, {one: (owned, 7) for one, owned in before.items()})
    assert again == before


@given(
    before=groups_alike, counts=partition_counts, ids=st.lists(member_ids, min_size=1, unique=True)
)
def test_where_all_subscribe_alike_no_even_assignment_would_move_less(
    before: list[Member], counts: dict[str, int], ids: list[str]
) -> None:
    had = assign_sticky(before, counts, {})
    after = [Member(one, before[0].topics) for one in ids]
    found = assign_sticky(after, counts, {one: (owned, 1) for one, owned in had.items()})
    kept = sum(len(set(had.get(one, ())) & set(owned)) for one, owned in found.items())
    each, more = divmod(len(all_partitions(after, counts)), len(after))
    loads = sorted((len(had.get(one, ())) for one in ids), reverse=True)
    most = sum(min(load, each + (place < more)) for place, load in enumerate(loads))
    assert kept == most


def test_the_later_claim_counts_and_a_disputed_one_does_not() -> None:
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    members = [Member("x", ("a",)), Member("y", ("a",))]
    later = assign_sticky(members, {"a": 2}, {"x": ([one], 4), "y": ([one, two], 3)})
    assert later == {"x": [one], "y": [two]}
    swapped = assign_sticky(members, {"a": 2}, {"x": ([one, two], 3), "y": ([one], 4)})
    assert swapped == {"x": [two], "y": [one]}
    disputed = assign_sticky(members, {"a": 2}, {"x": ([one, two], 3), "y": ([one, two], 3)})
    assert disputed == {"x": [one], "y": [two]}  # as if nobody had claimed anything


def test_a_thousand_members_and_ten_thousand_partitions_take_no_time() -> None:
    members = [Member(f"m{number:04}", ("a",)) for number in range(1_000)]
    found = assign_sticky(members, {"a": 10_000}, {})
    assert {len(owned) for owned in found.values()} == {10}
    claims = {one: (owned, 1) for one, owned in found.items()}
    after = assign_sticky(members[:-1], {"a": 10_000}, claims)
    assert all(set(found[one]) <= set(owned) for one, owned in after.items())


# --- kafka-python ------------------------------------------------------------------------------


def cluster_of(counts: dict[str, int]) -> Any:
    return SimpleNamespace(
        topics=lambda: {topic for topic, count in counts.items() if count},
        partitions_for_topic=lambda topic: set(range(counts[topic])) or None,
    )


def theirs(assignor: Any, members: list[Member], counts: dict[str, int]) -> Assignment:
    """What kafka-python's leader answers to the very bytes that our members send."""
    asked = [
        SimpleNamespace(
            member_id=member.member_id,
            group_instance_id=None,
            metadata=ConsumerProtocolSubscription.decode(
                encode_subscription(
                    member.topics,
                    member.owned,
                    user_data=member.user_data,
                    generation=member.generation,
                )
            ),
        )
        for member in members
    ]
    answer = assignor.assign(cluster_of(counts), asked)
    return {one: sorted(decode_assignment(given.encode())) for one, given in answer.items()}


@settings(max_examples=50)
@given(members=groups_alike, counts=partition_counts, ids=st.lists(member_ids, min_size=1))
def test_kafka_python_is_no_more_even_and_no_more_sticky(
    members: list[Member], counts: dict[str, int], ids: list[str]
) -> None:
    had = assign_sticky(members, counts, {})
    after = [
        Member(
            one,
            members[0].topics,
            user_data=encode_sticky_data(had[one], 1) if one in had else None,
        )
        for one in sorted(set(ids))
    ]
    ours = StickyAssignor().assign(after, counts)
    versioned = [replace(one, user_data=one.user_data and b"\0\1" + one.user_data) for one in after]
    assert StickyAssignor().assign(versioned, counts) == ours
    their_answer = theirs(StickyPartitionAssignor(), versioned, counts)
    check_complete(after, counts, ours)
    check_complete(after, counts, their_answer)
    assert Counter(map(len, ours.values())) == Counter(map(len, their_answer.values()))

    def kept(found: Assignment) -> int:
        return sum(len(set(had.get(one, ())) & set(owned)) for one, owned in found.items())

    assert kept(ours) >= kept(their_answer)


@settings(max_examples=50)
@given(members=groups_alike, counts=partition_counts, ids=st.lists(member_ids, min_size=1))
def test_a_cooperative_leader_of_either_kind_gives_nothing_that_another_still_reads(
    members: list[Member], counts: dict[str, int], ids: list[str]
) -> None:
    had = assign_sticky(members, counts, {})
    after = [
        Member(one, members[0].topics, tuple(had.get(one, ())), generation=1 if one in had else -1)
        for one in sorted(set(ids))
    ]
    owners = {one: member.member_id for member in after for one in member.owned}
    final = CooperativeStickyAssignor().assign(after, counts)
    check_complete(after, counts, final)
    for found in (withhold_owned(final, after), theirs(TheirCooperative(), after, counts)):
        for member_id, given_now in found.items():
            assert all(owners.get(one, member_id) == member_id for one in given_now)
    # When everybody has given up what it has to, one more rebalance ends it.
    first = withhold_owned(final, after)
    second = [
        Member(
            member.member_id,
            member.topics,
            tuple(sorted(set(first[member.member_id]) & {*member.owned, *first[member.member_id]})),
            generation=2,
        )
        for member in after
    ]
    last = withhold_owned(CooperativeStickyAssignor().assign(second, counts), second)
    check_complete(second, counts, last)
    assert unevenness(second, last) <= 1


def test_a_stale_member_that_still_reads_a_partition_holds_it_back() -> None:
    one = TopicPartition("a", 0)
    members = [
        Member("behind", ("a",), (one,), generation=3),
        Member("current", ("a",), (one,), generation=5),
    ]
    final = CooperativeStickyAssignor().assign(members, {"a": 1})
    assert final["current"] == [one]
    assert withhold_owned(final, members) == {"behind": [], "current": []}


# --- bytes -------------------------------------------------------------------------------------


@given(
    topics=st.lists(st.sampled_from(TOPICS), unique=True),
    owned=st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9))),
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | st.text(max_size=5),
    user_data=st.none() | st.binary(max_size=9),
)
def test_kafka_python_and_we_read_the_same_subscription(
    topics: list[str],
    owned: list[TopicPartition],
    generation: int,
    rack: str | None,
    user_data: bytes | None,
) -> None:
    data = encode_subscription(
        topics, owned, user_data=user_data, generation=generation, rack_id=rack
    )
    read = ConsumerProtocolSubscription.decode(data)
    assert (read.version, list(read.topics)) == (3, sorted(topics))
    assert (read.generation_id, read.rack_id, read.user_data) == (generation, rack, user_data)
    assert sorted((one.topic, n) for one in read.owned_partitions for n in one.partitions) == (
        sorted(owned)
    )
    ours = decode_subscription(data, "m")
    assert ours == Member(
        "m", tuple(sorted(topics)), tuple(sorted(owned)), None, generation, rack, user_data
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_members_of_every_age_are_understood(version: int) -> None:
    written = ConsumerProtocolSubscription(
        version=version,
        topics=["t"],
        user_data=b"u",
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[1, 2])
        ],
        generation_id=7,
        rack_id="r",
    )
    owned = (TopicPartition("t", 1), TopicPartition("t", 2))
    assert decode_subscription(written.encode(), "m") == Member(
        "m",
        ("t",),
        owned if version >= 1 else (),
        None,
        7 if version >= 2 else -1,
        "r" if version >= 3 else None,
        b"u",
    )


def test_sticky_data_is_javas_and_older_or_broken_ones_are_not_an_error() -> None:
    owned = [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)]
    data = encode_sticky_data(owned, 9)
    assert data == bytes.fromhex(
        "00000002000174 00000002 00000000 00000002000175 00000001 0000000100000009"
    )
    read = AioStickyUserData.decode(data)
    assert (read.generation, read.previous_assignment) == (9, [("t", [0, 2]), ("u", [1])])
    with_version = StickyAssignorUserData([("t", [0, 2]), ("u", [1])], 9).encode()
    assert decode_sticky_data(with_version) == decode_sticky_data(data) == (owned, 9)
    assert decode_sticky_data(data[:-4]) == (owned, -1)
    member = Member("m", ("t", "u"), user_data=data)
    for cut in (data, data[:-4], data[:-9], b"", b"\xff" * 40):
        reported = Member("m", ("t", "u"), user_data=cut)
        assert sorted(StickyAssignor().assign([reported], {"t": 3, "u": 2})["m"]) == sorted(
            StickyAssignor().assign([member], {"t": 3, "u": 2})["m"]
        )


def test_a_member_remembers_what_it_was_given_last() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.user_data(()) is None
    assert cooperative.user_data(()) == encode_cooperative_data(-1)
    given_now = [TopicPartition("t", 4)]
    for assignor in (sticky, cooperative):
        assignor.on_assignment(given_now, 12)
    assert sticky.user_data(()) == encode_sticky_data(given_now, 12)
    assert cooperative.user_data(given_now) == encode_cooperative_data(12)


def test_strategies_are_named_or_given_and_each_once() -> None:
    custom = StickyAssignor()
    assert make_assignors(custom) == (custom,)
    assert [one.name for one in make_assignors(["range", "sticky"])] == ["range", "sticky"]
    for wrong in ("nearest", [], ["range", "range"]):
        with pytest.raises(InvalidConfig):
            make_assignors(wrong)

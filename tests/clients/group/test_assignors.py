"""Does a group get the same assignment whoever leads it? kafka-python is the oracle."""

from itertools import chain
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as AioRoundRobin,
)
from hypothesis import assume, given, strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from bradbury.clients.group.assignors import assign_range, assign_roundrobin
from bradbury.clients.group.consumer_protocol import (
    Member,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from bradbury.protocol.errors import MalformedRequest
from bradbury.protocol.topic_partition import TopicPartition

topics = st.sampled_from(["a", "b", "c", "flights"])


def members_of(subscriptions: dict[str, list[str]]) -> list[Member]:
    return [Member(member_id, tuple(names)) for member_id, names in subscriptions.items()]


@given(
    subscriptions=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4),
        st.lists(topics, unique=True, min_size=1),
        min_size=1,
        max_size=6,
    ),
    counts=st.dictionaries(topics, st.integers(1, 20), min_size=4, max_size=4),
)
def test_every_partition_has_one_owner_and_shares_differ_by_one(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assignment = assign_range(members_of(subscriptions), counts)
    for topic, count in counts.items():
        subscribers = [one for one, names in subscriptions.items() if topic in names]
        shares = [
            [partition for name, partition in assignment[one] if name == topic]
            for one in subscribers
        ]
        assert sorted(chain.from_iterable(shares)) == (list(range(count)) if subscribers else [])
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        if shares:
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(
    subscriptions=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4),
        st.lists(topics, unique=True, min_size=1),
        min_size=1,
        max_size=6,
    ),
    counts=st.dictionaries(topics, st.integers(1, 20), min_size=4, max_size=4),
)
def test_kafka_python_would_assign_the_same(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic])))
    theirs = RangePartitionAssignor.assign(
        cluster,
        [
            SimpleNamespace(
                member_id=one, group_instance_id=None, metadata=SimpleNamespace(topics=names)
            )
            for one, names in subscriptions.items()
        ],
    )
    ours = assign_range(members_of(subscriptions), counts)
    for one, owned in ours.items():
        expected = decode_assignment(theirs[one].encode())
        assert sorted(owned) == sorted(expected)


all_counts = st.fixed_dictionaries(
    {topic: st.integers(0, 9) for topic in ("a", "b", "c", "flights")}
)


@given(
    instances=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4),
        st.none() | st.text("xyz", min_size=1),
        min_size=1,
        max_size=6,
    ),
    names=st.lists(topics, unique=True),
    counts=all_counts,
)
def test_kafka_python_would_deal_the_same_round(
    instances: dict[str, str | None], names: list[str], counts: dict[str, int]
) -> None:
    # Two members never share an instance id: the coordinator would fence one of them.
    static = [instance for instance in instances.values() if instance is not None]
    assume(len(set(static)) == len(static))
    theirs = RoundRobinPartitionAssignor.assign(
        SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic]))),
        [
            SimpleNamespace(
                member_id=one, group_instance_id=instance, metadata=SimpleNamespace(topics=names)
            )
            # Static ones first: it loses members that come in any other order.
            for one, instance in sorted(instances.items(), key=lambda item: item[1] is None)
        ],
    )
    ours = assign_roundrobin(
        [Member(one, tuple(names), instance_id=instance) for one, instance in instances.items()],
        counts,
    )
    for one, owned in ours.items():
        assert sorted(owned) == sorted(decode_assignment(theirs[one].encode()))


@given(
    subscriptions=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4),
        st.lists(topics, unique=True),
        min_size=1,
        max_size=6,
    ),
    counts=all_counts,
)
def test_aiokafka_would_pass_the_same_members_who_do_not_subscribe(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    theirs = AioRoundRobin.assign(
        SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic]))),
        {one: SimpleNamespace(subscription=names) for one, names in subscriptions.items()},
    )
    ours = assign_roundrobin(members_of(subscriptions), counts)
    for one, owned in ours.items():
        assert sorted(owned) == sorted(decode_assignment(theirs[one].encode()))


def test_the_first_members_get_the_partitions_that_are_left_over() -> None:
    assignment = assign_range(members_of({"m1": ["t"], "m2": ["t"], "m3": ["t"]}), {"t": 8})
    assert {one: len(owned) for one, owned in assignment.items()} == {"m1": 3, "m2": 3, "m3": 2}


def test_static_members_are_in_order_of_their_instance_and_before_others() -> None:
    members = [
        Member("x", ("t",), instance_id="b"),
        Member("a", ("t",)),
        Member("z", ("t",), instance_id="a"),
    ]
    assignment = assign_range(members, {"t": 3})
    assert [assignment[one][0].partition for one in ("z", "x", "a")] == [0, 1, 2]


def test_kafka_python_reads_our_subscription_and_assignment() -> None:
    theirs = ConsumerProtocolSubscription.decode(
        encode_subscription(["b", "a"], [TopicPartition("a", 3)])
    )
    assert list(theirs.topics) == ["a", "b"]
    assignment = ConsumerProtocolAssignment.decode(
        encode_assignment([TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 7)])
    )
    found = [(one.topic, list(one.partitions)) for one in assignment.assigned_partitions]
    assert found == [("t", [0, 1]), ("u", [7])]


@given(st.lists(st.tuples(topics, st.integers(0, 50)), unique=True))
def test_an_assignment_comes_back(partitions: list[TopicPartition]) -> None:
    decoded = decode_assignment(encode_assignment(TopicPartition(*one) for one in partitions))
    assert sorted(decoded) == sorted(partitions)


def test_a_member_that_the_leader_did_not_know_has_nothing() -> None:
    assert decode_assignment(b"") == []


def test_a_subscription_of_kafka_go_is_read() -> None:
    """As kafka-go 0.4 sends it: version 1, without the owned partitions of that version."""
    sent = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"
    assert decode_subscription(sent, "m") == Member("m", ("t",))


@given(st.binary(max_size=60))
def test_garbage_from_another_member_is_only_ever_malformed(garbage: bytes) -> None:
    for decode in (lambda data: decode_subscription(data, "m"), decode_assignment):
        try:
            decode(garbage)
        except MalformedRequest:
            continue


def test_lengths_that_lie_are_refused_before_anything_is_allocated() -> None:
    with pytest.raises(MalformedRequest):
        decode_subscription(b"\x00\x00\x7f\xff\xff\xff", "m")

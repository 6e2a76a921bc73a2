"""Does every node get its share, and a drained machine nothing?"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.rebalance import Rebalance, nodes_on, plan, replicas_on
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from bradbury.cluster.partition.replica_placement import machine_of
from bradbury.protocol.errors import InvalidReplicationFactor, InvalidRequest
from tests.support.metadata import applied, cluster, create, decide, registration


def with_topic(image: MetadataImage, replicas: list[tuple[int, ...]]) -> MetadataImage:
    assignments = dict(enumerate(replicas))
    return applied(image, create(image, "t", assignments=assignments))


def settled(image: MetadataImage) -> MetadataImage:
    """After all that moves has moved."""
    topics = {}
    moves = {(each.topic, each.partition): each.after for each in plan(image)}
    for name, topic in image.topics.items():
        partitions = tuple(
            PartitionImage(after, after, after[0], each.leader_epoch + 1, each.partition_epoch + 1)
            for index, each in enumerate(topic.partitions)
            for after in (moves.get((name, index), each.replicas),)
        )
        topics[name] = replace(topic, partitions=partitions)
    return replace(image, topics=topics)


def load(image: MetadataImage) -> Counter:
    return Counter(node for each in image.topics["t"].partitions for node in each.replicas)


def leaders(image: MetadataImage) -> Counter:
    return Counter(each.replicas[0] for each in image.topics["t"].partitions)


def test_a_new_node_gets_its_share_and_nothing_else_moves() -> None:
    image = with_topic(cluster("a1", "b1"), [(1, 2), (2, 1)] * 3)
    image = applied(image, controller_state.register_node(image, registration("c1"))[1])
    moves = plan(image)
    assert len(moves) == 4
    after = settled(image)
    assert load(after) == {1: 4, 2: 4, 3: 4}
    assert max(leaders(after).values()) - min(leaders(after).values()) <= 1
    assert plan(after) == []


def test_while_replicas_move_nothing_else_has_to() -> None:
    """Where a replica is to go it does not count, and where it comes it does, as first, too."""
    image = with_topic(cluster("a1", "b1"), [(1, 2), (2, 1)] * 3)
    image = applied(image, controller_state.register_node(image, registration("c1"))[1])
    records, moves = decide(image, Rebalance())
    assert len(moves) == 4
    assert plan(applied(image, records)) == []


def test_what_is_even_stays() -> None:
    assert plan(with_topic(cluster("a1", "b1", "c1"), [(1, 2), (2, 3), (3, 1)])) == []


def test_a_drained_machine_is_left_and_gets_nothing_more_until_it_is_restored() -> None:
    image = with_topic(cluster("a1", "b1", "c1"), [(1, 2), (2, 3), (3, 1)])
    records, moves = decide(image, Rebalance(drain="c1"))
    assert {each.partition for each in moves} == {1, 2}
    assert {node for each in moves for node in each.after} == {1, 2}
    image = applied(image, records)
    assert image.draining == {"c1"}
    assert MetadataImage().apply(image.to_records(), offset=9).draining == {"c1"}
    more = applied(image, create(image, "u", partitions=6))
    assert 3 not in {node for each in more.topics["u"].partitions for node in each.replicas}
    records, moves = decide(image, Rebalance(restore="c1"))
    assert (applied(image, records).draining, moves) == (frozenset(), ())


def test_a_node_that_is_needed_is_not_drained() -> None:
    image = with_topic(cluster("a1", "b1"), [(1, 2)])
    with pytest.raises(InvalidReplicationFactor, match="has 2 replicas and too few machines"):
        decide(image, Rebalance(drain="b1"))
    with pytest.raises(InvalidRequest, match=r"no node is on 'x'; the machines are \w+, \w+"):
        decide(image, Rebalance(drain="x"))


def test_a_dry_run_says_what_would_move() -> None:
    image = with_topic(cluster("a1", "b1"), [(1,)] * 4)
    _, moves = decide(image, Rebalance(validate_only=True))
    assert [(each.partition, each.after) for each in moves] == [(0, (2,)), (1, (2,))]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), count=st.integers(1, 7), factor=st.integers(1, 3))
def test_any_cluster_becomes_even_and_no_promise_is_broken(data, count, factor) -> None:
    names = [f"{data.draw(st.sampled_from('abc'))}{number}" for number in range(count)]
    image = cluster(*names)
    factor = min(factor, count)
    replicas = data.draw(
        st.lists(
            st.permutations(range(1, count + 1)).map(lambda ids: tuple(ids[:factor])),
            min_size=1,
            max_size=12,
        )
    )
    image = with_topic(image, replicas)
    drained = data.draw(st.sampled_from([None, *names])) if count > factor else None
    if drained is not None:
        image = replace(image, draining=frozenset([drained]))
    after = settled(image)
    assert plan(after) == [], "a second look moves nothing"
    for before, now in zip(image.topics["t"].partitions, after.topics["t"].partitions, strict=True):
        assert len(now.replicas) == len(before.replicas)
        nodes = [image.nodes[node] for node in now.replicas]
        assert len({machine_of(node) for node in nodes}) == factor
        assert drained not in {node.machine for node in nodes}
        if drained is None:
            had = {image.nodes[node].rack for node in before.replicas}
            assert len({node.rack for node in nodes}) >= len(had)
    if factor == 1:
        staying = [node for node in image.nodes.values() if node.machine != drained]
        shares = [load(after)[node.node_id] for node in staying]
        assert max(shares) - min(shares) <= 1


def test_a_machine_that_is_about_to_go_is_left_as_far_as_others_can_take_what_it_has() -> None:
    image = with_topic(cluster("a1", "b1", "c1"), [(3,), (2,), (2,), (2,)])
    for name, replicas in (("two", (1, 3)), ("everywhere", (1, 2, 3))):
        image = applied(image, create(image, name, assignments={0: replicas}))
    records, moves = decide(image, Rebalance(leave="c1"))
    assert [each.topic for each in moves] == ["t", "two"], "and nothing else moves"
    assert all(3 not in each.after for each in moves)
    assert replicas_on(image, "c1") == 3
    after = applied(image, records)
    assert after.draining == frozenset(), "it takes part again when it is back"
    assert decide(after, Rebalance(leave="c1")) == ([], ()), "asked again, nothing begins twice"
    assert (nodes_on(image, "c1"), replicas_on(image, "x")) == ({3}, 0)


def test_machines_that_go_at_once_give_nothing_to_each_other() -> None:
    """Each has fewer replicas than those that stay, and would be chosen first."""
    image = with_topic(cluster("a1", "b1", "c1"), [(1,)] * 9 + [(2,)] * 2 + [(3,)])
    begun: set[str] = set()
    for machine, others in (("b1", {"c1"}), ("c1", {"b1"})):
        records, moves = decide(image, Rebalance(leave=machine, leaving=frozenset(others)))
        assert {node for each in moves for node in each.after} == {1}
        image = applied(image, records)
        begun |= {f"{each.topic}-{each.partition}" for each in moves}
    assert begun == {"t-9", "t-10", "t-11"}


def test_what_only_machines_that_go_too_could_take_stays() -> None:
    image = with_topic(cluster("a1", "b1", "c1"), [(1, 2), (2, 3)])
    _, moves = decide(image, Rebalance(leave="b1", leaving=frozenset({"c1"})))
    assert [(each.partition, each.after) for each in moves] == [(1, (1, 3))]

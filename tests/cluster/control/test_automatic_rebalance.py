"""Do nodes without partitions get their share, step by step, under a limit that goes again?"""

from dataclasses import replace

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.automatic_rebalance import RebalanceStep, empty_nodes, is_limited
from bradbury.cluster.control.config_control import (
    BROKER,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from bradbury.cluster.control.throttled_moves import RATES, RECEIVERS, SENDERS
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from tests.support.metadata import applied, cluster, create, decide, registration

RATE = 1000
STEP = RebalanceStep(bytes_per_second=RATE)


def with_new_node() -> MetadataImage:
    image = cluster("a1", "b1")
    assignments = dict(enumerate([(1, 2), (2, 1)] * 3))
    image = applied(image, create(image, "t", assignments=assignments))
    return applied(image, controller_state.register_node(image, registration("c1"))[1])


def after_moves(image: MetadataImage) -> MetadataImage:
    """All that was on its way has arrived."""

    def arrived(each: PartitionImage) -> PartitionImage:
        kept = tuple(node for node in each.replicas if node not in each.removing)
        return replace(each, replicas=kept, isr=kept, leader=kept[0], adding=(), removing=())

    topics = {
        name: replace(topic, partitions=tuple(arrived(each) for each in topic.partitions))
        for name, topic in image.topics.items()
    }
    return replace(image, topics=topics)


def rates(image: MetadataImage) -> dict[str, str]:
    return dict(image.broker_configs.get("", {}))


def test_a_new_node_gets_its_share_under_a_limit_that_is_lifted_at_the_end() -> None:
    image = with_new_node()
    assert empty_nodes(image) == {3}
    records, moves = decide(image, STEP)
    assert moves and {node for move in moves for node in move.after} >= {3}
    image = applied(image, records)
    assert rates(image) == dict.fromkeys(RATES, str(RATE))
    assert is_limited(image, RATE)
    listed = image.topics["t"].configs
    assert set(listed) == {SENDERS, RECEIVERS}
    for move in moves:
        assert f"{move.partition}:{move.before[0]}" in listed[SENDERS].split(",")
        assert all(
            (f"{move.partition}:{node}" in listed[RECEIVERS].split(","))
            == (node not in move.before)
            for node in move.after
        )

    assert decide(image, STEP) == ([], ()), "what moves is waited for"
    image = after_moves(image)
    records, moves = decide(image, STEP)
    assert moves == ()
    image = applied(image, records)
    assert rates(image) == {}
    assert image.topics["t"].configs == {}
    assert decide(image, STEP) == ([], ())


def test_it_goes_on_where_another_controller_has_ended() -> None:
    """Of many partitions only so many move at once: the next ones do though no node is empty."""
    image = with_new_node()
    image = applied(image, decide(image, STEP)[0])
    image = after_moves(image)
    image = applied(image, create(image, "more", assignments=dict.fromkeys(range(6), (1, 2))))
    assert empty_nodes(image) == set()
    records, moves = decide(image, STEP)
    assert {move.topic for move in moves} == {"more"}
    assert is_limited(applied(image, records), RATE)


def test_what_is_uneven_without_a_new_node_stays() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", assignments={0: (2,)}))
    image = applied(image, create(image, "u", assignments=dict.fromkeys(range(6), (1,))))
    assert empty_nodes(image) == set()
    assert decide(image, STEP) == ([], ())


@pytest.mark.parametrize("fenced", [False, True])
def test_a_node_that_cannot_get_any_changes_nothing(fenced: bool) -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t", assignments={0: (1,)}))
    image = applied(image, controller_state.register_node(image, registration("b1"))[1])
    nodes = dict(image.nodes)
    nodes[2] = replace(nodes[2], fenced=fenced)
    image = replace(image, nodes=nodes)
    assert empty_nodes(image) == (set() if fenced else {2})
    assert decide(image, STEP) == ([], ())


def test_the_limit_of_somebody_else_is_left_to_him() -> None:
    image = with_new_node()
    changes = tuple(ConfigChange(name, Operation.SET, "77") for name in RATES)
    resource = ResourceChanges(resource_type=BROKER, name="", changes=changes)
    image = applied(image, decide(image, AlterConfigs(resources=(resource,)))[0])
    assert decide(image, STEP) == ([], ())
    moving = applied(image, decide(with_new_node(), STEP)[0])
    assert decide(moving, STEP) == ([], ())

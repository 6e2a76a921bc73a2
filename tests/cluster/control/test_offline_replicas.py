"""Who leads what a node has led from a log directory that has failed?"""

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.offline_replicas import OfflineReplica, RemoveOfflineReplicas
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from bradbury.protocol.errors import StaleBrokerEpoch
from tests.support.metadata import applied, cluster, create, decide


def led_by_one(**options: object) -> MetadataImage:
    image = cluster("a1", "b1", "c1")
    return applied(image, create(image, "t", assignments={0: (1, 2, 3), 1: (2, 3, 1)}, **options))


def partition(image: MetadataImage, index: int = 0) -> PartitionImage:
    return image.topics["t"].partitions[index]


def request(image: MetadataImage, node_id: int = 1, index: int = 0) -> RemoveOfflineReplicas:
    return RemoveOfflineReplicas(
        node_id=node_id,
        broker_epoch=image.nodes[node_id].epoch,
        replicas=(OfflineReplica(image.topics["t"].topic_id, index),),
    )


def test_the_next_in_sync_replica_leads_and_the_node_is_out_of_sync() -> None:
    image = led_by_one()
    records, answers = decide(image, request(image))
    changed = partition(applied(image, records))
    assert answers == (True,)
    assert (changed.leader, changed.isr, changed.elr) == (2, (2, 3), ())
    assert changed.leader_epoch == partition(image).leader_epoch + 1
    assert not image.nodes[1].fenced, "its other directories serve on"


def test_below_min_insync_replicas_it_stays_eligible() -> None:
    """It had everything that was acknowledged, and may lead again when its directory is back."""
    image = led_by_one(configs={"min.insync.replicas": "3"})
    records, _ = decide(image, request(image))
    assert partition(applied(image, records)).elr == (1,)


def test_where_nobody_else_can_lead_nothing_changes_until_somebody_can() -> None:
    image = led_by_one(configs={"min.insync.replicas": "2"})
    for node in (2, 3):
        image = applied(image, controller_state.fence_node(image, node, fenced=True))
    assert decide(image, request(image)) == ([], (False,))
    image = applied(image, controller_state.fence_node(image, 3, fenced=False))
    records, answers = decide(image, request(image))
    assert answers == (True,)
    assert partition(applied(image, records)).leader == 3, "eligible: it has what is acknowledged"


@pytest.mark.parametrize(("value", "leader"), [("false", 1), ("true", 2)])
def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it(
    value: str, leader: int
) -> None:
    image = led_by_one(configs={"unclean.leader.election.enable": value})
    for fenced in (True, False):
        for node in (2, 3):
            image = applied(image, controller_state.fence_node(image, node, fenced=fenced))
    records, _ = decide(image, request(image))
    assert partition(applied(image, records)).leader == leader


def test_the_leader_does_not_wait_for_a_follower_in_a_directory_that_has_failed() -> None:
    image = led_by_one()
    records, answers = decide(image, request(image, index=1))
    changed = partition(applied(image, records), 1)
    assert answers == (True,)
    assert (changed.leader, changed.isr) == (2, (2, 3))
    assert changed.leader_epoch == partition(image, 1).leader_epoch


def test_what_nobody_counts_on_and_what_is_deleted_is_left_alone() -> None:
    image = led_by_one()
    again = request(image)
    records, _ = decide(image, again)
    assert decide(applied(image, records), again) == ([], (True,))
    assert decide(MetadataImage(nodes=image.nodes), again) == ([], (True,))


def test_a_former_life_of_the_node_is_refused() -> None:
    image = led_by_one()
    former = request(image)
    _, records = controller_state.register_node(
        image,
        controller_state.NodeRegistration(
            directory_id="a1", incarnation="b", roles=("partition",), host="h", port=1, rack=None
        ),
    )
    image = applied(image, records)
    with pytest.raises(StaleBrokerEpoch):
        decide(image, former)

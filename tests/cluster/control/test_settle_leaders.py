"""Which partitions does the controller give other leaders by itself?"""

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.partition_control import PeriodicLeaderElection
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage
from tests.support.metadata import applied, cluster, create, decide


def settled(image: MetadataImage, *, is_balancing: bool) -> tuple[MetadataImage, int]:
    records, count = decide(image, PeriodicLeaderElection(is_balancing=is_balancing))
    assert count == len(records)
    return applied(image, records), count


def fenced(image: MetadataImage, node: int, *, is_fenced: bool = True) -> MetadataImage:
    return applied(image, controller_state.fence_node(image, node, fenced=is_fenced))


def leaders(image: MetadataImage) -> list[int]:
    return [partition.leader for partition in image.topics["t"].partitions]


def test_a_first_replica_that_is_in_sync_leads_again() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", assignments={0: (1, 2), 1: (2, 1)}))
    image = fenced(image, 1)
    assert leaders(image) == [2, 2]
    assert settled(image, is_balancing=True) == (image, 0)
    image = fenced(image, 1, is_fenced=False)
    assert settled(image, is_balancing=True) == (image, 0), "it is not in sync yet"


@pytest.mark.parametrize("value", [None, "false", "true"])
def test_a_replica_that_is_out_of_sync_leads_where_the_topic_allows_it(value: str | None) -> None:
    image = cluster("a1", "b1")
    configs = {} if value is None else {"unclean.leader.election.enable": value}
    image = applied(image, create(image, "t", assignments={0: (1, 2)}, configs=configs))
    image = fenced(fenced(image, 2), 1)
    image = fenced(image, 2, is_fenced=False)
    assert leaders(image) == [NO_LEADER], "the controller's sweep comes later"
    image, count = settled(image, is_balancing=False)
    assert (leaders(image), count) == (([2], 1) if value == "true" else ([NO_LEADER], 0))
    assert image.topics["t"].partitions[0].recovering is (value == "true")

"""Are the partitions that need looking at counted?"""

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.controller_state import own_min_insync
from bradbury.cluster.metadata.cluster_health import health_of
from bradbury.cluster.metadata.metadata_image import MetadataImage
from tests.support.metadata import applied, cluster, create


def fenced(image: MetadataImage, node: int) -> MetadataImage:
    records = controller_state.fence_node(image, node, fenced=True)
    return applied(image, records)


def test_a_node_that_goes_is_seen_in_every_number_it_concerns() -> None:
    image = cluster("a1", "b1", "c1")
    image = applied(
        image,
        create(
            image,
            "t",
            assignments={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)},
            configs={"min.insync.replicas": "2"},
        ),
    )
    whole = health_of(image, own_min_insync)
    assert (whole.partitions, whole.leaderless, whole.under_replicated) == (3, 0, 0)
    assert (whole.under_min_isr, whole.at_min_isr) == (0, 0)
    assert whole.leaders == {1: 1, 2: 1, 3: 1}
    assert whole.replicas == {1: 3, 2: 3, 3: 3}
    without_one = health_of(fenced(image, 1), own_min_insync)
    assert (without_one.under_replicated, without_one.at_min_isr) == (3, 3)
    assert (without_one.leaderless, without_one.under_min_isr) == (0, 0)
    assert without_one.leaders == {2: 2, 3: 1}
    least = create(image, "least", assignments={0: (1, 2)}, configs={"min.insync.replicas": "3"})
    assert health_of(applied(image, least), own_min_insync).at_min_isr == 1  # as many as it has
    without_two = health_of(fenced(fenced(image, 1), 2), own_min_insync)
    assert (without_two.under_min_isr, without_two.leaders) == (3, {3: 3})
    without_all = health_of(fenced(fenced(fenced(image, 1), 2), 3), own_min_insync)
    assert (without_all.leaderless, without_all.leaders) == (3, {})

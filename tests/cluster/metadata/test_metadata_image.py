"""Questions that others put to an image."""

from dataclasses import replace
from uuid import UUID

import pytest

from bradbury.cluster.metadata.metadata_image import (
    NO_LEADER,
    MetadataImage,
    NodeImage,
    PartitionImage,
    TopicImage,
)

NODE = NodeImage(1, "d", "life", ("broker",), "h", 1, None, 5)
LED = PartitionImage((1, 2), (1, 2), 1, 0, 0)
IMAGE = MetadataImage(
    nodes={1: NODE, 2: replace(NODE, node_id=2, fenced=True)},
    topics={
        "t": TopicImage(
            UUID(int=1),
            "t",
            (LED, replace(LED, leader=2), replace(LED, leader=NO_LEADER), replace(LED, leader=3)),
        )
    },
)


def test_a_live_leader_is_in_the_image_and_not_fenced() -> None:
    assert IMAGE.live_leader("t", 0) == 1
    assert IMAGE.live_leader("t", 1) is None, "fenced"
    assert IMAGE.live_leader("t", 2) is None, "no leader"
    assert IMAGE.live_leader("t", 3) is None, "a node that was removed"


@pytest.mark.parametrize(("topic", "partition"), [("t", 4), ("t", -1), ("u", 0)])
def test_what_does_not_exist_has_no_live_leader(topic: str, partition: int) -> None:
    assert IMAGE.live_leader(topic, partition) is None

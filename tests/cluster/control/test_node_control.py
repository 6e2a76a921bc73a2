"""When is a node forgotten?"""

from dataclasses import replace

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.node_control import UnregisterBroker
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.errors import BrokerIdNotRegistered, InvalidRequest
from tests.support.metadata import applied, cluster, create, decide, registration


def forgotten(image: MetadataImage, node: int) -> MetadataImage:
    records, _ = decide(image, UnregisterBroker(node_id=node))
    return applied(image, records)


def fenced(image: MetadataImage, node: int) -> MetadataImage:
    return applied(image, controller_state.fence_node(image, node, fenced=True))


def test_a_node_that_is_gone_and_has_nothing_is_forgotten_and_its_id_never_given_again() -> None:
    image = forgotten(fenced(cluster("a1", "b1"), 2), 2)
    assert set(image.nodes) == {1}
    rebuilt = MetadataImage().apply(image.to_records(), offset=image.offset)
    for each in (image, rebuilt):
        node_id, _ = controller_state.register_node(each, registration("c1"))
        assert node_id == 3


@pytest.mark.parametrize("reason", ["in service", "copy of the metadata", "have a replica"])
def test_a_node_that_is_needed_is_not(reason: str) -> None:
    image = cluster("a1")
    voting = replace(registration("b1"), metadata_directory_id="v")
    image = applied(image, controller_state.register_node(image, voting)[1])
    if reason == "have a replica":
        image = applied(image, create(image, "t", assignments={0: (1,)}))
    node = 2 if reason == "copy of the metadata" else 1
    if reason != "in service":
        image = fenced(image, node)
    with pytest.raises(InvalidRequest, match=reason):
        decide(image, UnregisterBroker(node_id=node))


def test_a_node_that_nobody_knows_is_an_error_unless_the_lost_try_forgot_it() -> None:
    image = cluster("a1")
    with pytest.raises(BrokerIdNotRegistered):
        decide(image, UnregisterBroker(node_id=7))
    assert decide(image, UnregisterBroker(node_id=7, is_repeated=True)) == ([], None)

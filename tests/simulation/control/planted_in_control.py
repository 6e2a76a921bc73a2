"""Planted faults for the world of the controller's decisions; see control_world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.cluster.control import (
    controller_state,
    partition_control,
    reassignment,
    rebalance,
    topic_control,
)
from bradbury.cluster.control.automatic_rebalance import RebalanceStep
from bradbury.cluster.control.node_control import UnregisterBroker
from bradbury.cluster.control.rebalance import PartitionMove
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from bradbury.cluster.metadata.metadata_records import RemoveNodeRecord
from bradbury.cluster.partition import replica_placement

from ..planted.fault_registry import Patch, PlantedFault, fault

CONTROL_FAULTS: dict[str, PlantedFault] = {}


@fault(CONTROL_FAULTS)
def a_reassignment_that_is_under_way_begins_once_more(patch: Patch) -> None:
    """As once in shipped code: another partition epoch, which refuses what the leader asks for."""
    original = reassignment.begun

    def begun(partition: PartitionImage, wanted: tuple[int, ...]) -> PartitionImage:
        return replace(original(partition, wanted))

    patch(reassignment, "begun", begun)


@fault(CONTROL_FAULTS)
def replicas_that_are_to_go_count(patch: Patch) -> None:
    """As once in shipped code: a second look, while replicas move, moves more of them."""
    original = rebalance.plan

    def plan(image: MetadataImage) -> list[PartitionMove]:
        topics = {
            name: replace(
                topic,
                partitions=tuple(replace(each, removing=()) for each in topic.partitions),
            )
            for name, topic in image.topics.items()
        }
        return original(replace(image, topics=topics))

    patch(rebalance, "plan", plan)


@fault(CONTROL_FAULTS)
def a_node_with_replicas_is_taken_out(patch: Patch) -> None:
    def decide(request: UnregisterBroker, image: MetadataImage, rules: Any) -> Any:
        node = image.nodes.get(request.node_id)
        if node is None or not node.fenced:
            return [], None
        return [RemoveNodeRecord(node_id=request.node_id)], None

    patch(UnregisterBroker, "decide", decide)


@fault(CONTROL_FAULTS)
def the_rate_of_moves_is_never_lifted(patch: Patch) -> None:
    patch(RebalanceStep, "_lifted", lambda step, image, rules: [])


@fault(CONTROL_FAULTS)
def two_replicas_are_on_one_machine(patch: Patch) -> None:
    patch(replica_placement, "_on_new_machine", lambda node, chosen: node not in chosen)
    patch(replica_placement, "_in_new_rack", lambda node, chosen: node not in chosen)
    patch(topic_control, "check_replicas", lambda ids, nodes, where: None)


@fault(CONTROL_FAULTS)
def a_node_with_a_new_disk_keeps_its_place(patch: Patch) -> None:
    """In the ISR: what it had is gone."""
    original = controller_state._follow_change

    def follow_change(*arguments: Any, **how: Any) -> Any:
        return original(*arguments, **how | {"has_all_data": True})

    patch(controller_state, "_follow_change", follow_change)


@fault(CONTROL_FAULTS)
def partitions_can_be_added_where_coordinators_are(patch: Patch) -> None:
    """Their number says who coordinates a group."""
    original = partition_control.create_partitions

    def create_partitions(image: MetadataImage, wanted: Any, **how: Any) -> Any:
        topic = image.topics.get(wanted.topic)
        if topic is None or not topic.is_internal or wanted.total <= len(topic.partitions):
            return original(image, wanted, **how)
        named = replace(topic, name="no longer internal")
        return original(
            replace(image, topics={named.name: named}), wanted._replace(topic=named.name), **how
        )

    patch(partition_control, "create_partitions", create_partitions)

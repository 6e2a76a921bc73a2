"""What must hold of what the controller decides.

of an image    leaders are in the ISR and in service, the ISR is, too; ISR and ELR are disjoint
               replicas; replicas are on machines of their own; names, ids and rules are unique
of a change    epochs only grow, with each new leader and each replica that goes; partitions
               stay; nobody joins an ISR but by its leader, by an unclean election, or eligible
of an answer   where everything is refused nothing changes
of a repeat    what was done is not done again
of a replay    all records from the beginning, and a snapshot, give the image
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bradbury.cluster.control.access.acl_control import CreateAcls, DeleteAcls
from bradbury.cluster.control.client_quota_control import AlterClientQuotas
from bradbury.cluster.control.config_control import AlterConfigs
from bradbury.cluster.control.controller_request import ConfigRules, ControllerRequest
from bradbury.cluster.control.node_control import UnregisterBroker
from bradbury.cluster.control.offline_replicas import RemoveOfflineReplicas
from bradbury.cluster.control.partition_control import CreatePartitions, PeriodicLeaderElection
from bradbury.cluster.control.reassignment import AlterPartitionReassignments
from bradbury.cluster.control.rebalance import Rebalance
from bradbury.cluster.control.topic_control import CreateTopics, DeleteTopics
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from bradbury.cluster.metadata.metadata_records import (
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from bradbury.cluster.quorum.metadata_snapshot import decode_snapshot, encode_snapshot
from bradbury.controller.controller_calls import Change, as_repeated
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaError

REPEATABLE = (
    CreateTopics,
    DeleteTopics,
    CreatePartitions,
    AlterConfigs,
    UnregisterBroker,
    CreateAcls,
    DeleteAcls,
    AlterClientQuotas,
    AlterPartitionReassignments,
    RemoveOfflineReplicas,
    PeriodicLeaderElection,
    Rebalance,
)
"""Requests that change nothing when they come a second time."""


def check_image(image: MetadataImage) -> None:
    live = {node.node_id for node in image.live_nodes()}
    assert image.next_node_id > max(image.nodes, default=0)
    directories = [node.directory_id for node in image.nodes.values()]
    assert len(set(directories)) == len(directories)
    assert len(set(image.acls.values())) == len(image.acls)
    assert {topic.topic_id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    for topic in image.topics.values():
        factors = Counter(len(each.replicas) - len(each.adding) for each in topic.partitions)
        assert topic.partitions, topic.name
        assert min(factors) >= 1, topic
        for partition in topic.partitions:
            replicas, isr, elr = {*partition.replicas}, {*partition.isr}, {*partition.elr}
            assert len(replicas) == len(partition.replicas) >= 1
            assert len(isr) == len(partition.isr) and len(elr) == len(partition.elr)
            assert isr <= replicas and elr <= replicas - isr, partition
            assert isr <= live, partition
            assert partition.leader == NO_LEADER or partition.leader in isr, partition
            assert bool(isr) == (partition.leader != NO_LEADER), partition
            assert {*partition.adding, *partition.removing} <= replicas, partition
            assert {*partition.adding}.isdisjoint(partition.removing), partition
            assert replicas <= image.nodes.keys(), partition
            staying = replicas - {*partition.removing}
            machines = {image.nodes[each].machine_name for each in staying}
            assert len(machines) == len(staying), partition


def check_step(before: MetadataImage, after: MetadataImage, *, joins: bool) -> None:
    """joins: a leader has asked for an ISR."""
    assert after.next_node_id >= before.next_node_id
    assert after.next_producer_id >= before.next_producer_id
    for topic_id, name in before.topic_names.items():
        topic, now = before.topics[name], after.topic_by_id(topic_id)
        if now is None:
            assert not topic.is_internal, name
            continue
        assert len(now.partitions) >= len(topic.partitions), name
        assert len(now.partitions) == len(topic.partitions) or not topic.is_internal, name
        for old, new in zip(topic.partitions, now.partitions, strict=False):
            _check_partition(old, new, joins=joins)
    for each in before.topics.keys() & after.topics_deleted_since(before):
        topic = after.topics.get(each)
        assert topic is None or topic.topic_id != before.topics[each].topic_id


def _check_partition(old: PartitionImage, new: PartitionImage, *, joins: bool) -> None:
    if new == old:
        return
    change = f"{old}\n{new}"
    assert new.partition_epoch > old.partition_epoch, change
    assert new.leader_epoch >= old.leader_epoch, change
    if new.leader != old.leader or not {*old.replicas} <= {*new.replicas}:
        assert new.leader_epoch > old.leader_epoch, change
    joined = {*new.isr} - {*old.isr} - {*old.elr}
    if joined and not joins:  # who may lack something leads alone, and says so
        assert new.isr == (new.leader,) and new.recovering, change
    assert {*new.elr} <= {*old.isr, *old.elr}, change


def check_answer(answer: Any, records: Sequence[MetadataRecord]) -> Iterator[str]:
    """Names of the errors in it."""
    codes = [*_codes(answer)]
    errors = [code for code in codes if code]
    if codes and len(errors) == len(codes):
        assert not records, (answer, records)
    return (ErrorCode(code).name for code in errors)


def _codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, Mapping):
        answer = tuple(answer.values())
    if isinstance(answer, tuple):
        if (code := getattr(answer, "code", None)) is not None:
            yield int(code)
            return
        for each in answer:
            yield from _codes(each)


def check_repeat(request: ControllerRequest[Any], image: MetadataImage, rules: ConfigRules) -> None:
    if not isinstance(request, REPEATABLE):
        return
    try:
        repeated = as_repeated(Change(request, timeout_ms=1_000)).request  # type: ignore[attr-defined]
        records, answer = repeated.decide(image, rules)
    except KafkaError:
        return
    assert not records, (request, answer, records)


def same_by_replay(history: Sequence[MetadataRecord], image: MetadataImage) -> None:
    values = [encode_metadata_record(record) for record in history]
    replayed = MetadataImage().apply(map(decode_metadata_record, values), offset=len(values))
    assert _shown(replayed) == _shown(image)
    restored = decode_snapshot(encode_snapshot(image, now_ms=1))
    assert _shown(restored) == _shown(image)


def _shown(image: MetadataImage) -> list[Any]:
    return [image.offset, sorted(map(encode_metadata_record, image.to_records()))]

"""What is not as it should be when a simulated cluster comes to rest; None: everything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.groups.classic.group_state import GroupState
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..clients.simulated_members import SHARED_PARTITIONS
from .simulated_replica import SimulatedReplica, rotten_batches

if TYPE_CHECKING:
    from ..clients.simulated_committed_reader import CommittedReader
    from ..clients.simulated_transactional_clients import TransactionalProducer
    from .simulated_cluster import SimulatedCluster

Reason = tuple[str, TopicPartitionPair | None]


def counted_on_offline(cluster: SimulatedCluster) -> Reason | None:
    """What a living node has in a failed directory, while another one in sync could serve it
    (KIP-858).
    """
    offline = {
        node.node_id: frozenset(node.logs.offline)
        for node in cluster.nodes.values()
        if node.process.is_up and node.disk.failing
    }
    if not any(offline.values()):
        return None
    if cluster.current is None or not cluster.current.is_active:
        return "there is no controller", None
    for node_id, partitions in offline.items():
        for partition_id in sorted(partitions):
            state = cluster.current.image.partition(*partition_id)
            if state is None or node_id not in state.isr:
                continue
            for other in {*state.isr, *state.elr} - {node_id}:
                if (
                    cluster.nodes[other].process.is_up
                    and partition_id in cluster.nodes[other].replicas
                ):
                    return f"node {node_id} has it in a failed directory: {state}", partition_id
    return None


def unsettled(cluster: SimulatedCluster) -> Reason | None:
    """What is not as it should be at rest."""
    if cluster.current is None or not cluster.current.is_active:
        return "there is no controller", None
    image = cluster.current.image
    for partition_id in cluster.all_partitions:
        state = image.partition(*partition_id)
        if state is None:
            return "there is no topic", partition_id
        replicas = state.replicas
        if state.is_reassigned or set(state.isr) != set(replicas) or state.leader not in replicas:
            return f"{state}", partition_id
        leader = cluster.nodes[state.leader].replicas.get(partition_id)
        if leader is None or leader.leader is None:
            return f"node {state.leader} does not lead", partition_id
        end = leader.log.log_end_offset
        for node_id in replicas:
            replica = cluster.nodes[node_id].replicas.get(partition_id)
            if replica is None:
                return f"node {node_id} has no replica", partition_id
            log = replica.log
            if log.log_end_offset != end or log.high_watermark != end:
                return (
                    f"node {node_id} ends at {log.log_end_offset}, high watermark "
                    f"{log.high_watermark}; the leader ends at {end}"
                ), partition_id
            if reason := _unsettled_log(cluster, replica):
                return f"node {node_id}: {reason}", partition_id
        for node_id in cluster.nodes.keys() - {*replicas}:
            if partition_id in cluster.nodes[node_id].replicas:
                return f"node {node_id} still has a replica", partition_id
    if cluster.access is not None and (reason := cluster.access.unsettled):
        return reason, None
    if reason := cluster.drains.unsettled:
        return reason, None
    if reason := cluster.administrator.unsettled:
        return reason, None
    for producer in cluster.producers:
        ledger = cluster.oracle.ledgers[producer.partition_id]
        if producer.acks_all and producer.waiting and not ledger.is_damaged:
            return (
                f"{producer.process.name} cannot write batch {producer.waiting[0].number}"
            ), producer.partition_id
    for old in cluster.old_producers:
        if old.waiting and not cluster.oracle.ledgers[old.partition_id].is_damaged:
            return f"{old.process.name} cannot write {old.waiting[0]}", old.partition_id
    for transactional in cluster.transactional_producers:
        if not transactional.is_at_rest:
            return f"{transactional.process.name} is not at rest", None
        if reason := _unsettled_offset(cluster, transactional):
            return reason, transactional.offsets_partition
    for reader in cluster.committed_readers:
        if reason := _unsettled_reader(cluster, reader, image):
            return reason
    if cluster.operator is not None and (reason := cluster.operator.unsettled):
        return reason, cluster.operator.partition_id
    for number in range(cluster.swarm.groups):
        if reason := _unsettled_group(cluster, f"g{number}", image):
            return reason
    return None


def _unsettled_log(cluster: SimulatedCluster, replica: SimulatedReplica) -> str | None:
    """At rest what rotted is whole again; but nobody has looked at what is written to."""
    if cluster.oracle.ledgers[replica.partition_id].is_damaged:
        return None
    log = replica.log
    if log.damage.ranges:
        return f"it has lost {log.damage.ranges[0]}"
    uncleanable = replica.node.logs.compactor.uncleanable
    if log in uncleanable:
        return uncleanable[log]
    closed = {segment.files.path for segment in log.segments[:-1]}
    for path, batch in rotten_batches(replica):
        if path in closed:
            return f"{batch} in {path} is rotten"
    return None


def _unsettled_offset(cluster: SimulatedCluster, producer: TransactionalProducer) -> str | None:
    """At rest no offset is pending."""
    if not cluster.swarm.offsets_in_transactions or cluster.transaction_oracle.is_damaged(
        producer.offsets_partition
    ):
        return None
    try:
        offset = producer.offset_at_rest
    except KafkaError as error:
        return f"{error!r} for {producer.group_id}"
    return f"T4: {producer.group_id} is pending" if offset is None else None


def _unsettled_reader(
    cluster: SimulatedCluster, reader: CommittedReader, image: MetadataImage
) -> Reason | None:
    """At rest no transaction is open, and who reads what is committed has read it all."""
    state = image.partition(*reader.partition_id)
    assert state is not None
    log = cluster.nodes[state.leader].replicas[reader.partition_id].log
    if log.last_stable_offset != log.high_watermark:
        return f"T4: it is stable only up to {log.last_stable_offset}", reader.partition_id
    if reader.position != log.high_watermark:
        return f"{reader.process.name} has read up to {reader.position}", reader.partition_id
    return None


def _unsettled_group(
    cluster: SimulatedCluster, group_id: str, image: MetadataImage
) -> Reason | None:
    """A group at rest is stable, all its members work, and everything has an owner."""
    members = [each for each in cluster.members if each.group_id == group_id and not each.is_over]
    partition_id = members[0].partition_id
    state = image.partition(*partition_id)
    assert state is not None
    try:
        shard = cluster.nodes[state.leader].groups.shard_of(group_id)
    except KafkaError as error:
        return f"{error!r} for {group_id}", partition_id
    group = shard.coordinator.groups.get(group_id)
    if group is None or group.metadata.state is not GroupState.STABLE:
        return f"{group_id} is {None if group is None else group.metadata.state}", partition_id
    names = {each.member_id for each in group.metadata.members}
    if names != {each.member_id for each in members}:
        return f"{group_id} has the members {sorted(names)}", partition_id
    owned = sorted(partition for each in members for partition in each.owned or ())
    if owned != list(range(SHARED_PARTITIONS)):
        return f"of {group_id} {owned} have owners", partition_id
    if not shard.is_idle:
        return f"{group_id} has commits on their way", partition_id
    return None

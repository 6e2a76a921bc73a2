"""Leader and ISR of a partition after its nodes, ISR or replicas change: one pure function.

    isr   replicas that have all acknowledged records; the leader is one of them
    elr   eligible leader replicas (KIP-966): they left the ISR when it was or became less than
          min.insync.replicas, so the high watermark did not advance and they have all of them, too
    last known leader   the leader before there was none; leads again if isr and elr are empty

Invariants: a leader is in the ISR; isr and elr are disjoint parts of the replicas; every
change has a greater partition epoch, every new leader a greater leader epoch; so has a new
incarnation of the old leader, and the removal of a replica, which may not have applied it. A
replica outside of isr and elr leads only if no other replica can have more records (the last known
leader), or in an unclean election; `recovering` then says that records may be missing.
Source: apache/kafka metadata/.../controller/PartitionChangeBuilder.java, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ..metadata.metadata_image import NO_LEADER, PartitionImage


def next_partition(
    partition: PartitionImage,
    *,
    is_active: Callable[[int], bool],
    min_insync_replicas: int,
    isr: Sequence[int] | None = None,
    lost: Collection[int] = (),
    begins_anew: int | None = None,
    prefers_first: bool = False,
    is_unclean: bool = False,
) -> PartitionImage:
    """The partition after the change; the same object if nothing changes.

    Args:
        partition: as it is.
        is_active: whether a node is in service.
        min_insync_replicas: of its topic.
        isr: the ISR that the leader proposes; None: the present one.
        lost: nodes that were registered again and may have lost data.
        begins_anew: a node with a new incarnation; if it leads, then in a new epoch.
        prefers_first: the first replica is to lead, if it can.
        is_unclean: any active replica may lead if no eligible one can.
    """
    target = [node for node in isr or partition.isr if node not in lost and is_active(node)]
    replicas = partition.replicas
    is_complete = _is_reassignment_complete(partition, target)
    if is_complete:
        replicas = tuple(node for node in replicas if node not in partition.removing)
        target = [node for node in target if node not in partition.removing]
    eligible: list[int] = []
    if len(target) < min(min_insync_replicas, len(replicas)):
        known = {*partition.elr, *partition.isr} & {*replicas} - {*target, *lost}
        eligible = [node for node in replicas if node in known]
    recovering = partition.recovering
    leader = partition.leader if partition.leader in target else NO_LEADER
    if leader == NO_LEADER or (prefers_first and replicas[0] in target):
        leader = next((node for node in replicas if node in target), NO_LEADER)
    if leader == NO_LEADER:
        leader = next((node for node in eligible if is_active(node)), NO_LEADER)
    last = partition.last_known_leader if partition.leader == NO_LEADER else partition.leader
    if leader == NO_LEADER and not eligible and last in replicas and is_active(last):
        leader, recovering = last, True
    if leader == NO_LEADER and is_unclean:
        leader = next((node for node in replicas if is_active(node)), NO_LEADER)
        if leader != NO_LEADER:
            eligible, recovering = [], True
    if leader != NO_LEADER and leader not in target:
        target = [leader]
        eligible = [node for node in eligible if node != leader]
        if min(min_insync_replicas, len(replicas)) <= 1:
            eligible = []
    changed = replace(
        partition,
        replicas=replicas,
        adding=() if is_complete else partition.adding,
        removing=() if is_complete else partition.removing,
        isr=tuple(target),
        elr=tuple(eligible),
        leader=leader,
        last_known_leader=last if leader == NO_LEADER else NO_LEADER,
        recovering=recovering,
    )
    is_new_life = begins_anew is not None and begins_anew == leader
    if changed == partition and not is_new_life:
        return partition
    return replace(
        changed,
        leader_epoch=partition.leader_epoch
        + (leader != partition.leader or is_new_life or replicas != partition.replicas),
        partition_epoch=partition.partition_epoch + 1,
    )


def _is_reassignment_complete(partition: PartitionImage, insync: Collection[int]) -> bool:
    """Whether all replicas that stay are in sync. With fewer, removing the others could lose
    records that min.insync.replicas protects. Source: PartitionReassignmentReplicas.java.
    """
    staying = {*partition.replicas} - {*partition.removing}
    return partition.is_reassigned and bool(staying) and staying <= {*insync}

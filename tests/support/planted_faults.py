"""Mistakes that somebody could make, planted one at a time: does the simulation find them?

Each is a function that puts a wrong piece in the place of a right one, in the pure code or in how
the simulation joins it, and the kind of cluster in which it would show. Nothing of this is in the
product. `planted` undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from bradbury.cluster import alter_partition, controller_state
from bradbury.cluster.follower_state import Truncate
from bradbury.cluster.leader_state import LeaderState
from bradbury.cluster.metadata_image import PartitionImage
from bradbury.cluster.metadata_quorum import MetadataQuorum
from bradbury.cluster.partition_change import next_partition
from bradbury.protocol.errors import InvalidUpdateVersion
from bradbury.storage.log_directory import LogDirectory
from bradbury.storage.log_upkeep import LogUpkeep
from bradbury.storage.partition_log import PartitionLog
from bradbury.storage.producer_state import ProducerState

from . import (
    simulated_clients,
    simulated_fetcher,
    simulated_voter,
)
from .simulated_controller import SimulatedController
from .simulated_fetcher import Fetcher
from .simulated_network import LOST
from .simulated_node import SimulatedInsync, SimulatedNode
from .simulated_replica import SimulatedReplica
from .simulated_voter import SimulatedVoter

Patch = Callable[..., Any]


@dataclass(frozen=True)
class PlantedFault:
    """`seen_by`: settings of a Swarm without which it cannot show, or hardly."""

    name: str
    says: str
    plant: Callable[[Patch], None]
    seen_by: Mapping[str, Any] = field(default_factory=dict)


FAULTS: dict[str, PlantedFault] = {}


def fault(**seen_by: Any) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.replace("_", " ")
        FAULTS[name] = PlantedFault(name, plant.__doc__ or "", plant, seen_by)
        return plant

    return register


@contextmanager
def planted(name: str) -> Iterator[None]:
    patches: list[Any] = []

    def patch(owner: object, attribute: str, value: object) -> None:
        one = mock.patch.object(owner, attribute, value)
        one.start()
        patches.append(one)

    try:
        FAULTS[name].plant(patch)
        yield
    finally:
        for one in reversed(patches):
            one.stop()


# --- the leader ----------------------------------------------------------------------------------


def _least_end(leader: LeaderState, nodes: Sequence[int]) -> bool:
    ends = [leader.followers[node].log_end_offset for node in nodes if node in leader.followers]
    end = min([leader._log_end_offset, *ends])
    if end <= leader.high_watermark:
        return False
    leader.high_watermark = end
    return True


@fault(kinds=("kill", "pause", "group"), min_insync=2)
def high_watermark_below_min_insync(patch: Patch) -> None:
    """It moves although fewer than min.insync.replicas are in sync (before KIP-966)."""
    patch(LeaderState, "_advance", lambda leader: _least_end(leader, sorted(leader._maximal_isr)))


@fault(on_expand=0.5, kinds=("kill", "pause", "group"))
def joins_without_the_epochs_start(patch: Patch) -> None:
    """A follower joins the ISR at the high watermark, before it has what the epoch began with."""
    _join_from(patch, lambda leader: leader.high_watermark)


@fault(kinds=("kill", "pause"))
def joins_from_anywhere(patch: Patch) -> None:
    """A follower joins the ISR as soon as it fetches."""
    _join_from(patch, lambda leader: 0)


def _join_from(patch: Patch, least: Callable[[LeaderState], int]) -> None:
    def is_candidate(leader: LeaderState, node_id: int) -> bool:
        return (
            node_id not in leader._isr
            and leader._proposed is None
            and leader.followers[node_id].log_end_offset >= least(leader)
        )

    original = LeaderState.propose

    def propose(leader: LeaderState, **rest: Any) -> Any:
        kept = leader.high_watermark, leader.start_offset
        leader.high_watermark = leader.start_offset = least(leader)
        try:
            return original(leader, **rest)
        finally:
            leader.high_watermark, leader.start_offset = kept

    patch(LeaderState, "is_candidate", is_candidate)
    patch(LeaderState, "propose", propose)


@fault(on_expand=0.5, kinds=("kill", "pause"))
def a_proposed_member_is_not_waited_for(patch: Patch) -> None:
    """Whoever is about to join the ISR counts only once the controller has answered."""
    patch(LeaderState, "_maximal_isr", property(lambda leader: leader._isr))


@fault(kinds=("kill", "pause", "group", "cut"))
def shrinks_before_the_controller_agrees(patch: Patch) -> None:
    """Whoever is about to leave the ISR no longer counts."""
    original = LeaderState.propose

    def propose(leader: LeaderState, **rest: Any) -> Any:
        found = original(leader, **rest)
        if found is not None:
            leader._isr = frozenset(node for node, _ in found)
            leader._advance()
        return found

    patch(LeaderState, "propose", propose)


@fault(lose_alter_answer=0.4, on_expand=0.5, kinds=("kill", "pause"))
def a_lost_answer_counts_as_no(patch: Patch) -> None:
    """A proposal of which nothing was heard is forgotten, though it may have been accepted."""
    original = SimulatedInsync._ask

    def ask(insync: SimulatedInsync, proposals: Any) -> None:
        call = insync._node.cluster.network.call

        def forgetting(source: Any, target: Any, handle: Any, answer: Any, **rest: Any) -> None:
            def arrive(result: Any) -> None:
                if result is LOST:
                    for replica, _ in proposals:
                        replica.on_isr_refused()
                    insync._is_asking = False
                    insync._look()
                else:
                    answer(result)

            call(source, target, handle, arrive, **rest)

        with mock.patch.object(type(insync._node.cluster.network), "call", _method(forgetting)):
            original(insync, proposals)

    patch(SimulatedInsync, "_ask", ask)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *arguments, **rest: function(*arguments, **rest)


@fault(late=0.2, ordered=False, repeat=0.05, kinds=("kill", "pause"), fault_every_ms=150)
def an_older_isr_is_believed(patch: Patch) -> None:
    """The leader takes whatever ISR it hears of last, however old."""

    def on_isr(leader: LeaderState, isr: Sequence[int], partition_epoch: int) -> bool:
        leader.partition_epoch = partition_epoch
        leader._isr = frozenset(isr)
        leader._proposed = None
        return leader._advance()

    patch(LeaderState, "on_isr", on_isr)


@fault(kinds=("kill", "pause"))
def a_majority_is_enough(patch: Patch) -> None:
    """The high watermark does not wait for the slowest in sync."""

    def advance(leader: LeaderState) -> bool:
        ends = sorted(
            (
                leader._log_end_offset
                if node == leader._node_id
                else leader.followers[node].log_end_offset
                for node in leader._maximal_isr
            ),
            reverse=True,
        )
        end = ends[len(ends) // 2]
        if not leader.has_enough_insync or end <= leader.high_watermark:
            return False
        leader.high_watermark = end
        return True

    patch(LeaderState, "_advance", advance)


@fault(kinds=("kill", "pause"))
def followers_are_trusted_before_they_ask(patch: Patch) -> None:
    """A new leader takes it that everybody in sync has what it has."""
    original = LeaderState.__init__

    def begin(leader: LeaderState, *arguments: Any, **rest: Any) -> None:
        original(leader, *arguments, **rest)
        for node in leader._isr & leader.followers.keys():
            leader.followers[node].log_end_offset = leader.start_offset

    patch(LeaderState, "__init__", begin)


@fault(kinds=("kill", "pause"))
def a_new_leader_commits_all_it_has(patch: Patch) -> None:
    """The high watermark of a new leader is its log's end."""
    original = SimulatedReplica.become_leader

    def become_leader(replica: SimulatedReplica, state: PartitionImage) -> None:
        replica.log.high_watermark = replica.log.log_end_offset
        original(replica, state)

    patch(SimulatedReplica, "become_leader", become_leader)


@fault(kinds=("pause", "group", "cut"), session_ms=300, fault_every_ms=150, fsync_ms=10, nodes=3)
def leads_on_while_the_next_epoch_is_written(patch: Patch) -> None:
    """Records of the former epoch are appended where the new one is said to begin."""
    patch(SimulatedNode, "resign_before", lambda node, partition_id, leader_epoch: None)


# --- clients -------------------------------------------------------------------------------------


@fault(kinds=("kill", "pause"))
def consumers_read_to_the_end(patch: Patch) -> None:
    """Not only below the high watermark."""
    patch(
        simulated_clients,
        "read_for_consumer",
        lambda log, position: simulated_clients.read_bytes(
            log, position, log.log_end_offset, 4_000
        ),
    )


@fault(kinds=("kill", "pause", "cut"), loss=0.1)
def a_retry_is_acknowledged_at_once(patch: Patch) -> None:
    """A duplicate is answered before the batch that it repeats is committed."""
    original = SimulatedReplica.produce

    def produce(
        replica: SimulatedReplica, batch: bytearray, *, acks_all: bool, answer: Any
    ) -> None:
        end = replica.log.log_end_offset
        given: list[Any] = []
        original(replica, batch, acks_all=acks_all, answer=given.append)
        if not given and replica.log.log_end_offset == end:
            answer(replica._uncommitted.pop().last_offset)
        elif given:
            answer(given[0])
        else:
            last = replica._uncommitted.pop()
            base = last.last_offset - simulated_clients.batches_of(bytes(batch))[0].next_offset + 1

            def committed(error: Any) -> None:
                answer(
                    simulated_clients.batches_of(bytes(batch))[0].base_offset
                    if not error
                    else error
                )

            del base
            replica._uncommitted.append(last._replace(answer=committed))

    patch(SimulatedReplica, "produce", produce)


@fault(kinds=("kill", "pause"))
def acknowledged_when_appended(patch: Patch) -> None:
    """acks=all is answered as acks=1."""
    original = SimulatedReplica.produce

    def produce(
        replica: SimulatedReplica, batch: bytearray, *, acks_all: bool, answer: Any
    ) -> None:
        original(replica, batch, acks_all=False, answer=answer)

    patch(SimulatedReplica, "produce", produce)


@fault(kinds=("kill", "pause", "cut"), loss=0.1)
def retries_are_not_recognised(patch: Patch) -> None:
    """Every batch of an idempotent producer is appended."""
    patch(ProducerState, "check", lambda state, header: None)


@fault(kinds=("pause", "group"), loss=0.1, fault_every_ms=150)
def producers_survive_a_truncation(patch: Patch) -> None:
    """A batch that was truncated is taken for written."""
    original = LogUpkeep._forget_from

    def forget_from(log: LogUpkeep, offset: int) -> None:
        producers = log._producers
        original(log, offset)
        log._producers = producers

    patch(LogUpkeep, "_forget_from", forget_from)


# --- the disk ------------------------------------------------------------------------------------

DURABLE = {"flushes": True, "kinds": ("power", "kill"), "fsync_ms": 10}


@fault(**DURABLE)
def the_leader_counts_what_is_not_synced(patch: Patch) -> None:
    """With flush.messages=1 its own copy counts before the fsync."""
    original = SimulatedReplica._advance

    def advance(replica: SimulatedReplica) -> None:
        if replica.leader is not None:
            end = replica.log.log_end_offset
            replica.claim(end)
            if replica.leader.on_local_append(end):
                replica._commit()
        original(replica)

    patch(SimulatedReplica, "_advance", advance)


@fault(**DURABLE)
def a_follower_claims_what_is_not_synced(patch: Patch) -> None:
    """With flush.messages=1 it asks on before the fsync."""
    original = Fetcher._flush

    def flush(fetcher: Fetcher, replicas: list[SimulatedReplica]) -> None:
        original(fetcher, [])
        for replica in replicas:
            replica.flush(lambda: None)

    patch(Fetcher, "_flush", flush)


@fault(**DURABLE)
def the_directory_is_not_synced(patch: Patch) -> None:
    """The name of a new segment does not survive a power loss."""
    original = LogUpkeep.begin_flush

    def begin_flush(log: LogUpkeep) -> Any:
        log._is_directory_dirty = False
        return original(log)

    patch(LogUpkeep, "begin_flush", begin_flush)


@fault(
    kinds=("power", "kill", "pause", "group"),
    checkpoint_ms=300,
    segment_bytes=400,
    fault_every_ms=150,
    min_insync=2,
)
def the_recovery_point_stays_above_a_truncation(patch: Patch) -> None:
    """The checkpoint is not lowered when records are truncated."""
    patch(
        LogDirectory,
        "truncate_log",
        lambda directory, topic, partition, offset: directory.logs[topic, partition].truncate_to(
            offset
        ),
    )


@fault(kinds=("power", "stop", "pause", "cut"), checkpoint_ms=300, fault_every_ms=150, min_insync=2)
def a_truncation_does_not_reach_the_disk(patch: Patch) -> None:
    """As this log once did: after a power loss dropped records are back, as if committed."""
    patch(LogUpkeep, "_sync_truncation", lambda log: None)


# --- followers -----------------------------------------------------------------------------------


@fault(kinds=("kill", "pause", "group"))
def followers_truncate_to_the_high_watermark(patch: Patch) -> None:
    """As before KIP-101."""
    original = SimulatedNode._follow

    def follow(node: SimulatedNode, followed: Any, leader_id: int) -> None:
        log = followed.replica.log
        if log.log_end_offset > log.high_watermark:
            node.truncate(followed.replica, log.high_watermark)
        original(node, followed, leader_id)

    patch(SimulatedNode, "_follow", follow)


@fault(kinds=("kill", "pause", "group", "cut"))
def followers_do_not_truncate(patch: Patch) -> None:
    """The leader does not look where the logs part."""
    original = SimulatedReplica.on_follower_fetch

    def on_follower_fetch(replica: SimulatedReplica, fetch: Any) -> Any:
        return original(replica, fetch._replace(last_fetched_epoch=-1))

    patch(SimulatedReplica, "on_follower_fetch", on_follower_fetch)


@fault(kinds=("kill", "pause", "group", "cut"), fault_every_ms=150)
def the_own_end_of_an_epoch_is_not_looked_at(patch: Patch) -> None:
    """A follower truncates to where the leader's epoch ended, wherever its own did (KIP-279)."""
    patch(
        simulated_fetcher,
        "on_diverging",
        lambda log, epoch, end: Truncate(min(end, log.log_end_offset)),
    )


@fault(kinds=("kill", "pause", "group", "cut"))
def a_parted_log_counts_as_having_all(patch: Patch) -> None:
    """A fetch offset counts before it is known whether the logs are the same up to it."""
    original = SimulatedReplica.on_follower_fetch

    def on_follower_fetch(replica: SimulatedReplica, fetch: Any) -> Any:
        leader, end = replica.leader, replica.log.log_end_offset
        if (
            leader is not None
            and fetch.node_id in leader.followers
            and leader.on_fetch(
                fetch.node_id,
                min(fetch.offset, end),
                broker_epoch=fetch.broker_epoch,
                leader_end=end,
                now_ms=replica.node.clock.now_ms,
            )
        ):
            replica._commit()
        return original(replica, fetch)

    patch(SimulatedReplica, "on_follower_fetch", on_follower_fetch)


@fault(late=0.03, ordered=False, kinds=("kill", "pause", "cut"))
def an_old_leader_epoch_may_fetch(patch: Patch) -> None:
    """A fetch of a former epoch is not refused (KIP-320)."""
    original = SimulatedNode.leader_of
    patch(
        SimulatedNode,
        "leader_of",
        lambda node, partition_id, leader_epoch=-1: original(node, partition_id),
    )


@fault(
    late=0.2,
    ordered=False,
    kinds=("power", "disk"),
    min_insync=2,
    outage_ms=100,
    fault_every_ms=150,
)
def an_old_broker_epoch_may_fetch(patch: Patch) -> None:
    """A fetch from before the node was registered anew counts."""
    patch(simulated_fetcher, "check_broker_epoch", lambda leader, node_id, broker_epoch: None)


@fault(kinds=("kill", "pause", "cut"))
def an_epoch_that_goes_on_begins_again(patch: Patch) -> None:
    """As this log once did: see append_as_follower."""
    original = PartitionLog.append_as_follower

    def append_as_follower(log: PartitionLog, batches: bytes, *, now_ms: int) -> None:
        original(log, batches, now_ms=now_ms)
        log._assign_epochs(
            [
                (batch.leader_epoch, batch.base_offset)
                for batch in simulated_clients.batches_of(bytes(batches))
            ]
        )

    patch(PartitionLog, "append_as_follower", append_as_follower)


@fault(kinds=("kill", "pause", "cut"), fault_every_ms=150)
def an_epoch_without_records_stays(patch: Patch) -> None:
    """A truncation at the end of the log leaves the epoch that had begun there."""
    original = LogUpkeep.truncate_to
    patch(
        LogUpkeep,
        "truncate_to",
        lambda log, offset: 0 if offset >= log.log_end_offset else original(log, offset),
    )


@fault(late=0.03, ordered=False, repeat=0.05, kinds=("kill", "pause", "cut"))
def any_answer_is_taken(patch: Patch) -> None:
    """Also one for a position that is no longer ours."""

    def process(fetcher: Fetcher, asked: Any, result: Any) -> None:
        still = {
            partition_id: fetcher.partitions[partition_id].position
            for partition_id in asked
            if partition_id in fetcher.partitions
        }
        original(fetcher, still, result)

    original = Fetcher._process
    patch(Fetcher, "_process", process)


# --- the controller ------------------------------------------------------------------------------


def _in_controller(patch: Patch, decide: Callable[..., PartitionImage]) -> None:
    patch(controller_state, "next_partition", decide)
    patch(alter_partition, "next_partition", decide)


@fault(kinds=("power",), min_insync=2)
def lost_data_is_not_told(patch: Patch) -> None:
    """A node that has lost data stays in ISR and ELR (before KIP-966)."""
    original = controller_state.register_node
    patch(
        controller_state,
        "register_node",
        lambda image, request, **rest: original(image, replace(request, has_all_data=True), **rest),
    )


@fault(kinds=("power", "kill"), min_insync=2, fault_every_ms=150)
def the_loss_is_told_by_one_life_only(patch: Patch) -> None:
    """The token is made anew when the process starts, not when it has been registered."""
    original = SimulatedNode.start

    def start(node: SimulatedNode) -> None:
        original(node)
        node.has_all_data = True

    patch(SimulatedNode, "start", start)


@fault(kinds=("kill",))
def a_restarted_leader_keeps_its_epoch(patch: Patch) -> None:
    """Two lives of a node lead in one epoch."""
    _in_controller(
        patch, lambda *args, **rest: next_partition(*args, **{**rest, "begins_anew": None})
    )


@fault(
    kinds=("power", "kill", "group"),
    min_insync=2,
    nodes=3,
    fault_every_ms=150,
    outage_ms=500,
    session_ms=600,
)
def the_last_in_sync_stays(patch: Patch) -> None:
    """The last member of the ISR stays in it, even if it has lost its data (before KIP-966)."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        lost = [node for node in rest.pop("lost", ()) if partition.isr != (node,)]
        return next_partition(partition, lost=lost, **rest)

    _in_controller(patch, decide)


@fault(kinds=("power", "kill", "group"), min_insync=2, fault_every_ms=150)
def the_eligible_are_kept_for_ever(patch: Patch) -> None:
    """The ELR is not emptied when the ISR is large enough again, and the watermark moves on."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        changed = next_partition(partition, **rest)
        kept = [
            node
            for node in (*partition.elr, *partition.isr)
            if node not in changed.isr and node not in rest.get("lost", ())
        ]
        if changed is partition or not kept:
            return changed
        return replace(changed, elr=tuple(kept))

    _in_controller(patch, decide)


@fault(kinds=("kill", "pause"))
def an_unclean_election(patch: Patch) -> None:
    """Whoever is there leads."""
    _in_controller(
        patch, lambda *args, **rest: next_partition(*args, **{**rest, "is_unclean": True})
    )


@fault(kinds=("kill", "pause"))
def another_leader_in_the_same_epoch(patch: Patch) -> None:
    """The leader epoch does not grow with a new leader."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        changed = next_partition(partition, **rest)
        return replace(changed, leader_epoch=partition.leader_epoch)

    _in_controller(patch, decide)


@fault(kinds=("kill", "pause"))
def the_partition_epoch_stands_still(patch: Patch) -> None:
    """Two states of a partition cannot be told apart."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        changed = next_partition(partition, **rest)
        return replace(changed, partition_epoch=partition.partition_epoch)

    _in_controller(patch, decide)


@fault(kinds=("disk", "power"), on_expand=0.8, late=0.05, ordered=False)
def a_former_life_may_join(patch: Patch) -> None:
    """AlterPartition does not look at broker epochs (before KIP-903)."""
    original = alter_partition._check_eligible

    def check(image: Any, proposed: Any, where: str) -> None:
        isr = tuple(each._replace(broker_epoch=-1) for each in proposed.isr)
        original(image, proposed._replace(isr=isr), where)

    patch(alter_partition, "_check_eligible", check)


@fault(kinds=("kill", "cut", "group"), on_expand=0.8, loss=0.2, session_ms=300, outage_ms=1_200)
def the_fenced_may_join(patch: Patch) -> None:
    """AlterPartition looks at no node at all."""
    patch(alter_partition, "_check_eligible", lambda image, proposed, where: None)
    original = alter_partition.next_partition
    patch(
        alter_partition,
        "next_partition",
        lambda *args, **rest: original(*args, **{**rest, "is_active": lambda node: True}),
    )


@fault(lose_alter_answer=0.3, ordered=False, late=0.2, kinds=("kill", "pause"), on_expand=0.5)
def an_old_partition_epoch_may_alter(patch: Patch) -> None:
    """AlterPartition is carried out whatever state it was decided on."""
    original = alter_partition.AlterPartition._change

    def change(request: Any, image: Any, rules: Any, proposed: Any) -> Any:
        try:
            return original(request, image, rules, proposed)
        except InvalidUpdateVersion:
            topic = image.topic_by_id(proposed.topic_id)
            now = topic.partitions[proposed.partition].partition_epoch
            return original(request, image, rules, proposed._replace(partition_epoch=now))

    patch(alter_partition.AlterPartition, "_change", change)


# --- the metadata log ----------------------------------------------------------------------------

RIVALS = {
    "kinds": ("rival", "pause controller", "controller", "group", "kill"),
    "fault_every_ms": 150,
    "stale_controller": 0.3,
    "nodes": 3,
}


@fault(**RIVALS)
def half_of_the_voters_are_a_majority(patch: Patch) -> None:
    """One of three is enough."""
    patch(MetadataQuorum, "majority", property(lambda quorum: max(1, len(quorum._voters) // 2)))


@fault(**RIVALS)
def the_longest_log_is_adopted(patch: Patch) -> None:
    """Not the one with the greatest epoch."""
    patch(
        MetadataQuorum,
        "best_log",
        lambda quorum: max(
            quorum._promised, key=lambda name: (quorum._promised[name].offset, name)
        ),
    )


@fault(**RIVALS)
def entries_of_former_epochs_are_counted(patch: Patch) -> None:
    """Raft, figure 8."""

    def advance(quorum: MetadataQuorum) -> bool:
        ends = sorted((quorum._acknowledged.get(name, 0) for name in quorum._voters), reverse=True)
        everywhere = ends[quorum.majority - 1]
        if everywhere <= quorum.committed:
            return False
        quorum.committed = everywhere
        return True

    patch(MetadataQuorum, "_advance", advance)


@fault(**{**RIVALS, "on_promises": 0.6})
def a_promise_does_not_survive(patch: Patch) -> None:
    """It is answered before it is on the disk."""
    patch(SimulatedVoter, "keep_promise", lambda voter: None)


@fault(kinds=("power", "rival", "controller"), min_insync=2, fault_every_ms=150, nodes=3)
def a_voter_answers_before_its_fsync(patch: Patch) -> None:
    """A power loss takes what it has acknowledged."""
    patch(SimulatedVoter, "sync", lambda voter: None)


@fault(**RIVALS)
def a_voter_obeys_everybody(patch: Patch) -> None:
    """It has promised the log to a newer controller, and takes the older one's entries."""
    patch(simulated_voter, "on_prepare", lambda promised, asked: asked)
    original = simulated_voter.on_append
    patch(
        simulated_voter,
        "on_append",
        lambda promised, asked, log, **rest: original(asked, asked, log, **rest),
    )


@fault(**RIVALS)
def a_contradicting_suffix_is_kept(patch: Patch) -> None:
    """A voter acknowledges an append whose place is taken by other entries."""
    original = simulated_voter.on_append

    def on_append(promised: Any, asked: Any, log: Any, **rest: Any) -> Any:
        plan = original(promised, asked, log, **rest)
        if getattr(plan, "truncate_to", None) is None:
            return plan
        return plan._replace(truncate_to=None, first_missing=len(rest["entries"]))

    patch(simulated_voter, "on_append", on_append)


@fault(kinds=("disk", "rival", "controller", "group"), min_insync=2, fault_every_ms=150, nodes=3)
def a_replaced_disk_votes(patch: Patch) -> None:
    """An empty voter with the old one's identity."""
    patch(SimulatedNode, "_new_voter", lambda node: SimulatedVoter(f"d{node.node_id}.0"))


@fault(**RIVALS)
def answered_before_it_is_committed(patch: Patch) -> None:
    """The controller applies, publishes and answers what it has only appended."""
    original = SimulatedController._write

    def write(controller: SimulatedController, records: Any, then: Any) -> None:
        original(controller, records, then)
        end, committed = controller._on_committed
        controller._on_committed = (1 << 62), committed
        controller.process.after(0, committed)
        del end

    patch(SimulatedController, "_write", write)


@fault(**RIVALS)
def an_older_controllers_news_are_taken(patch: Patch) -> None:
    """A node does not look at the controller's epoch."""
    original = SimulatedNode._on_update

    def on_update(node: SimulatedNode, result: Any) -> None:
        node._controller_epoch = -1
        original(node, result)

    patch(SimulatedNode, "_on_update", on_update)


# Chance does not find these; tests/simulation/test_known_histories.py does, with the fault planted.
TOLD = {
    "an old leader epoch may fetch": (
        "the epoch of the last record, which each fetch tells, says the same once more"
    ),
    "an old broker epoch may fetch": (
        "a fetch must arrive a whole restart late, and just while its node is let in again"
    ),
    "entries of former epochs are counted": "Raft's figure 8 takes five voters and five controllers",
}
# Nothing in tests/simulation finds these.
MASKED = {
    "any answer is taken": (
        "a fetcher asks one question at a time and truncates only by its answer, so the position "
        "changes in between only with a new leader epoch, which an answer of the old one survives"
    ),
    "the recovery point stays above a truncation": (
        "the segment that holds the recovery point is scanned whole, so it takes a truncation over "
        "several segments, and a power loss before they are closed again; tests/storage sees it"
    ),
}

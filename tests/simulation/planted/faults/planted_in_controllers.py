"""Planted faults of the controller, its quorum and its voters; see planted_faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bradbury.cluster.control import alter_partition, controller_state
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.cluster.partition.partition_change import next_partition
from bradbury.cluster.quorum.metadata_quorum import MetadataQuorum
from bradbury.cluster.quorum.metadata_snapshot import encode_snapshot, end_of
from bradbury.cluster.quorum.voter import Candidate
from bradbury.cluster.quorum.voter_change import VoterChange
from bradbury.controller import metadata_voter
from bradbury.controller.active.change_queue import ChangeQueue
from bradbury.controller.active.quorum_controller import QuorumController
from bradbury.controller.controller_calls import PollMetadata
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.node.controller_finder import ControllerFinder
from bradbury.controller.node.node_lifecycle import NodeLifecycle
from bradbury.controller.voter_files.replicated_log import ReplicatedLog
from bradbury.controller.voter_files.voter_directory import VoterDirectory
from bradbury.protocol.errors import InvalidUpdateVersion
from bradbury.replication.logs.directory_lifecycle import DirectoryLifecycle

from ..fault_registry import Patch, fault

# --- the controller ------------------------------------------------------------------------------


def _in_controller(patch: Patch, decide: Callable[..., PartitionImage]) -> None:
    patch(controller_state, "next_partition", decide)
    patch(alter_partition, "next_partition", decide)


@fault(kinds=("power",), min_insync=2)
def lost_data_is_not_reported(patch: Patch) -> None:
    """A node that has lost data stays in ISR and ELR (before KIP-966)."""
    original = controller_state.register_node
    patch(
        controller_state,
        "register_node",
        lambda image, request, **rest: original(image, replace(request, has_all_data=True), **rest),
    )


@fault(kinds=("disk",), min_insync=2)
def a_new_directory_passes_for_the_old_one(patch: Patch) -> None:
    """The controller believes a node whose directory is another one now."""
    original = controller_state.register_node
    patch(
        controller_state,
        "register_node",
        lambda image, request, **rest: original(
            image,
            replace(request, directory_id=image.nodes[request.node_id].directory_id),
            **rest,
        ),
    )


@fault(kinds=("power", "kill"), min_insync=2, fault_every_ms=150)
def the_loss_is_reported_by_one_process_only(patch: Patch) -> None:
    """The token is created again when the process starts, not when it has been registered."""
    original = DirectoryLifecycle.open

    def open_directories(lifecycle: DirectoryLifecycle, wall_ms: int) -> None:
        original(lifecycle, wall_ms)
        assert lifecycle._token is not None
        lifecycle._token.put()

    patch(DirectoryLifecycle, "open", open_directories)


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
    fault_every_ms=300,
    outage_ms=500,
    session_ms=600,
    lag_ms=200,
)
def the_last_in_sync_stays(patch: Patch) -> None:
    """The last member of the ISR stays in it, even if it has lost its data (before KIP-966)."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        lost = [node for node in rest.pop("lost", ()) if partition.isr != (node,)]
        return next_partition(partition, lost=lost, **rest)

    _in_controller(patch, decide)


@fault(kinds=("power", "kill", "group"), min_insync=2, fault_every_ms=150)
def the_eligible_are_kept_forever(patch: Patch) -> None:
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
    """Two states of a partition look the same."""

    def decide(partition: PartitionImage, **rest: Any) -> PartitionImage:
        changed = next_partition(partition, **rest)
        return replace(changed, partition_epoch=partition.partition_epoch)

    _in_controller(patch, decide)


@fault(kinds=("disk", "power"), on_expand=0.8, repeat=0.1, late=0.1, ordered=False, min_insync=2)
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


@fault(
    lose_alter_answer=0.5,
    ordered=False,
    repeat=0.3,
    late=0.3,
    kinds=("kill", "pause"),
    lag_ms=200,
    min_insync=1,
    session_ms=300,
    outage_ms=300,
    pace_ms=25,
    duration_ms=8_000,
    stale_controller=0.3,
)
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
    patch(MetadataQuorum, "_majority_of", staticmethod(lambda count: max(1, count // 2)))


@fault(**{**RIVALS, "kinds": (*RIVALS["kinds"], "cut", "elect"), "partitions": 3})
def the_longest_log_is_adopted(patch: Patch) -> None:
    """Not the one with the greatest epoch."""
    patch(
        MetadataQuorum,
        "_best",
        lambda quorum: max(quorum._granted, key=lambda name: (quorum._granted[name].offset, name)),
    )


@fault(**RIVALS)
def entries_of_former_epochs_are_counted(patch: Patch) -> None:
    """Raft, figure 8."""

    def advance(quorum: MetadataQuorum) -> bool:
        ends = sorted((quorum.acknowledged.get(name, 0) for name in quorum._voters), reverse=True)
        everywhere = ends[quorum._majority_of(len(quorum.voters)) - 1]
        if everywhere <= quorum.committed:
            return False
        quorum.committed = everywhere
        return True

    patch(MetadataQuorum, "_advance", advance)


@fault(**{**RIVALS, "on_votes": 0.6})
def a_vote_does_not_survive(patch: Patch) -> None:
    """It is answered before it is on the disk."""
    original = VoterDirectory.store
    patch(
        VoterDirectory,
        "store",
        lambda files, vote, voters, **rest: original(files, Candidate(), voters, **rest),
    )


@fault(kinds=("power", "rival", "controller"), min_insync=2, fault_every_ms=150, nodes=3)
def a_voter_answers_before_its_fsync(patch: Patch) -> None:
    """A power loss takes what it has acknowledged."""
    patch(ReplicatedLog, "flush", lambda log: None)


@fault(**RIVALS)
def a_voter_obeys_everybody(patch: Patch) -> None:
    """It has voted for a newer controller, and takes the older one's entries."""
    patch(metadata_voter, "grant_vote", lambda vote, candidate: candidate)
    original = metadata_voter.on_append
    patch(
        metadata_voter,
        "on_append",
        lambda vote, candidate, log, **rest: original(candidate, candidate, log, **rest),
    )


@fault(**RIVALS)
def a_contradicting_suffix_is_kept(patch: Patch) -> None:
    """A voter acknowledges an append whose place is taken by other entries."""
    original = metadata_voter.on_append

    def on_append(vote: Any, candidate: Any, log: Any, **rest: Any) -> Any:
        plan = original(vote, candidate, log, **rest)
        if getattr(plan, "truncate_to", None) is None:
            return plan
        return plan._replace(truncate_to=None, first_missing=len(rest["entries"]))

    patch(metadata_voter, "on_append", on_append)


@fault(kinds=("disk", "rival", "controller", "group"), min_insync=2, fault_every_ms=150, nodes=3)
def a_replaced_disk_votes(patch: Patch) -> None:
    """An empty voter with the old one's identity: it is derived from the name of the machine."""
    original = VoterDirectory.open

    def open_(files: VoterDirectory, *, directory_id: str, now_ms: int) -> Any:
        return original(files, directory_id=f"{directory_id.split('.')[0]}.0", now_ms=now_ms)

    patch(VoterDirectory, "open", open_)


@fault(**RIVALS)
def answered_before_it_is_committed(patch: Patch) -> None:
    """The controller applies, publishes and answers what it has only appended."""
    append = MetadataLeader.append

    def append_next(leader: MetadataLeader, *args: Any, **rest: Any) -> int:
        leader.deadlines.commits_at = None
        return append(leader, *args, **rest)

    patch(MetadataLeader, "committed", property(lambda leader: leader.quorum.end.offset))
    patch(MetadataLeader, "append", append_next)


@fault(**RIVALS)
def an_older_controllers_news_are_taken(patch: Patch) -> None:
    """A node does not look at the controller's epoch, and does not say which one it knows."""
    original = NodeLifecycle._on_update

    def on_update(node: NodeLifecycle, answer: Any, now: Any) -> None:
        node.controller_epoch = -1
        original(node, answer, now)

    answered = ControllerFinder._on_update

    def on_answer(finder: ControllerFinder, request: Any, update: Any, now_ms: int) -> None:
        finder._epoch = -1
        answered(finder, request, update, now_ms)

    looked = QuorumController._poll

    def look(controller: QuorumController, ticket: Any, call: PollMetadata, now: Any) -> None:
        looked(controller, ticket, replace(call, newest_epoch=-1), now)

    patch(QuorumController, "_poll", look)
    patch(NodeLifecycle, "_on_update", on_update)
    patch(ControllerFinder, "_on_update", on_answer)


@fault(**{**RIVALS, "kinds": ("rival",), "stale_controller": 0.9})
def an_idle_leader_asks_nobody(patch: Patch) -> None:
    """A controller with nothing to write does not notice that it was superseded; nor do nodes."""
    looked = QuorumController._poll

    def look(controller: QuorumController, ticket: Any, call: PollMetadata, now: Any) -> None:
        looked(controller, ticket, replace(call, newest_epoch=-1), now)

    begun = MetadataLeader.lead

    def lead(leader: MetadataLeader, holders: Any) -> None:
        times = replace(leader._times, confirm_ms=1 << 40)
        leader._times = leader._replication._times = leader.deadlines._times = times
        begun(leader, holders)

    patch(QuorumController, "_poll", look)
    patch(MetadataLeader, "lead", lead)


# --- who votes -----------------------------------------------------------------------------------

VOTERS = {**RIVALS, "nodes": 5, "voters": 3, "voter_changes": 0.4, "snapshots": 0.05}


@fault(**VOTERS)
def a_new_voter_counts_before_it_has_the_log(patch: Patch) -> None:
    """It passes for one that has everything from the entry on that names it."""
    change, advance = MetadataQuorum.change_voters, MetadataQuorum._advance

    def change_voters(quorum: MetadataQuorum, voters: Any) -> None:
        new = frozenset(voters) - quorum.voters
        change(quorum, voters)
        for name in new:
            quorum.acknowledged[name] = 1 << 60

    def to_the_end(quorum: MetadataQuorum) -> bool:
        is_more = advance(quorum)
        quorum.committed = min(quorum.committed, quorum.end.offset)
        return is_more

    patch(MetadataQuorum, "change_voters", change_voters)
    patch(MetadataQuorum, "_advance", to_the_end)


@fault(**VOTERS)
def two_voters_are_changed_at_once(patch: Patch) -> None:
    """Two take the places of two: a majority of the old ones may meet none of the new."""
    original = VoterChange.voters

    def voters(request: VoterChange, image: Any, *args: Any) -> tuple[str, ...]:
        named = original(request, image, *args)
        others = [each.metadata_directory_id for each in image.nodes.values()]
        others = [name for name in others if name not in named]
        if not (request.is_addition and others and len(named) > 3):
            return named
        return (named[-1], others[0], *named[: len(named) - 3])

    def change_voters(quorum: MetadataQuorum, voters: Any) -> None:
        quorum._voters = frozenset(voters)

    patch(VoterChange, "voters", voters)
    patch(MetadataQuorum, "change_voters", change_voters)


@fault(**{**RIVALS, "snapshots": 0.3})
def a_snapshot_of_what_is_not_committed(patch: Patch) -> None:
    """It stands for the whole log of the controller, not for what a majority has."""

    original = ChangeQueue._begin

    def begin(changes: ChangeQueue, records: Any, *args: Any) -> None:
        original(changes, records, *args)
        assert changes.write is not None
        assert changes._leader is not None
        end_offset, now = changes.write.end_offset, args[-1]
        if end_offset % 4 == 0:
            image = changes.image.apply(records, offset=end_offset)
            data = encode_snapshot(image, now_ms=now.wall_ms)
            changes._leader.compact(end_of(image), data, now)

    patch(ChangeQueue, "_begin", begin)
    patch(MetadataQuorum, "compact", lambda quorum, end: setattr(quorum, "start", end))

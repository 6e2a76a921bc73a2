"""Planted faults of leaders, followers, their logs and their clients; see planted_faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bradbury.actors.replication.hosted_replica import HostedReplica
from bradbury.cluster.control import reassignment
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.cluster.partition import partition_change
from bradbury.cluster.partition.follower_state import Truncate
from bradbury.cluster.partition.leader_state import LeaderState
from bradbury.handlers.records import fetch_reading
from bradbury.replication.effects import RunWork
from bradbury.replication.followers import replica_fetcher
from bradbury.replication.followers.replica_fetcher import ReplicaFetcher
from bradbury.replication.manager import replica_manager
from bradbury.replication.manager.alter_partition_manager import AlterPartitionManager
from bradbury.replication.manager.replica_manager import ReplicaManager
from bradbury.replication.partition import served_replicas
from bradbury.replication.partition.replica import Replica
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.log.log_flush import LogFlushing
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.producers.producer_state import ProducerState

from ...world import simulated_replica
from ..fault_registry import Patch, fault

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


@fault(on_expand=0.5, kinds=("kill", "pause", "group"), nodes=3, partitions=3, session_ms=300)
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

    patch(LeaderState, "_is_candidate", is_candidate)
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


@fault(
    lose_alter_answer=0.4,
    on_expand=0.5,
    kinds=("kill", "pause", "cut", "group"),
    nodes=3,
    min_insync=1,
    lag_ms=200,
    fault_every_ms=150,
)
def a_lost_answer_counts_as_no(patch: Patch) -> None:
    """A proposal without an answer is forgotten, though it may have been accepted."""
    original = AlterPartitionManager.on_failed

    def on_failed(manager: AlterPartitionManager, error: Exception, now_ms: int) -> None:
        original(manager, error, now_ms)
        unanswered, manager._unanswered = manager._unanswered, []
        for replica, _ in unanswered:
            replica.on_isr_refused()

    patch(AlterPartitionManager, "on_failed", on_failed)


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
    original = Replica.become_leader

    def become_leader(replica: Replica, state: PartitionImage, now_ms: int) -> None:
        replica.log.high_watermark = replica.log.log_end_offset
        original(replica, state, now_ms)

    patch(Replica, "become_leader", become_leader)


@fault(kinds=("pause", "group", "cut"), session_ms=300, fault_every_ms=150, fsync_ms=10, nodes=3)
def leads_on_while_the_next_epoch_is_written(patch: Patch) -> None:
    """Records of the former epoch are appended where the new one is said to begin."""

    class BeginEarlier(replica_manager.BeginEpochs):
        def __init__(self, begun: Any) -> None:
            self._ends = [(log, (epoch, log.log_end_offset)) for log, epoch in begun]

        def run(self) -> None:
            for log, begins in self._ends:
                log.local.assign_epochs([begins])

    patch(replica_manager, "BeginEpochs", BeginEarlier)
    patch(ReplicaManager, "_resign_before", lambda replicas, changed: None)


# --- other replicas ------------------------------------------------------------------------------

MOVES = {
    "nodes": 5,
    "min_insync": 2,
    "kinds": ("reassign", "power", "kill"),
    "fault_every_ms": 150,
    "on_adding": 0.3,
}


@fault(**MOVES)
def replicas_go_before_others_are_in_sync(patch: Patch) -> None:
    """A reassignment is complete as soon as one of those who stay is in sync."""
    patch(
        partition_change,
        "_is_reassignment_complete",
        lambda partition, insync: (
            partition.is_reassigned and bool({*insync} - {*partition.removing})
        ),
    )


@fault(**MOVES)
def an_added_replica_stays_in_sync(patch: Patch) -> None:
    """A reassignment that was given up leaves its replicas in the ISR."""
    original = reassignment.given_up

    def given_up(partition: PartitionImage, *rest: Any) -> PartitionImage:
        return replace(original(partition, *rest), isr=partition.isr)

    patch(reassignment, "given_up", given_up)


@fault(**{**MOVES, "kinds": ("reassign", "power", "kill", "stop"), "outage_ms": 600})
def too_few_stay_where_it_is_given_up(patch: Patch) -> None:
    """As this cluster once did, and Kafka does: given up while a single one that stays is in sync."""
    original = reassignment.given_up

    def given_up(partition: PartitionImage, where: str, min_insync: int) -> PartitionImage:
        del min_insync
        return original(partition, where, 1)

    patch(reassignment, "given_up", given_up)


@fault(**{**MOVES, "nodes": 3, "kinds": ("reassign", "disk", "kill", "stop"), "outage_ms": 1_200})
def a_remaining_replica_is_not_waited_for(patch: Patch) -> None:
    """As this cluster once did: a reassignment is complete when those who came are in sync."""
    patch(
        partition_change,
        "_is_reassignment_complete",
        lambda partition, insync: (
            partition.is_reassigned
            and bool({*insync} - {*partition.removing})
            and {*partition.adding} <= {*insync}
        ),
    )


@fault(**{**MOVES, "kinds": ("reassign", "kill", "pause", "group")})
def a_removed_replica_leads_on(patch: Patch) -> None:
    """A leader that is no replica any more does not resign, and the others do not know better."""
    original = ReplicaManager._taken_away

    def taken_away(replicas: ReplicaManager, before: Any, now: Any) -> list[int]:
        return [
            index
            for index in original(replicas, before, now)
            if replicas.by_partition[before.name, index].leader is None
        ]

    patch(ReplicaManager, "_taken_away", taken_away)


@fault(**{**MOVES, "kinds": ("reassign", "kill", "stop")})
def a_reassignment_is_forgotten(patch: Patch) -> None:
    """Once all that were to come are in sync nobody looks whether others may go."""
    patch(partition_change, "_is_reassignment_complete", lambda partition, insync: False)


# --- clients -------------------------------------------------------------------------------------


@fault(kinds=("kill", "pause", "group"), follower_reads=True)
def consumers_read_followers_to_their_end(patch: Patch) -> None:
    """What a follower has it hands out, committed or not (KIP-392 says not)."""
    nearest, consumer_end = fetch_reading._nearest, fetch_reading._consumer_end
    asked: list[HostedReplica] = []

    def noted(replica: HostedReplica, *rest: Any) -> Any:
        asked[:] = [replica]
        return nearest(replica, *rest)

    def end(*marks: int, committed: bool) -> int:
        is_follower = asked[0].step.leader is None
        return (
            asked[0].log.log_end_offset
            if is_follower
            else consumer_end(*marks, committed=committed)
        )

    patch(fetch_reading, "_nearest", noted)
    patch(fetch_reading, "_consumer_end", end)


@fault(kinds=("kill", "pause"))
def consumers_read_to_the_end(patch: Patch) -> None:
    """Not only below the high watermark."""
    patch(fetch_reading, "_consumer_end", lambda *marks, **rest: 2**62)


@fault(kinds=("kill", "pause", "cut"), loss=0.1)
def a_retry_is_acknowledged_at_once(patch: Patch) -> None:
    """A duplicate is answered before the batch that it repeats is committed."""
    original = Replica.append

    def append(replica: Replica, batch: Any, **rest: Any) -> Any:
        result = original(replica, batch, **rest)
        repeated[replica] = result.last_offset if result.duplicate else -1
        return result

    repeated: dict[Replica, int] = {}
    is_committed = Replica._is_committed
    patch(Replica, "append", append)
    patch(
        Replica,
        "_is_committed",
        lambda replica, offset: (
            repeated.get(replica, -1) == offset or is_committed(replica, offset)
        ),
    )


@fault(kinds=("kill", "pause"))
def acknowledged_when_appended(patch: Patch) -> None:
    """acks=all is answered as acks=1."""
    patch(Replica, "_is_committed", lambda replica, offset: True)


@fault(kinds=("kill", "pause", "cut"), loss=0.1)
def retries_are_not_recognised(patch: Patch) -> None:
    """Every batch of an idempotent producer is appended."""
    patch(ProducerState, "check", lambda state, header: None)


@fault(kinds=("pause", "group"), loss=0.1, fault_every_ms=150)
def producers_survive_a_truncation(patch: Patch) -> None:
    """A batch that was truncated is taken for written."""
    original = PartitionLog._forget_from

    def forget_from(log: PartitionLog, offset: int) -> None:
        producers = log.local.producers
        original(log, offset)
        log.local.producers = producers

    patch(PartitionLog, "_forget_from", forget_from)


# --- the disk ------------------------------------------------------------------------------------

DURABLE = {"flushes": True, "kinds": ("power", "kill"), "fsync_ms": 10}


@fault(**DURABLE)
def the_leader_counts_what_is_not_synced(patch: Patch) -> None:
    """With flush.messages=1 its own copy counts before the fsync."""
    original = Replica._advance

    def advance(replica: Replica, size: int = 0) -> None:
        original(replica, size)
        leader = replica.leader
        if leader is not None and leader.on_local_append(replica.log.log_end_offset):
            replica._commit(size)

    patch(Replica, "_advance", advance)


@fault(**DURABLE)
def a_follower_claims_what_is_not_synced(patch: Patch) -> None:
    """With flush.messages=1 it asks on before the fsync."""
    original = ReplicaFetcher._flush

    def flush(fetcher: ReplicaFetcher, all_followed: Any) -> Any:
        """As if it were done in the background."""
        steps = original(fetcher, all_followed)
        for works in steps:
            fetcher._effects.extend(RunWork(IgnoredFlush(), work) for work in works)
            break
        return
        yield

    patch(ReplicaFetcher, "_flush", flush)
    patch(ReplicaFetcher, "_not_durable", lambda fetcher: [])


class IgnoredFlush:
    """Completes a flush of which nobody waits for the end."""

    def on_work_done(self, work: Any, failure: Exception | None, now_ms: int) -> None:
        assert failure is None
        work.complete()


@fault(**{**DURABLE, "fault_every_ms": 150, "outage_ms": 100, "groups": 2})
def a_follower_claims_what_its_former_life_has_left(patch: Patch) -> None:
    """As this cluster once did: what is only in the page cache counts when the process is back."""
    patch(ReplicaFetcher, "_not_durable", lambda fetcher: [])


@fault(**DURABLE)
def the_directory_is_not_synced(patch: Patch) -> None:
    """The name of a new segment does not survive a power loss."""
    original = LogFlushing.begin_flush

    def begin_flush(flushing: LogFlushing) -> Any:
        flushing._local.is_directory_dirty = False
        return original(flushing)

    patch(LogFlushing, "begin_flush", begin_flush)


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


@fault(
    kinds=("power", "stop", "pause", "cut"),
    checkpoint_ms=300,
    fault_every_ms=150,
    min_insync=2,
    nodes=3,
    partitions=3,
    flushes=False,
)
def a_truncation_does_not_reach_the_disk(patch: Patch) -> None:
    """As this log once did: after a power loss dropped records are back, as if committed."""
    patch(PartitionLog, "_sync_truncation", lambda log: None)


# --- followers -----------------------------------------------------------------------------------


@fault(kinds=("kill", "pause", "group"))
def followers_truncate_to_the_high_watermark(patch: Patch) -> None:
    """As before KIP-101."""
    original = ReplicaFetcher.follow

    def follow(fetcher: ReplicaFetcher, followed: Any) -> None:
        log = followed.replica.log
        if log.log_end_offset > log.high_watermark:
            fetcher._node.truncate(followed.replica, log.high_watermark)
        original(fetcher, followed)

    patch(ReplicaFetcher, "follow", follow)


@fault(kinds=("kill", "pause", "group", "cut"))
def followers_do_not_truncate(patch: Patch) -> None:
    """The leader does not look where the logs part."""
    original = LeaderState.on_follower_fetch

    def on_follower_fetch(leader: LeaderState, fetch: Any, log: Any, *, now_ms: int) -> Any:
        return original(leader, fetch._replace(last_fetched_epoch=-1), log, now_ms=now_ms)

    patch(LeaderState, "on_follower_fetch", on_follower_fetch)


@fault(
    kinds=("kill", "elect", "cut"),
    fault_every_ms=150,
    session_ms=300,
    loss=0.1,
    nodes=3,
)
def the_own_end_of_an_epoch_is_not_looked_at(patch: Patch) -> None:
    """A follower truncates to where the leader's epoch ended, wherever its own did (KIP-279)."""
    patch(
        replica_fetcher,
        "on_diverging",
        lambda log, epoch, end: Truncate(min(end, log.log_end_offset)),
    )


@fault(kinds=("kill", "pause", "group", "cut"))
def a_parted_log_counts_as_having_all(patch: Patch) -> None:
    """A fetch offset counts before it is known whether the logs are the same up to it."""
    original = Replica.on_follower_fetch

    def on_follower_fetch(replica: Replica, fetch: Any, now_ms: int) -> Any:
        leader, end = replica.leader, replica.log.log_end_offset
        assert leader is not None
        if fetch.node_id in leader.followers and leader.on_fetch(
            fetch.node_id,
            min(fetch.offset, end),
            broker_epoch=fetch.broker_epoch,
            leader_end=end,
            now_ms=now_ms,
        ):
            replica._commit()
        return original(replica, fetch, now_ms)

    patch(Replica, "on_follower_fetch", on_follower_fetch)


@fault(late=0.03, ordered=False, kinds=("kill", "pause", "cut"))
def an_old_leader_epoch_may_fetch(patch: Patch) -> None:
    """A fetch of a former epoch is not refused (KIP-320)."""
    patch(served_replicas, "_check_leader_epoch", lambda epoch, reported: None)


@fault(
    late=0.2,
    ordered=False,
    kinds=("power", "disk"),
    min_insync=2,
    outage_ms=100,
    fault_every_ms=150,
)
def an_old_broker_epoch_may_fetch(patch: Patch) -> None:
    """A fetch from before the node was registered again counts."""
    patch(fetch_reading, "_check_broker_epoch", lambda node_id, broker_epoch, context: None)


@fault(kinds=("kill", "pause", "cut"))
def an_epoch_that_goes_on_begins_again(patch: Patch) -> None:
    """As this log once did: see append_as_follower."""
    original = PartitionLog.append_as_follower

    def append_as_follower(log: PartitionLog, batches: bytes, *, now_ms: int) -> None:
        original(log, batches, now_ms=now_ms)
        log.local.assign_epochs(
            [
                (batch.leader_epoch, batch.base_offset)
                for batch in simulated_replica.batches_of(bytes(batches))
            ]
        )

    patch(PartitionLog, "append_as_follower", append_as_follower)


@fault(kinds=("kill", "pause", "elect"), fault_every_ms=150, pace_ms=300, session_ms=300)
def an_epoch_without_records_stays(patch: Patch) -> None:
    """A truncation at the end of the log leaves the epoch that had begun there."""
    original = PartitionLog.truncate_to
    patch(
        PartitionLog,
        "truncate_to",
        lambda log, offset: 0 if offset >= log.log_end_offset else original(log, offset),
    )


@fault(late=0.03, ordered=False, repeat=0.05, kinds=("kill", "pause", "cut"))
def any_answer_is_taken(patch: Patch) -> None:
    """Also one for a position that is no longer ours."""
    original = ReplicaFetcher._process

    def process(fetcher: ReplicaFetcher, answer: Any, wall_ms: int) -> Any:
        for partition_id, followed in fetcher._partitions.items():
            fetcher._asked[partition_id] = followed.position
        return original(fetcher, answer, wall_ms)

    patch(ReplicaFetcher, "_process", process)

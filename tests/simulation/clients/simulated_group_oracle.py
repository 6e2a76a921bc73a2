"""What must always hold of groups in the simulation.

    G1  in one generation a partition has one owner
    G2  an acknowledged commit is there for every later OffsetFetch, until a later one replaces it
    G3  replaying the log gives the groups and offsets that the coordinator has
    G6  who was told of an older generation, or whose place another process has taken, commits nothing
    G7  what was deleted or has expired is gone, and nothing else is (simulated_group_operator)

Every commit has an offset that no other commit has, so it is known by it. Commits that overlap may
take effect in any order; one that was complete before another began comes before it. A coordinator
that was replaced and does not know it yet answers OffsetFetch with what it has, as Kafka's does; so
G2 is asked of the one that leads in the newest epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.group_counters import GroupCounters
from bradbury.groups.group_records import entries_in
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from bradbury.protocol.messages.sync_group import SyncGroupRequest

from ..world.coordinators.simulated_groups import CONFIG, SimulatedShard
from ..world.simulated_replica import read_bytes
from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

NOTHING = -1
OPERATED = "operated"
"""The group whose offsets simulated_group_operator commits, deletes and looks after."""


@dataclass(slots=True)
class Commit:
    """One partition of an OffsetCommit. Times are the group's events, counted."""

    partition: int
    begun: int
    newest_generation: int
    is_replaced: bool
    completed: int | None = None


@dataclass(slots=True)
class GroupLedger:
    events: int = 0
    commits: dict[int, Commit] = field(default_factory=dict)
    begun_last: dict[int, int] = field(default_factory=dict)
    """When the latest of the complete commits began, by partition."""
    newest_generation: int = 0
    """The newest generation in which a member was given partitions."""
    owners: dict[int, dict[int, str]] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The member id that has each static member's place."""

    def tick(self) -> int:
        self.events += 1
        return self.events

    def complete(self, commit: Commit) -> None:
        if commit.completed is None:
            commit.completed = self.tick()
            known = self.begun_last.get(commit.partition, 0)
            self.begun_last[commit.partition] = max(known, commit.begun)


class GroupOracle:
    """Told by shards and members what they do. Raises Violation."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.ledgers: dict[str, GroupLedger] = {}
        self._next_offset = 0
        self.commits = 0
        self.generations = 0

    def ledger(self, group_id: str) -> GroupLedger:
        return self.ledgers.setdefault(group_id, GroupLedger())

    def _is_damaged(self, shard: SimulatedShard) -> bool:
        return self._cluster.oracle.ledgers[shard.replica.partition_id].is_damaged

    # --- commits ---------------------------------------------------------------------------------

    def new_offset(
        self, group_id: str, partition: int, member_id: str, instance: str | None
    ) -> int:
        """The offset for a commit that begins now."""
        ledger = self.ledger(group_id)
        self._next_offset += 1
        ledger.commits[self._next_offset] = Commit(
            partition,
            ledger.tick(),
            ledger.newest_generation,
            instance is not None and ledger.instances.get(instance, member_id) != member_id,
        )
        return self._next_offset

    def on_commit_answered(
        self, shard: SimulatedShard, request: OffsetCommitRequest, response: Any
    ) -> None:
        if isinstance(response, KafkaError) or request.group_id == OPERATED:
            return
        ledger = self.ledger(request.group_id)
        generation = request.generation_id_or_member_epoch
        for topic, answered in zip(request.topics, response.topics, strict=True):
            for asked, answer in zip(topic.partitions, answered.partitions, strict=True):
                if answer.error_code:
                    continue
                commit = ledger.commits[asked.committed_offset]
                self.commits += 1
                self.note(
                    shard,
                    f"{request.member_id} of {request.group_id} has committed "
                    f"{asked.committed_offset} of {asked.partition_index} "
                    f"in generation {generation}",
                )
                if self._is_damaged(shard):
                    continue
                if generation < commit.newest_generation:
                    self.violated(
                        "G6",
                        shard,
                        f"{request.member_id} of {request.group_id} commits in generation "
                        f"{generation}, after {commit.newest_generation} had begun",
                    )
                if commit.is_replaced:
                    self.violated(
                        "G6", shard, f"{request.member_id} commits, whose place was taken"
                    )
                ledger.complete(commit)

    def before_fetch(self, shard: SimulatedShard, group_id: str) -> dict[int, int] | None:
        """What an OffsetFetch that comes now must know; None: it is asked of a former leader."""
        if not self.is_newest(shard):
            return None
        return dict(self.ledger(group_id).begun_last)

    def is_newest(self, shard: SimulatedShard) -> bool:
        """Whether it leads in the newest epoch, and nothing of its log was lost."""
        state = self._cluster.oracle.image.partition(*shard.replica.partition_id)
        is_newest = state is not None and state.leader_epoch == shard.leader_epoch
        return is_newest and not self._is_damaged(shard)

    def on_fetched(
        self,
        shard: SimulatedShard,
        found: OffsetFetchResponseGroup,
        must_know: dict[int, int] | None,
    ) -> None:
        if self._is_damaged(shard) or found.group_id == OPERATED:
            return
        ledger = self.ledger(found.group_id)
        for topic in found.topics:
            for each in topic.partitions:
                commit = ledger.commits.get(each.committed_offset)
                self._cluster.clock.note(each.committed_offset)
                what = f"{each.committed_offset} of {each.partition_index} of {found.group_id}"
                least = 0 if must_know is None else must_know.get(each.partition_index, 0)
                if commit is None:
                    if each.committed_offset != NOTHING:
                        self.violated("phantom", shard, f"nobody has committed {what}")
                    if least:
                        self.violated("G2", shard, f"a commit is gone: {what}")
                    continue
                if commit.completed is not None and commit.completed < least:
                    self.violated("G2", shard, f"{what} was replaced, and is back")
                ledger.complete(commit)

    # --- owners ----------------------------------------------------------------------------------

    def on_synced(self, shard: SimulatedShard, request: SyncGroupRequest, response: Any) -> None:
        """A member is told what it owns."""
        if isinstance(response, KafkaError) or response.error_code != ErrorCode.NONE:
            return
        ledger = self.ledger(request.group_id)
        owned = list(bytes(response.assignment))
        self.note(
            shard,
            f"{request.member_id} of {request.group_id} owns {owned} "
            f"in generation {request.generation_id}",
        )
        if self._is_damaged(shard):
            return
        if request.generation_id > ledger.newest_generation:
            self.generations += 1
            ledger.newest_generation = request.generation_id
        if request.group_instance_id is not None:
            ledger.instances[request.group_instance_id] = request.member_id
        owner = request.group_instance_id or request.member_id
        owners = ledger.owners.setdefault(request.generation_id, {})
        for partition in owned:
            other = owners.setdefault(partition, owner)
            if other != owner:
                self.violated(
                    "G1",
                    shard,
                    f"{owner} and {other} own partition {partition} of {request.group_id} "
                    f"in generation {request.generation_id}",
                )

    def on_group_deleted(self, group_id: str) -> None:
        """It was empty and had no offsets. A group of its name begins with generation 1 again."""
        ledger = self.ledger(group_id)
        ledger.owners.clear()
        ledger.newest_generation = 0

    # --- from time to time -----------------------------------------------------------------------

    def check_all(self) -> None:
        """G3, of the coordinators that have nothing on its way to the log."""
        for node in self._cluster.nodes.values():
            for shard in node.groups.active:
                if shard.is_idle:
                    self._check_replay(shard)

    def _check_replay(self, shard: SimulatedShard) -> None:
        replayed = GroupCoordinator(CONFIG, counters=GroupCounters())
        log = shard.replica.log
        offset = log.log_start_offset
        while offset < log.high_watermark:
            data = read_bytes(log, offset, log.high_watermark)
            entries, offset = entries_in(data, offset)
            for entry in entries:
                replayed.apply(entry)
        live = shard.coordinator
        for group_id in live.groups.keys() | replayed.groups.keys():
            asked = OffsetFetchRequestGroup(group_id=group_id, topics=None)
            now = live.offsets.fetch(asked)
            then = replayed.offsets.fetch(asked)
            if now != then:
                self.violated("G3", shard, f"{group_id} has {now}, its log says {then}")
            group = live.groups.get(group_id)
            stored = replayed.groups.get(group_id)
            if group is None or (
                stored is not None and stored.metadata.generation > group.metadata.generation
            ):
                self.violated("G3", shard, f"{group_id} is behind its log")

    def note(self, shard: SimulatedShard, text: str) -> None:
        self._cluster.clock.note(len(text))
        self._cluster.oracle.note(shard.replica.partition_id, text)

    def violated(self, invariant: str, shard: SimulatedShard, text: str) -> None:
        raise Violation(invariant, f"node {shard.node.node_id}: {text}", shard.replica.partition_id)

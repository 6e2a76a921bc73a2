"""Members of consumer groups in the simulation: clients as they are, with retries and sessions.

A member finds the coordinator, joins, syncs, asks where to go on, and then commits and sends
heartbeats until it is told to rejoin. Its process may die, hang, leave, and come back: a static
member under its instance id, others as somebody new. What it sends arrives once, in order, as on a
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import KafkaError
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from bradbury.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from bradbury.protocol.partitioner import partition_for_group
from bradbury.protocol.topic_name import OFFSETS_TOPIC

from ..world.coordinators.simulated_groups import SimulatedShard
from ..world.simulated_network import Answer, is_error
from .simulated_clients import Client

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

SHARED = "shared"
"""The topic that groups share out; nothing is ever written to it."""
SHARED_PARTITIONS = 4
SESSION_MS = 500
REBALANCE_MS = 300
"""Shorter than a session: a static member that is late is still a member."""
HEARTBEAT_MS = 90
RESTART_MS = 100
ANSWER_MS = 200
BACKOFF_MS = 30

# Of one partition of a commit.
OUT = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupClient(Client):
    """Asks the coordinator of one group, one thing after the other: `step` counts them, and an answer
    to a former step is dropped.
    """

    def __init__(self, cluster: SimulatedCluster, machine: int, group_id: str) -> None:
        offsets = cluster.swarm.offsets_partitions
        partition_id = OFFSETS_TOPIC, partition_for_group(group_id, offsets)
        super().__init__(cluster, machine, partition_id)
        self.group_id = group_id
        self._step = 0

    # --- asking ----------------------------------------------------------------------------------

    def _next(self) -> None:
        self._step += 1

    def _ask(
        self,
        ask: Callable[[SimulatedShard, Answer], None],
        on_answer: Answer,
        timeout_ms: int = ANSWER_MS,
    ) -> None:
        """One request to who may be the coordinator; the answer may be an error, or LOST."""
        node, step, group_id = self.cluster.nodes.get(self.leader_id), self._step, self.group_id
        if node is None:
            self.find_coordinator()
            self._later(BACKOFF_MS, lambda: on_answer(KafkaError("nobody coordinates")))
            return

        def handle(answer: Answer) -> None:
            try:
                shard = node.groups.shard_of(group_id)
            except KafkaError as error:
                answer(error)
                return
            ask(shard, answer)

        def arrive(result: Any) -> None:
            if step == self._step:
                if is_error(result):
                    self.find_coordinator()
                on_answer(result)

        self.cluster.network.call(
            self.process,
            node.process,
            handle,
            arrive,
            timeout_ms=timeout_ms,
            what="group",
            is_connection=True,
        )

    def find_coordinator(self) -> None:
        """Ask some node, whatever that knows: FindCoordinator tells no epoch."""
        self.leader_epoch = -1
        self.find_leader()

    def _later(self, delay_ms: int, event: Callable[[], None]) -> None:
        step = self._step
        self.process.after(delay_ms, lambda: event() if step == self._step else None)


class Member(GroupClient):
    """A member of a group, static if it has an instance id."""

    def __init__(
        self, cluster: SimulatedCluster, machine: int, group_id: str, instance_id: str | None
    ) -> None:
        super().__init__(cluster, machine, group_id)
        self.instance_id = instance_id
        self.is_over = False
        """It is not started any more: another process has its instance id, or it has gone."""
        self._begin()

    def _begin(self) -> None:
        self.member_id, self.generation = "", -1
        self.owned: list[int] | None = None
        self._step = 0
        self._join()

    def kill(self) -> None:
        self.process.end_life()
        self.owned = None

    def start(self) -> None:
        if not self.process.is_up and not self.is_over:
            self.process.begin_life()
            self._begin()

    def leave(self, on_gone: Callable[[], None]) -> None:
        """A clean end. Static members send no LeaveGroup."""

        def gone(_: Any) -> None:
            self.kill()
            on_gone()

        if self.instance_id is not None:
            gone(None)
            return
        request = LeaveGroupRequest(self.group_id, [MemberIdentity(self.member_id)])
        self._next()
        self._ask(lambda shard, answer: shard.leave(request, answer), gone)

    # --- joining ---------------------------------------------------------------------------------

    def _join(self) -> None:
        self._next()
        self.owned = None
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="simulated",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        self._ask(
            lambda shard, answer: shard.join(request, answer),
            self._on_joined,
            SESSION_MS + REBALANCE_MS,
        )

    def _join_later(self) -> None:
        self._next()
        self.owned = None
        self._later(BACKOFF_MS, self._join)

    def _on_joined(self, result: Any) -> None:
        if is_error(result):
            self._join_later()
            return
        match result.error_code:
            case ErrorCode.NONE:
                self.member_id, self.generation = result.member_id, result.generation_id
                leads = result.leader == self.member_id and not result.skip_assignment
                self._sync(self._shares(result.members) if leads else [])
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = result.member_id
                self._join()
            case _:
                self._on_error(result.error_code)

    def _shares(self, members: list[Any]) -> list[SyncGroupRequestAssignment]:
        names = sorted(each.member_id for each in members)
        return [
            SyncGroupRequestAssignment(name, bytes(range(n, SHARED_PARTITIONS, len(names))))
            for n, name in enumerate(names)
        ]

    def _sync(self, shares: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            self.group_id, self.generation, self.member_id, self.instance_id, None, None, shares
        )
        self._ask(
            lambda shard, answer: shard.watched_sync(request, answer), self._on_synced, REBALANCE_MS
        )

    def _on_synced(self, result: Any) -> None:
        if is_error(result):
            self._join_later()
        elif result.error_code:
            self._on_error(result.error_code)
        else:
            self.owned = list(bytes(result.assignment))
            self._fetch()
            self._later(HEARTBEAT_MS, self._heartbeat)

    def _on_error(self, code: int) -> None:
        """An answer that says no: who is forgotten starts over, all others rejoin."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._on_fenced()
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in MOVED:
            self.find_coordinator()
        self._join_later()

    def _on_fenced(self) -> None:
        """Its process ends, as clients do. If no other has its place now, as when a request of its
        own former life came late, it is started again.
        """
        self.kill()
        self.is_over = any(
            each.instance_id == self.instance_id and each.group_id == self.group_id
            for each in self.cluster.members
            if each is not self and not each.is_over
        )
        self.cluster.clock.after(RESTART_MS, self.start)

    # --- working ---------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Where to go on; again and again if nobody says."""
        asked = OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=[OffsetFetchRequestTopics(name=SHARED, partition_indexes=self.owned or [])],
        )

        def fetched(result: Any) -> None:
            if is_error(result):
                self._later(BACKOFF_MS, self._fetch)
            else:
                self._later(self._pace(), self._commit)

        self._ask(lambda shard, answer: shard.watched_fetch(asked, answer), fetched)

    def _pace(self) -> int:
        return 1 + int(self.cluster.random.random() * 4 * self.cluster.swarm.pace_ms)

    def _commit(self) -> None:
        if self.cluster.is_calm:
            self._later(self._pace(), self._fetch)
            return
        oracle = self.cluster.group_oracle
        partitions = [
            OffsetCommitRequestPartition(
                partition,
                oracle.new_offset(self.group_id, partition, self.member_id, self.instance_id),
            )
            for partition in self.owned or []
        ]
        request = OffsetCommitRequest(
            self.group_id,
            self.generation,
            self.member_id,
            self.instance_id,
            -1,
            [OffsetCommitRequestTopic(name=SHARED, partitions=partitions)],
        )

        def committed(result: Any) -> None:
            codes = set() if is_error(result) else _codes(result)
            if codes & {*MOVED}:
                self.find_coordinator()
            if codes & {*OUT}:
                self._on_error(max(codes & {*OUT}))
            elif ErrorCode.REBALANCE_IN_PROGRESS in codes:
                self._join()
            elif self.cluster.random.random() < 0.1:
                self._fetch()
            else:
                self._later(self._pace(), self._commit)

        self._ask(lambda shard, answer: shard.watched_commit(request, answer), committed)

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(self.group_id, self.generation, self.member_id, self.instance_id)

        def answered(result: Any) -> None:
            if is_error(result):
                self._later(BACKOFF_MS, self._heartbeat)
            elif result.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._join()
            elif result.error_code:
                self._on_error(result.error_code)
            else:
                self._later(HEARTBEAT_MS, self._heartbeat)

        self._ask(lambda shard, answer: shard.heartbeat(request, answer), answered)


def _codes(response: Any) -> set[int]:
    return {each.error_code for topic in response.topics for each in topic.partitions}

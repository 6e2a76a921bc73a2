"""Port of the group handlers: the group coordinators on this node.

The port is implemented in actors/coordinators/group_host. Every method copies what it needs of the
request before it returns (a request points into the receive buffer). An awaitable may be done
already, or raise a KafkaError: NotCoordinator when another node has become leader of the partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from ...protocol.messages.delete_groups import DeleteGroupsResponse
from ...protocol.messages.describe_groups import DescribedGroup
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ...protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ...storage.producers.verification_guard import VerificationGuard


class GroupShard(Protocol):
    """The groups of one partition of __consumer_offsets, which this node leads."""

    def join(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> Awaitable[JoinGroupResponse]: ...
    def sync(self, request: SyncGroupRequest) -> Awaitable[SyncGroupResponse]: ...
    def heartbeat(self, request: HeartbeatRequest) -> Awaitable[HeartbeatResponse]: ...
    def leave(self, request: LeaveGroupRequest) -> Awaitable[LeaveGroupResponse]: ...
    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: Callable[[str, int], bool],
    ) -> Awaitable[OffsetCommitResponse]: ...
    def commit_transaction_offsets(
        self,
        request: TxnOffsetCommitRequest,
        *,
        is_known: Callable[[str, int], bool],
        guard: VerificationGuard | None,
    ) -> Awaitable[TxnOffsetCommitResponse]:
        """Commit offsets in a transaction. `guard`: the replica's, for the verified transaction."""
        ...

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
    ) -> Awaitable[None]:
        """Write the marker of the partition, and apply the offsets that it commits or aborts.

        Markers are written to `__consumer_offsets` by this method only. A call may be repeated.

        Raises (when awaited):
            KafkaError: see LeaderReplica.append_marker; RequestTimedOut: not committed in time, but
            it still may be; NotCoordinator: perhaps written, but another node leads or the log is
            being loaded again.
        """
        ...

    def delete(self, group_ids: Sequence[str]) -> Awaitable[DeleteGroupsResponse]: ...
    def delete_offsets(
        self, request: OffsetDeleteRequest, *, is_known: Callable[[str, int], bool]
    ) -> Awaitable[OffsetDeleteResponse]: ...
    def fetch_offsets(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Awaitable[OffsetFetchResponseGroup]: ...
    def describe(self, group_id: str) -> DescribedGroup | None: ...
    def list_groups(self) -> list[ListedGroup]: ...


class Groups(Protocol):
    """Groups of this node, by shard."""

    def shard(self, partition: int) -> GroupShard:
        """Shard of a partition. Raises NotCoordinator; CoordinatorLoadInProgress if loading."""
        ...

    def shards(self) -> Sequence[GroupShard]:
        """All shards. Raises CoordinatorLoadInProgress if one is not loaded."""
        ...

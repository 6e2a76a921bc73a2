"""The driver of one partition of `__consumer_offsets`: requests, put to its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from ...coordinators.rules_effects import TransactionMarker
from ...groups.coordinator.coordinator import GroupCoordinator, describe_group, list_groups
from ...groups.coordinator.coordinator_requests import CoordinatorRequests
from ...groups.coordinator.group_coordinators import GroupContext
from ...groups.group_effects import Report
from ...groups.group_records import entries_in
from ...groups.offsets.committed_offsets import IsKnown
from ...handlers.ports.replica_port import LeaderReplica
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
from ..loop.line_limit import LineLimit
from .coordinator_driver import CoordinatorDriver


class GroupShard:
    """Implements handlers.ports.group_port.GroupShard while its context is ACTIVE."""

    def __init__(
        self,
        context: GroupContext,
        replica: LeaderReplica,
        wall_ms: Callable[[], int],
        lines: LineLimit,
        new_id: Callable[[], UUID],
    ) -> None:
        """`lines`: rate-limited logger of the node's groups."""
        self._context = context
        self._lines = lines
        self._new_id = new_id
        self._requests = CoordinatorRequests(context)
        self._driver = CoordinatorDriver(context, replica, entries_in, wall_ms, self._report)
        self._driver.begin()

    def close(self) -> None:
        self._driver.close()

    def _report(self, effect: Report) -> None:
        self._lines.info("%.1000s", _printable(effect.text))

    # --- requests --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> asyncio.Future[JoinGroupResponse]:
        return self._driver.ask(
            self._requests.join,
            request,
            api_version=api_version,
            client_id=client_id,
            client_host=client_host,
            unique=str(self._new_id()),
        )

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        return self._driver.ask(self._requests.sync, request)

    def heartbeat(self, request: HeartbeatRequest) -> asyncio.Future[HeartbeatResponse]:
        return self._driver.ask(self._requests.heartbeat, request)

    def leave(self, request: LeaveGroupRequest) -> asyncio.Future[LeaveGroupResponse]:
        return self._driver.ask(self._requests.leave, request)

    def commit_offsets(
        self, request: OffsetCommitRequest, *, api_version: int, is_known: IsKnown
    ) -> asyncio.Future[OffsetCommitResponse]:
        return self._driver.ask(
            self._requests.commit_offsets, request, api_version=api_version, is_known=is_known
        )

    def commit_transaction_offsets(
        self, request: TxnOffsetCommitRequest, *, is_known: IsKnown, guard: object
    ) -> asyncio.Future[TxnOffsetCommitResponse]:
        return self._driver.ask(
            self._requests.commit_transaction_offsets, request, is_known=is_known, guard=guard
        )

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
    ) -> asyncio.Future[None]:
        marker = TransactionMarker(
            producer_id, producer_epoch, coordinator_epoch, is_commit, transaction_version
        )
        return self._driver.ask(self._requests.complete_transaction, marker)

    def delete(self, group_ids: Sequence[str]) -> asyncio.Future[DeleteGroupsResponse]:
        return self._driver.ask(self._requests.delete_groups, group_ids)

    def delete_offsets(
        self, request: OffsetDeleteRequest, *, is_known: IsKnown
    ) -> asyncio.Future[OffsetDeleteResponse]:
        return self._driver.ask(self._requests.delete_offsets, request, is_known=is_known)

    def fetch_offsets(
        self, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> asyncio.Future[OffsetFetchResponseGroup]:
        return self._driver.read(self._requests.fetch_offsets, asked, require_stable=require_stable)

    def describe(self, group_id: str) -> DescribedGroup | None:
        return describe_group(self._context.coordinator.groups, group_id)

    def list_groups(self) -> list[ListedGroup]:
        return list_groups(self._context.coordinator.groups)

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator itself, for its metrics."""
        return self._context.coordinator

    def on_topics_deleted(self, topics: set[str]) -> None:
        self._driver.input(self._requests.on_topics_deleted, topics)


def _printable(text: str) -> str:
    """Escape line ends and other control characters: the text contains client ids."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()

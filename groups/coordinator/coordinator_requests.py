"""Requests of members and operators to the coordinator of one partition.

Each has a ticket, and is answered by a Reply or Refuse with that ticket. A request may point into a
receive buffer, so a method copies the parts that are needed after it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...coordinators.coordinator_effects import PendingRead
from ...coordinators.rules_effects import TransactionMarker
from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.join_group import JoinGroupRequest
from ...protocol.messages.leave_group import LeaveGroupRequest
from ...protocol.messages.offset_commit import OffsetCommitRequest
from ...protocol.messages.offset_delete import OffsetDeleteRequest
from ...protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ...protocol.messages.sync_group import SyncGroupRequest
from ...protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ..classic.join import Join
from ..group_effects import Effect
from ..offsets.committed_offsets import IsKnown
from .coordinator import GroupCoordinator
from .group_coordinators import GroupContext


class CoordinatorRequests:
    """Requests, allowed only while the context is ACTIVE; on_topics_deleted at any time."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def join(
        self,
        ticket: object,
        request: JoinGroupRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        unique: str,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Handle a JoinGroup. `unique`: end of a new member's id."""

        def operation(coordinator: GroupCoordinator, request_id: int) -> list[Effect]:
            join = Join.of(
                request_id,
                request,
                api_version=api_version,
                client_id=client_id,
                client_host=client_host,
                unique=unique,
            )
            return coordinator.on_join(request.group_id, join, now_ms=wall_ms)

        self._context.write(ticket, operation, now_ms=now_ms, wall_ms=wall_ms)

    def sync(self, ticket: object, request: SyncGroupRequest, *, now_ms: int, wall_ms: int) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_sync(request_id, request),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def heartbeat(
        self, ticket: object, request: HeartbeatRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_heartbeat(request_id, request),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def leave(
        self, ticket: object, request: LeaveGroupRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_leave(
                request_id, request, now_ms=wall_ms
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def commit_offsets(
        self,
        ticket: object,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: IsKnown,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.offset_requests.commit(
                request_id, request, api_version=api_version, is_known=is_known, now_ms=wall_ms
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def commit_transaction_offsets(
        self,
        ticket: object,
        request: TxnOffsetCommitRequest,
        *,
        is_known: IsKnown,
        guard: object,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.offset_requests.commit_in_transaction(
                request_id, request, is_known=is_known, guard=guard, now_ms=wall_ms
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def complete_transaction(
        self, ticket: object, marker: TransactionMarker, *, now_ms: int, wall_ms: int
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.offset_requests.end_transaction(
                request_id, marker
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def fetch_offsets(
        self, ticket: object, asked: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> None:
        """Fetch offsets, once the earlier commits of its group are committed."""
        self._context.read(
            PendingRead(
                ticket,
                lambda coordinator: coordinator.offsets.is_committing(asked.group_id),
                lambda coordinator: coordinator.offsets.fetch(asked, require_stable=require_stable),
            )
        )

    def on_topics_deleted(self, topics: set[str], *, now_ms: int, wall_ms: int) -> None:
        """Called when topics were deleted, perhaps recreated under the same names. No answer."""
        self._context.run(
            lambda coordinator: coordinator.offset_requests.forget_topics(topics),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def delete_offsets(
        self,
        ticket: object,
        request: OffsetDeleteRequest,
        *,
        is_known: IsKnown,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.offset_requests.delete(
                request_id, request, is_known=is_known
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def delete_groups(
        self, ticket: object, group_ids: Sequence[str], *, now_ms: int, wall_ms: int
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_delete(
                request_id, group_ids, now_ms=wall_ms
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

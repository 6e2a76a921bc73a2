"""Requests about committed offsets of one partition's groups: checks, and the resulting effects.

    commit, commit_in_transaction, delete   records, answered once they are committed
    end_transaction                         the marker that a transaction's coordinator asks for
    forget_topics                           tombstones that nobody waits for

The offsets change when the records are applied (coordinator_state), never here.
Source: apache/kafka group-coordinator/.../OffsetMetadataManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...coordinators.rules_effects import (
    Append,
    Respond,
    TransactionalProducer,
    TransactionMarker,
)
from ...protocol.error_code import ErrorCode
from ...protocol.messages.offset_commit import OffsetCommitRequest
from ...protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ..classic.consumer_subscription import CONSUMER
from ..classic.group_state import GroupState
from ..classic.group_view import is_subscribed
from ..group_counters import GroupCounters
from ..group_effects import (
    Effect,
    OffsetsDeleted,
    OffsetsStored,
    TransactionEnded,
)
from ..group_records import OffsetRecord
from ..offsets.committed_offsets import IsKnown, fits
from .coordinator_state import CoordinatorState
from .tombstone_batches import in_batches, nobody_waits

FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND = 9


class OffsetRequests:
    def __init__(
        self,
        state: CoordinatorState,
        counters: GroupCounters,
        to_write: Callable[[int], int],
    ) -> None:
        """`to_write`: returns the timestamp to store, given the wall-clock time."""
        self._state = state
        self._counters = counters
        self._to_write = to_write

    def commit(
        self,
        request_id: int,
        request: OffsetCommitRequest,
        *,
        api_version: int,
        is_known: IsKnown,
        now_ms: int,
    ) -> list[Effect]:
        """Commit offsets; partitions that do not exist are refused one by one."""
        group = self._state.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if not fits(request.group_id):
            error = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            error = group.check_commit(request.member_id, request.group_instance_id, generation)
        elif generation < 0:
            error = ErrorCode.NONE  # manual assignment: the commit creates the group
        elif api_version >= FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            error = ErrorCode.ILLEGAL_GENERATION
        response, records = self._state.offsets.commit(
            request, error, is_known=is_known, now_ms=self._to_write(now_ms)
        )
        alive: list[Effect] = []
        if not error and group is not None:
            alive = group.on_sign_of_life(request.member_id)
        return [*alive, *self._store(records, OffsetsStored(request_id, response))]

    def commit_in_transaction(
        self,
        request_id: int,
        request: TxnOffsetCommitRequest,
        *,
        is_known: IsKnown,
        guard: object,
        now_ms: int,
    ) -> list[Effect]:
        """Commit offsets in a transaction: they take effect when the producer's transaction commits
        (KIP-447).

        The caller has verified that it is open; `guard` is the verification guard for the append.
        """
        group = self._state.groups.get(request.group_id)
        if not request.group_id or not fits(request.group_id):
            error = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            error = group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                in_transaction=True,
            )
        elif request.generation_id < 0:
            error = ErrorCode.NONE
        else:
            error = ErrorCode.ILLEGAL_GENERATION
        response, records = self._state.offsets.commit_in_transaction(
            request, error, is_known=is_known, now_ms=self._to_write(now_ms)
        )
        alive: list[Effect] = []
        if not error and group is not None:
            alive = group.on_sign_of_life(request.member_id)
        producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
        return [*alive, *self._store(records, OffsetsStored(request_id, response), producer)]

    def _store(
        self,
        records: Sequence[OffsetRecord],
        stored: OffsetsStored,
        producer: TransactionalProducer | None = None,
    ) -> list[Effect]:
        """Store records; answered when they are committed, at once if there are none."""
        if not records:
            assert stored.request_id is not None
            return [Respond(stored.request_id, stored.response)]
        self._state.offsets.begin(records)
        self._counters.offset_commits += len(records)
        return [Append(tuple(records), stored, producer=producer)]

    def end_transaction(self, request_id: int, marker: TransactionMarker) -> list[Effect]:
        """End a producer's transaction. Answered with None, or the KafkaError of the append.

        The marker is written even if no offset is pending: the partition's log needs it.
        """
        self._state.offsets.begin_marker(marker.producer_id)
        return [Append((), TransactionEnded(request_id), marker=marker)]

    def delete(
        self, request_id: int, request: OffsetDeleteRequest, *, is_known: IsKnown
    ) -> list[Effect]:
        """Delete existing offsets in topics that no member is subscribed to."""
        group = self._state.groups.get(request.group_id)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif (
            group.metadata.state is not GroupState.EMPTY
            and group.metadata.protocol_type != CONSUMER
        ):
            error = ErrorCode.NON_EMPTY_GROUP
        if error or group is None:
            return [Respond(request_id, OffsetDeleteResponse(error_code=error))]
        response, records = self._state.offsets.delete(
            request, is_known=is_known, is_subscribed=is_subscribed(group.metadata)
        )
        if not records:
            return [Respond(request_id, response)]
        return in_batches(records, OffsetsDeleted(request_id, response))

    def forget_topics(self, topics: set[str]) -> list[Effect]:
        """Delete offsets in deleted topics: a new topic of that name starts without offsets."""
        records = [
            record for offsets in self._state.offsets for record in offsets.tombstones_in(topics)
        ]
        return in_batches(records, nobody_waits())

"""Requests of groups that are wrong: each gets Kafka's code, and changes nothing (G10).

They are asked of a coordinator that has nothing on its way to its log, and answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bradbury.groups.coordinator import coordinator as group_coordinator
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.heartbeat import HeartbeatRequest
from bradbury.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from bradbury.protocol.messages.leave_group import LeaveGroupRequest
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_delete import OffsetDeleteRequest
from bradbury.protocol.messages.sync_group import SyncGroupRequest
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..world.coordinators.simulated_groups import SimulatedShard
from .simulated_log_checks import Violation

NOWHERE = "a group that there is not"
TOO_LONG = "x" * 40_000
SESSION_MS = 10_000
Ask = Callable[[Callable[[Any], None]], None]


def check_refusals(shard: SimulatedShard) -> None:
    """Raises Violation."""
    before = _told(shard)
    for ask, code in (*_of_no_group(shard), *_of_groups(shard)):
        answers: list[Any] = []
        ask(answers.append)
        codes = [_code_in(answer) for answer in answers]
        if codes != [code]:
            raise Violation("G10", f"{answers} is not {code!r}", shard.replica.partition_id)
    if _told(shard) != before or not shard.is_idle:
        raise Violation("G10", f"what is refused changes {before}", shard.replica.partition_id)


def _told(shard: SimulatedShard) -> list[Any]:
    groups = shard.coordinator.groups
    return [group_coordinator.describe_group(groups, group_id) for group_id in sorted(groups)]


def _code_in(answer: Any) -> int:
    """That of a request, or else of the first thing that it asks for."""
    match answer:
        case _ if hasattr(answer, "results"):
            return int(answer.results[0].error_code)
        case _ if hasattr(answer, "topics") and answer.topics:
            return int(answer.topics[0].partitions[0].error_code)
        case _:
            return int(answer.error_code)


def _of_no_group(shard: SimulatedShard) -> Iterator[tuple[Ask, ErrorCode]]:
    yield _join(shard, group_id=""), ErrorCode.INVALID_GROUP_ID
    yield _join(shard, session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT
    yield _join(shard, protocol_type=TOO_LONG), ErrorCode.INVALID_REQUEST
    yield _join(shard, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID
    yield _sync(shard, group_id=""), ErrorCode.INVALID_GROUP_ID
    yield _sync(shard, group_id=NOWHERE), ErrorCode.UNKNOWN_MEMBER_ID
    yield lambda answer: shard.heartbeat(HeartbeatRequest(""), answer), ErrorCode.INVALID_GROUP_ID
    yield lambda answer: shard.leave(LeaveGroupRequest(""), answer), ErrorCode.INVALID_GROUP_ID
    yield _commit(shard, TOO_LONG), ErrorCode.INVALID_GROUP_ID
    yield _commit(shard, NOWHERE), ErrorCode.GROUP_ID_NOT_FOUND
    yield _commit_in_transaction(shard, ""), ErrorCode.INVALID_GROUP_ID
    yield _commit_in_transaction(shard, NOWHERE), ErrorCode.ILLEGAL_GENERATION
    yield _delete_offsets(shard, ""), ErrorCode.INVALID_GROUP_ID
    yield _delete_offsets(shard, NOWHERE), ErrorCode.GROUP_ID_NOT_FOUND


def _of_groups(shard: SimulatedShard) -> Iterator[tuple[Ask, ErrorCode]]:
    for group_id, group in sorted(shard.coordinator.groups.items()):
        metadata = group.metadata
        yield _commit(shard, group_id, "stranger"), ErrorCode.UNKNOWN_MEMBER_ID
        if not len(metadata.members):
            continue
        other = {"group_id": group_id, "protocol_type": "another"}
        yield _join(shard, **other), ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        member = next(iter(metadata.members))
        known = {
            "group_id": group_id,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "generation_id": metadata.generation,
        }
        wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        yield _sync(shard, **known, protocol_type="another"), wrong
        yield _sync(shard, **known, protocol_name="another"), wrong
        yield _heartbeat_of_before(shard, known), ErrorCode.ILLEGAL_GENERATION
        yield _delete_offsets(shard, group_id), ErrorCode.NON_EMPTY_GROUP
        yield _delete_group(shard, group_id), ErrorCode.NON_EMPTY_GROUP


def _join(shard: SimulatedShard, **fields: Any) -> Ask:
    protocols = [JoinGroupRequestProtocol("range", b"")]
    wanted = {"group_id": NOWHERE, "session_timeout_ms": SESSION_MS, "protocol_type": "simulated"}
    request = JoinGroupRequest(**{**wanted, **fields}, protocols=protocols)
    return lambda answer: shard.join(request, answer)


def _sync(shard: SimulatedShard, **fields: Any) -> Ask:
    request = SyncGroupRequest(**fields)
    return lambda answer: shard.sync(request, answer)


def _heartbeat_of_before(shard: SimulatedShard, known: dict[str, Any]) -> Ask:
    request = HeartbeatRequest(**{**known, "generation_id": known["generation_id"] - 1})
    return lambda answer: shard.heartbeat(request, answer)


def _commit(shard: SimulatedShard, group_id: str, member_id: str = "") -> Ask:
    partitions = [OffsetCommitRequestPartition(0, 1)]
    request = OffsetCommitRequest(
        group_id, 5, member_id, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    return lambda answer: shard.commit_offsets(request, answer)


def _commit_in_transaction(shard: SimulatedShard, group_id: str) -> Ask:
    partitions = [TxnOffsetCommitRequestPartition(0, 1)]
    request = TxnOffsetCommitRequest(
        group_id=group_id,
        generation_id=5,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    return lambda answer: shard.commit_transaction_offsets(request, answer)


def _delete_offsets(shard: SimulatedShard, group_id: str) -> Ask:
    return lambda answer: shard.delete_offsets(OffsetDeleteRequest(group_id), answer)


def _delete_group(shard: SimulatedShard, group_id: str) -> Ask:
    return lambda answer: shard.delete_groups([group_id], answer)

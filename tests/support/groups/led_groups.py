"""A GroupHost over replicas of the test, and what its clients ask: for tests of what happens around
the rules of groups.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import uuid4

from bradbury.actors.coordinators.group_host import GroupHost
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
)
from bradbury.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from bradbury.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from bradbury.tests.support.storage.memory_replica import MemoryReplica

NOW_MS = 1_700_000_000_000
CONFIG = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def led(host: GroupHost, replica: MemoryReplica, *, epoch: int = 1) -> Any:
    """The shard of partition 0, once it is loaded."""
    host.on_leader(0, epoch, replica)
    return await loaded(host)


async def loaded(host: GroupHost) -> Any:
    while True:
        try:
            return host.shard(0)
        except CoordinatorLoadInProgress:
            await asyncio.sleep(0)


def new_host(**settings: int) -> GroupHost:
    return GroupHost(replace(CONFIG, **settings), lambda: NOW_MS, uuid4)


def stand_still(seconds: float) -> None:
    """The whole loop does: no heartbeat can be read meanwhile."""
    time.sleep(seconds)


async def fetched(shard: Any, *, require_stable: bool = True) -> Any:
    """The one partition of group g, or None."""
    asked = OffsetFetchRequestGroup("g", topics=None)
    answer = await shard.fetch_offsets(asked, require_stable=require_stable)
    return answer.topics[0].partitions[0] if answer.topics else None


def commit(shard: Any, offset: int, group_id: str = "g") -> asyncio.Future[Any]:
    partition = OffsetCommitRequestPartition(0, offset)
    request = OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    return shard.commit_offsets(request, api_version=9, is_known=lambda *_: True)


def commit_in_transaction(
    shard: Any, offset: int, *, producer_id: int = 7, guard: object = None
) -> asyncio.Future[Any]:
    partition = TxnOffsetCommitRequestPartition(0, offset)
    request = TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=3,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    return shard.commit_transaction_offsets(request, is_known=lambda *_: True, guard=guard)


def end(shard: Any, *, producer_id: int = 7, is_commit: bool = True) -> asyncio.Future[None]:
    return shard.complete_transaction(
        producer_id, 3, coordinator_epoch=5, is_commit=is_commit, transaction_version=2
    )


def error_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def offset_of(shard: Any) -> int | None:
    """What is shown now, to whoever does not wait."""
    answer = shard.coordinator.offsets.fetch(OffsetFetchRequestGroup("g", topics=None))
    return answer.topics[0].partitions[0].committed_offset if answer.topics else None


def join(
    shard: Any, member_id: str = "", *, session_ms: int = 10_000, group_id: str = "g"
) -> asyncio.Future[Any]:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", memoryview(b"topics"))],
    )
    return shard.join(request, api_version=3, client_id="c", client_host="/127.0.0.1")


def sync(shard: Any, member_id: str, share: bytes) -> asyncio.Future[Any]:
    given = [SyncGroupRequestAssignment(member_id, share)]
    return shard.sync(SyncGroupRequest("g", 1, member_id, assignments=given))

"""A consumer's side of its group: join, sync, heartbeat, leave; commit and fetch offsets.

What always holds:
    A rebalance begins in poll only, on the caller's thread, so that the caller is done with what it
    was given; requests then run on the I/O thread, and heartbeats run there between polls.
    A member that does not poll for `max_poll_interval_ms` leaves: its partitions are better off
    with a member that works (KIP-62).
    Offsets are committed under the generation they were read in, so a member that the group has
    given up cannot move its successor's position.

The assignment is computed by the member that the coordinator names leader, with a strategy that
every member knows. Partitions are given up before a rebalance (the eager protocol).

Source: ConsumerCoordinator, AbstractCoordinator in apache/kafka clients/.../consumer/internals.

Not here: what is read (fetcher), the strategies and their bytes (assignors).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from ..protocol.error_code import ErrorCode
from ..protocol.errors import (
    ConnectionFailed,
    KafkaError,
    MalformedRequest,
    error_for,
)
from ..protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ..protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from .assignors import assign_range
from .cluster_client import GROUP, ClusterClient, is_retriable
from .connection import Address
from .consumer_protocol import (
    Member,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .io_thread import Steps, wait
from .topic_partition import TopicPartition

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
_MEMBER_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


@dataclass(frozen=True, slots=True)
class Membership:
    """Who this member is to the coordinator. ("", -1) while it is none."""

    member_id: str = ""
    generation: int = NO_GENERATION


class Coordinator:
    """`wake` is called, on the I/O thread, whenever poll should look at the group again."""

    def __init__(
        self, client: ClusterClient, config: GroupConfig, wake: Callable[[], None]
    ) -> None:
        self.config = config
        self.membership = Membership()
        self.rejoin_needed = False
        self.lost = False
        self._client = client
        self._wake = wake
        self._topics: tuple[str, ...] = ()
        self._address: Address | None = None
        self._join: Future[list[TopicPartition]] | None = None
        self._led_counts: dict[str, int] | None = None
        self._polled_at = time.monotonic()

    # --- from the caller's thread ------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member for `topics` from the next poll on."""
        self._topics = tuple(sorted(set(topics)))
        self.rejoin_needed = True

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    @property
    def is_joining(self) -> bool:
        return self._join is not None

    def needs_attention(self) -> bool:
        """Whether a poll that waits for records should see to the group instead."""
        if self._join is not None:
            return self._join.done()
        return self.rejoin_needed or self._partitions_changed()

    def on_poll(self) -> None:
        self._polled_at = time.monotonic()

    def start_join(self) -> None:
        """Begin a rebalance. The caller has committed and given up its partitions."""
        self.rejoin_needed = False
        self.lost = False
        self._join = self._client.io.spawn(self._join_group())
        self._join.add_done_callback(lambda _: self._wake())

    def joined(self, timeout_s: float) -> list[TopicPartition] | None:
        """The new assignment, or None if the rebalance takes longer than `timeout_s`.

        Raises:
            KafkaError: the group does not take this member.
        """
        assert self._join is not None
        try:
            assignment = self._join.result(timeout_s)
        except TimeoutError:
            return None
        except BaseException:
            self._join = None
            self.rejoin_needed = True
            raise
        self._join = None
        return assignment

    def leave(self, timeout_ms: int) -> None:
        """Tell the coordinator at once, so the others need not wait for the session to end.

        A static member stays: it is expected back within its session.
        """
        if self.membership.member_id and self.config.group_instance_id is None:
            try:
                self._client.run(self._leave_group(), timeout_ms)
            except (KafkaError, ConnectionFailed) as error:
                logger.info("group %r: not left properly: %s", self.config.group_id, error)
        self.membership = Membership()

    # --- coordinator -------------------------------------------------------------------------

    def find(self) -> Steps[Address]:
        """The group's coordinator, looked up until there is one."""
        while self._address is None:
            request = FindCoordinatorRequest(
                key=self.config.group_id, key_type=0, coordinator_keys=[self.config.group_id]
            )
            response = yield from self._client.send_to_any(request, FindCoordinatorResponse)
            found = response.coordinators[0] if response.coordinators else response
            if not found.error_code:
                self._address = Address(found.host, found.port)
                break
            error = error_for(found.error_code, found.error_message)
            if not error.retriable:
                raise error
            yield self._backoff_s
        return self._address

    def forget(self) -> None:
        """The coordinator has moved, or does not answer."""
        self._address = None

    # --- joining -----------------------------------------------------------------------------

    def _join_group(self) -> Steps[list[TopicPartition]]:
        while True:
            try:
                assignment = yield from self._try_to_join()
            except (KafkaError, ConnectionFailed, MalformedRequest) as error:
                yield from self._on_join_error(error)
            else:
                generation = self.membership.generation
                self._client.io.spawn(self._heartbeat(generation))
                return assignment

    def _on_join_error(self, error: Exception) -> Steps[None]:
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            return  # the id is noted; ask again with it (KIP-394)
        if code in _MEMBER_LOST:
            self.membership = Membership()
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            if not is_retriable(error):
                raise error
            if code is None or code in COORDINATOR_MOVED:
                self.forget()
            yield self._backoff_s

    def _try_to_join(self) -> Steps[list[TopicPartition]]:
        config = self.config
        address = yield from self.find()
        response = yield from wait(
            self._client.send(
                address,
                JoinGroupRequest(
                    group_id=config.group_id,
                    session_timeout_ms=config.session_timeout_ms,
                    rebalance_timeout_ms=config.max_poll_interval_ms,
                    member_id=self.membership.member_id,
                    group_instance_id=config.group_instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[
                        JoinGroupRequestProtocol(
                            name=name, metadata=encode_subscription(self._topics)
                        )
                        for name in ("range",)
                    ],
                ),
                JoinGroupResponse,
                lane=GROUP,
                # The broker answers when every member has come, or its rebalance time-out is over.
                timeout_ms=config.max_poll_interval_ms + 5_000,
            )
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.membership = Membership(response.member_id)
        _check(response.error_code, config.group_id)
        self.membership = Membership(response.member_id, response.generation_id)
        assignments: Mapping[str, list[TopicPartition]] = {}
        self._led_counts = None
        if response.leader == response.member_id:
            assignments = yield from self._assign(response)
        return (yield from self._sync(address, response, assignments))

    def _assign(self, response: JoinGroupResponse) -> Steps[Mapping[str, list[TopicPartition]]]:
        members: list[Member] = [
            decode_subscription(one.metadata, one.member_id, one.group_instance_id)
            for one in response.members
        ]
        topics = {topic for member in members for topic in member.topics}
        self._client.want(topics)
        view = yield from wait(self._client.refresh())
        counts = {topic: view.partition_count(topic) for topic in topics}
        self._led_counts = counts
        return assign_range(members, counts)

    def _sync(
        self,
        address: Address,
        joined: JoinGroupResponse,
        assignments: Mapping[str, list[TopicPartition]],
    ) -> Steps[list[TopicPartition]]:
        response = yield from wait(
            self._client.send(
                address,
                SyncGroupRequest(
                    group_id=self.config.group_id,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    group_instance_id=self.config.group_instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=joined.protocol_name,
                    assignments=[
                        SyncGroupRequestAssignment(
                            member_id=member_id, assignment=encode_assignment(partitions)
                        )
                        for member_id, partitions in assignments.items()
                    ],
                ),
                SyncGroupResponse,
                lane=GROUP,
                timeout_ms=self.config.max_poll_interval_ms + 5_000,
            )
        )
        _check(response.error_code, self.config.group_id)
        assignment = decode_assignment(response.assignment)
        self._client.want({topic for topic, _ in assignment})
        yield from wait(self._client.refresh())
        return assignment

    def _partitions_changed(self) -> bool:
        """Whether a topic that this leader assigned has more partitions now."""
        if self._led_counts is None:
            return False
        view = self._client.view
        return any(
            view.partition_count(topic) not in (0, count)
            for topic, count in self._led_counts.items()
        )

    # --- heartbeats --------------------------------------------------------------------------

    def _heartbeat(self, generation: int) -> Steps[None]:
        """Until this generation ends."""
        while True:
            yield self.config.heartbeat_interval_ms / 1000
            if self.membership.generation != generation or self._join is not None:
                return
            idle_ms = (time.monotonic() - self._polled_at) * 1000
            if idle_ms > self.config.max_poll_interval_ms:
                logger.warning(
                    "group %r: no poll for %d ms (max_poll_interval_ms=%d), so this member leaves; "
                    "poll more often or ask for fewer records at a time",
                    self.config.group_id,
                    idle_ms,
                    self.config.max_poll_interval_ms,
                )
                yield from self._leave_group()
                self._on_lost()
                return
            try:
                address = yield from self.find()
                response = yield from wait(
                    self._client.send(
                        address,
                        HeartbeatRequest(
                            group_id=self.config.group_id,
                            generation_id=generation,
                            member_id=self.membership.member_id,
                            group_instance_id=self.config.group_instance_id,
                        ),
                        HeartbeatResponse,
                        lane=GROUP,
                        timeout_ms=self.config.session_timeout_ms,
                    )
                )
            except (KafkaError, ConnectionFailed) as error:
                logger.info("group %r: heartbeat failed: %s", self.config.group_id, error)
                self.forget()
                continue
            if self.membership.generation != generation:
                return
            self._on_heartbeat(response.error_code)

    def _on_heartbeat(self, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin_needed = True
            self._wake()
        elif code in COORDINATOR_MOVED:
            self.forget()
        elif code:
            logger.info("group %r: %s", self.config.group_id, error_for(code))
            self._on_lost()

    def _on_lost(self) -> None:
        """The group goes on without this member; what it read belongs to others now."""
        self.membership = Membership()
        self.lost = True
        self.rejoin_needed = True
        self._wake()

    def _leave_group(self) -> Steps[None]:
        member_id = self.membership.member_id
        if self._address is None or not member_id:
            return
        request = LeaveGroupRequest(
            group_id=self.config.group_id,
            member_id=member_id,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=self.config.group_instance_id)
            ],
        )
        try:
            # Not in the group's lane, where a join of this member may be parked.
            yield from wait(self._client.send(self._address, request, LeaveGroupResponse))
        except ConnectionFailed as error:
            logger.info("group %r: not left properly: %s", self.config.group_id, error)

    @property
    def _backoff_s(self) -> float:
        return self._client.config.retry_backoff_ms / 1000


def _check(code: int, group_id: str) -> None:
    if code:
        raise error_for(code, f"group {group_id!r}: {error_for(code)}")

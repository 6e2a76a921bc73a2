"""One member's part of one rebalance: JoinGroup, the assignment if it leads, SyncGroup.

Invariants:
    It is retried, at the current coordinator, until the member has an assignment or is refused.
    A member that is unknown, or of a past generation, joins again; but if it owns partitions the
    rebalance ends first (None), so that they are handled as lost.
    If another member's metadata cannot be decoded, only that member is assigned no partitions.

Source: AbstractCoordinator.joinGroupIfNeeded and its response handlers, ConsumerCoordinator
onLeaderElected.

Not here: when a rebalance begins, and the use of the assignment (group_member).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from ...protocol.buffer import Buffer
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    FencedInstanceId,
    InconsistentGroupProtocol,
    KafkaError,
    MalformedRequest,
)
from ...protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ...protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import GROUP, ClusterClient, is_retriable
from ..wire.connection import Address
from ..wire.coordinator_lookup import COORDINATOR_MOVED
from .assignor import Assignor, withhold_owned
from .consumer_protocol import (
    NO_GENERATION,
    Member,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .leaving import leave_group
from .member_coordinator import MemberCoordinator
from .membership import PROTOCOL_TYPE, GroupConfig, Joined, Membership, refusal

logger = logging.getLogger(__name__)

MAX_REASON_LENGTH: Final = 255
"""Maximum length of a reason; the coordinator truncates longer ones (KIP-800)."""


class GroupJoin:
    """One rebalance. owned: the partitions that this member keeps, assigned in `generation`."""

    def __init__(
        self,
        client: ClusterClient,
        coordinator: MemberCoordinator,
        *,
        owned: tuple[TopicPartition, ...],
        generation: int,
        reason: str,
    ) -> None:
        self._client = client
        self._coordinator = coordinator
        self._config = coordinator.config
        self._owned = owned
        self._owned_generation = generation
        self._reason = reason[:MAX_REASON_LENGTH]
        self.is_sent = False
        """Whether JoinGroup was sent, so that the coordinator may end the generation."""
        self.cancelled = False
        """Whether the consumer has left: later answers do not make it a member again."""

    def run(self) -> Steps[Joined | None]:
        """Return the new assignment; None if the owned partitions are lost, since the group has
        removed this member, or if the join was cancelled.

        Raises:
            KafkaError: the coordinator refuses this member.
        """
        while not self.cancelled:
            if self._owned and self._coordinator.membership.generation == NO_GENERATION:
                return None
            try:
                joined = yield from self._try()
                if joined is not None:
                    return joined
            except (KafkaError, ConnectionFailed) as error:
                if not self.cancelled:
                    yield from self._on_error(error)
        return None

    def _on_error(self, error: KafkaError | ConnectionFailed) -> Steps[None]:
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            return  # the id is stored; join again with it (KIP-394)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            logger.info("group %r: %s; rejoining", self._config.group_id, error)
            self._coordinator.reset(keep_member_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif isinstance(error, FencedInstanceId):
            self._coordinator.on_fenced(error)
            raise error
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            if not is_retriable(error):
                raise error
            if code is None or code in COORDINATOR_MOVED:
                self._coordinator.lookup.forget()
            yield self._client.config.retry_backoff_ms / 1000

    def _try(self) -> Steps[Joined | None]:
        coordinator, config = self._coordinator, self._config
        address = yield from coordinator.lookup.find()
        if coordinator.subscription.pattern is not None:
            yield from wait(self._client.refresh())
        while coordinator.unsent_commits:  # commits that waited for the coordinator, too
            yield self._client.config.retry_backoff_ms / 1000
        coordinator.joined_topics = topics = coordinator.subscription.topics_in(self._client.view)
        coordinator.led_counts = None  # the next leader counts anew; a change is no reason by then
        self.is_sent = True
        sent_at = time.monotonic()
        response = yield from wait(
            self._client.send(
                address,
                JoinGroupRequest(
                    group_id=config.group_id,
                    session_timeout_ms=config.session_timeout_ms,
                    rebalance_timeout_ms=config.max_poll_interval_ms,
                    member_id=coordinator.membership.member_id,
                    group_instance_id=config.group_instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[
                        JoinGroupRequestProtocol(
                            name=assignor.name, metadata=self._metadata(assignor, topics)
                        )
                        for assignor in config.assignors
                    ],
                    reason=self._reason,
                ),
                JoinGroupResponse,
                lane=GROUP,
                timeout_ms=max(config.join_timeout_ms, self._client.config.request_timeout_ms),
            )
        )
        if self.cancelled:
            # The membership may be that of a later join by now: only this join's member id leaves.
            if config.group_instance_id is None:
                yield from leave_group(
                    self._client,
                    coordinator.lookup.address,
                    config,
                    response.member_id,
                    "it left while it joined",
                )
            return None
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            coordinator.membership = Membership(
                response.member_id, coordinator.membership.generation
            )
        _check(response.error_code, config)
        coordinator.metrics.on_join(sent_at)
        coordinator.membership = Membership(response.member_id, response.generation_id)
        assignor = self._assignor(response.protocol_name)
        assignments: dict[str, bytes] = {}
        coordinator.led_counts = None
        if response.leader == response.member_id:
            assignments = yield from self._assign(assignor, response)
        partitions = yield from self._sync(address, response, assignments)
        if self.cancelled:
            return None  # the coordinator got this id with LeaveGroup
        assignor.on_assignment(partitions, response.generation_id)
        self._request_metadata(partitions)
        return Joined(tuple(partitions), response.generation_id)

    def _metadata(self, assignor: Assignor, topics: tuple[str, ...]) -> bytes:
        return encode_subscription(
            topics,
            self._owned,
            user_data=assignor.user_data(self._owned),
            generation=self._owned_generation,
            rack_id=self._config.client_rack,
        )

    def _assignor(self, name: str | None) -> Assignor:
        for assignor in self._config.assignors:
            if assignor.name == name:
                return assignor
        raise InconsistentGroupProtocol(
            f"group {self._config.group_id!r}: the coordinator chose {name!r}, "
            "which this member did not offer"
        )

    def _assign(self, assignor: Assignor, response: JoinGroupResponse) -> Steps[dict[str, bytes]]:
        members = [
            self._member(one.metadata, one.member_id, one.group_instance_id)
            for one in response.members
        ]
        topics = {topic for member in members for topic in member.topics}
        self._client.want(topics)
        view = yield from wait(self._client.refresh())
        counts = {topic: view.partition_count(topic) for topic in topics}
        self._coordinator.led_counts = counts
        if response.skip_assignment:
            return {}  # a static leader is back, and nothing has changed (KIP-814)
        assignment = assignor.assign(members, counts)
        if assignor.cooperative:
            assignment = withhold_owned(assignment, members)
        logger.info(
            "group %r: generation %d of %d members, %s by this one: %s",
            self._config.group_id,
            response.generation_id,
            len(members),
            assignor.name,
            {member_id: len(partitions) for member_id, partitions in assignment.items()},
        )
        return {
            member.member_id: encode_assignment(assignment.get(member.member_id, ()))
            for member in members
        }

    def _member(self, metadata: Buffer, member_id: str, instance_id: str | None) -> Member:
        try:
            return decode_subscription(metadata, member_id, instance_id)
        except MalformedRequest as error:
            logger.warning(
                "group %r: member %r is assigned no partitions: %s",
                self._config.group_id,
                member_id,
                error,
            )
            return Member(member_id, (), instance_id=instance_id)

    def _sync(
        self, address: Address, joined: JoinGroupResponse, assignments: Mapping[str, bytes]
    ) -> Steps[list[TopicPartition]]:
        sent_at = time.monotonic()
        response = yield from wait(
            self._client.send(
                address,
                SyncGroupRequest(
                    group_id=self._config.group_id,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    group_instance_id=self._config.group_instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=joined.protocol_name,
                    assignments=[
                        SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                        for member_id, assignment in assignments.items()
                    ],
                ),
                SyncGroupResponse,
                lane=GROUP,
                timeout_ms=max(
                    self._config.join_timeout_ms, self._client.config.request_timeout_ms
                ),
            )
        )
        _check(response.error_code, self._config)
        self._coordinator.metrics.on_sync(sent_at)
        try:
            return decode_assignment(response.assignment)
        except MalformedRequest as error:
            raise InconsistentGroupProtocol(
                f"group {self._config.group_id!r}: the leader's assignment cannot be read: {error}"
            ) from None

    def _request_metadata(self, partitions: list[TopicPartition]) -> None:
        """Request metadata of assigned topics that this member does not know."""
        view = self._client.view
        new = self._client.want({topic for topic, _ in partitions})
        if new or any(partition >= view.partition_count(topic) for topic, partition in partitions):
            self._client.refresh()


def _check(code: int, config: GroupConfig) -> None:
    if code:
        raise refusal(code, config)

"""The heartbeats of one generation, on the I/O thread between polls; and both timeouts of a member.

A member that does not heartbeat for `session_timeout_ms` is removed by the coordinator: its process
has failed. A member that heartbeats but does not poll for `max_poll_interval_ms` leaves by itself,
and its next poll joins again: its application hangs (KIP-62). A static member does not leave, it
only stops its heartbeats, so that it may rejoin within its session.

Source: AbstractCoordinator.HeartbeatThread and HeartbeatResponseHandler.
"""

from __future__ import annotations

import logging
import time

from ...protocol.error_code import ErrorCode
from ...protocol.errors import ConnectionFailed, FencedInstanceId, KafkaError
from ...protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import GROUP, ClusterClient
from ..wire.coordinator_lookup import COORDINATOR_MOVED
from .leaving import leave_group
from .member_coordinator import MemberCoordinator
from .membership import refusal

logger = logging.getLogger(__name__)


class Heartbeats:
    """Heartbeats of one member; `polled` records that its application is alive."""

    def __init__(self, client: ClusterClient, coordinator: MemberCoordinator) -> None:
        self._client = client
        self._coordinator = coordinator
        self._round = 0
        self._polled_at = time.monotonic()

    def polled(self) -> None:
        """Record a poll of the application. From any thread."""
        self._polled_at = time.monotonic()

    def start(self) -> None:
        self.stop()
        self._client.io.spawn(self._run(self._round))

    def stop(self) -> None:
        """Stop heartbeats: in a rebalance the coordinator waits for JoinGroup and SyncGroup."""
        self._round += 1

    def _run(self, round_: int) -> Steps[None]:
        config = self._coordinator.config
        beat_at = time.monotonic() + config.heartbeat_interval_ms / 1000
        while True:
            dies_at = self._polled_at + config.max_poll_interval_ms / 1000
            yield max(0.0, min(beat_at, dies_at) - time.monotonic())
            if round_ != self._round:
                return
            now = time.monotonic()
            if now >= self._polled_at + config.max_poll_interval_ms / 1000:
                yield from self._on_poll_timeout(now)
                return
            if now < beat_at:
                continue
            beat_at = now + config.heartbeat_interval_ms / 1000
            yield from self._beat(round_)
            if round_ != self._round:
                return

    def _beat(self, round_: int) -> Steps[None]:
        coordinator = self._coordinator
        config, membership = coordinator.config, coordinator.membership
        try:
            address = yield from coordinator.lookup.find()
            sent_at = time.monotonic()
            response = yield from wait(
                self._client.send(
                    address,
                    HeartbeatRequest(
                        group_id=config.group_id,
                        generation_id=membership.generation,
                        member_id=membership.member_id,
                        group_instance_id=config.group_instance_id,
                    ),
                    HeartbeatResponse,
                    lane=GROUP,
                    timeout_ms=min(
                        config.session_timeout_ms, self._client.config.request_timeout_ms
                    ),
                )
            )
        except (KafkaError, ConnectionFailed) as error:
            logger.info("group %r: heartbeat failed: %s", config.group_id, error)
            coordinator.lookup.forget()
            yield self._client.config.retry_backoff_ms / 1000
            return
        coordinator.metrics.on_heartbeat(sent_at)
        if round_ == self._round and response.error_code:
            self._on_error(refusal(response.error_code, config, "heartbeat"))

    def _on_error(self, error: KafkaError) -> None:
        coordinator = self._coordinator
        if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
            coordinator.request_rejoin("the group is rebalancing")
        elif error.code in COORDINATOR_MOVED:
            coordinator.lookup.forget()
        elif isinstance(error, FencedInstanceId):
            coordinator.on_fenced(error)
        elif error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            logger.info("%s", error)
            coordinator.on_lost(keep_member_id=error.code == ErrorCode.ILLEGAL_GENERATION)
        elif not error.retriable:
            coordinator.fail(error)

    def _on_poll_timeout(self, now: float) -> Steps[None]:
        config = self._coordinator.config
        idle_ms = (now - self._polled_at) * 1000
        logger.warning(
            "group %r: no poll for %d ms (max_poll_interval_ms=%d), so this member %s; "
            "poll more often or ask for fewer records at a time",
            config.group_id,
            idle_ms,
            config.max_poll_interval_ms,
            "leaves" if config.group_instance_id is None else "stops its heartbeats",
        )
        if config.group_instance_id is None:
            member_id = self._coordinator.membership.member_id
            address = self._coordinator.lookup.address
            reason = "the consumer does not poll"
            yield from leave_group(self._client, address, config, member_id, reason)
        self._coordinator.on_lost()

"""AlterPartition manager: proposes ISRs of the partitions that this node leads to the controller.

Here an ISR shrinks and expands. Partitions are checked when a follower may have caught up, and
every half of replica.lag.time.max.ms for followers that have not. All proposals of one check go in
one AlterPartition request. One request is in flight at a time, and it is repeated until it is
answered: without an answer the decision of the controller is unknown, so until there is one both
the old ISR and the proposed one count (see cluster/partition/leader_state).
Source: apache/kafka server/.../AlterPartitionManager.java, ReplicaManager.maybeShrinkIsr.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ...cluster.control.alter_partition import (
    AlterPartition,
    Insync,
    PartitionState,
    ProposedIsr,
    Verdict,
    verdict_on,
)
from ...cluster.control.controller_request import DONE
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.partition.leader_state import LeaderState
from ...protocol.errors import ConnectionFailed, KafkaError, NotController, StaleBrokerEpoch
from ..effects import DeadlineMoved, Effects, SendControllerRequest

logger = logging.getLogger(__name__)

RETRY_MS = 100


class LeadingReplica(Protocol):
    """A replica of this node that leads or has led."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader(self) -> LeaderState | None: ...
    def on_isr(self, isr: Sequence[int], partition_epoch: int) -> None: ...
    def on_isr_refused(self) -> None: ...


class LeadingNode(Protocol):
    """Node whose partitions these are."""

    @property
    def node_id(self) -> int: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def lag_time_max_ms(self) -> int: ...
    @property
    def replicas(self) -> Iterable[LeadingReplica]: ...


class Proposal(NamedTuple):
    """A proposed ISR, and the replica whose leader counts it until it is answered."""

    replica: LeadingReplica
    proposed: ProposedIsr


class AlterPartitionManager:
    """AlterPartition requests of one incarnation of a node."""

    def __init__(self, node: LeadingNode, effects: Effects) -> None:
        self._node = node
        self._effects = effects
        # A dict for its order: that of a set depends on the memory addresses of its members.
        self._candidates: dict[LeadingReplica, None] = {}
        self._look_at_all_ms = 0
        self._unanswered: list[Proposal] = []
        self._retry_ms: int | None = None
        """Time of the next retry of unanswered proposals; None while a request is under way."""

    def look_at(self, replica: LeadingReplica) -> None:
        """Check a replica: one of its followers may be in sync now."""
        if not self._candidates:
            self._effects.append(DeadlineMoved(self))
        self._candidates[replica] = None

    def look_at_all(self) -> None:
        """Check all replicas: nodes have come or gone, so a follower may have become eligible."""
        self._look_at_all_ms = 0
        self._effects.append(DeadlineMoved(self))

    @property
    def next_deadline_ms(self) -> int | None:
        """See effects.TickingStep."""
        if self._unanswered:
            return self._retry_ms
        return 0 if self._candidates else self._look_at_all_ms

    def on_tick(self, now_ms: int) -> None:
        """Retry unanswered proposals; otherwise propose the due ISR changes."""
        if self._unanswered:
            if self._retry_ms is not None and now_ms >= self._retry_ms:
                self._send()
            return
        found: Iterable[LeadingReplica]
        found, self._candidates = self._candidates, {}
        if now_ms >= self._look_at_all_ms:
            found = list(self._node.replicas)
            self._look_at_all_ms = self._next_look_ms(found, now_ms)
        self._unanswered = self._proposals(found, now_ms)
        if self._unanswered:
            self._send()

    def _next_look_ms(self, replicas: Iterable[LeadingReplica], now_ms: int) -> int:
        """Time of the next check: after half the lag time, as in Kafka, or when the next lagging
        follower must leave the ISR.

        With Kafka's checks alone producers with acks=all wait up to half the lag time longer for
        a follower that makes no progress.
        """
        lag_ms = self._node.lag_time_max_ms
        look_ms = now_ms + lag_ms // 2
        for replica in replicas:
            if replica.leader is not None:
                expires_ms = replica.leader.next_to_leave_ms(lag_ms)
                if expires_ms is not None and now_ms < expires_ms < look_ms:
                    look_ms = expires_ms
        return look_ms

    def on_answer(self, answers: tuple[PartitionState, ...], now_ms: int) -> None:
        """Called with the controller's answers, in the order of the request."""
        self._unanswered = [
            proposal
            for proposal, answer in zip(self._unanswered, answers, strict=True)
            if not self._settle(proposal, answer)
        ]
        self._retry_ms = now_ms + RETRY_MS

    def on_failed(self, error: Exception, now_ms: int) -> None:
        """Called when the request has failed: a proposal counts until it is answered, so it is
        always retried.
        """
        if isinstance(error, (NotController, ConnectionFailed, StaleBrokerEpoch)):
            logger.info("retrying AlterPartition: %s", error)
        elif isinstance(error, KafkaError):
            logger.warning("AlterPartition failed: %s", error)
        else:
            logger.error("AlterPartition failed", exc_info=error)
        self._retry_ms = now_ms + RETRY_MS

    def _proposals(self, replicas: Iterable[LeadingReplica], now_ms: int) -> list[Proposal]:
        image = self._node.image

        def is_eligible(node_id: int, broker_epoch: int) -> bool:
            node = image.nodes.get(node_id)
            return node is not None and not node.fenced and broker_epoch in (-1, node.epoch)

        found = []
        for replica in replicas:
            leader = replica.leader
            topic = image.topics.get(replica.topic)
            if leader is None or topic is None or not leader.followers:
                continue
            isr = leader.propose(
                now_ms=now_ms, lag_time_max_ms=self._node.lag_time_max_ms, is_eligible=is_eligible
            )
            if isr is None:
                continue
            proposed = ProposedIsr(
                topic.topic_id,
                replica.partition,
                leader.leader_epoch,
                leader.partition_epoch,
                tuple(Insync(*each) for each in isr),
            )
            found.append(Proposal(replica, proposed))
        return found

    def _send(self) -> None:
        """Send the proposals with the current broker epoch: the node may have been registered again
        meanwhile.
        """
        self._retry_ms = None
        node = self._node.image.nodes.get(self._node.node_id)
        request = AlterPartition(
            node_id=self._node.node_id,
            broker_epoch=-1 if node is None else node.epoch,
            partitions=tuple(proposal.proposed for proposal in self._unanswered),
        )
        self._effects.append(SendControllerRequest(self, request))

    def _settle(self, proposal: Proposal, answer: PartitionState) -> bool:
        """Whether the answer settles the proposal; False: propose the same again."""
        replica, proposed = proposal
        where = f"{replica.topic}-{replica.partition}"
        verdict = verdict_on(replica.leader, proposed, answer)
        if answer.outcome != DONE:
            logger.info("%s: %s", where, answer.outcome.message)
        if verdict is Verdict.ADOPT:
            assert answer.partition is not None
            logger.info("%s: ISR is now %s", where, ", ".join(map(str, answer.partition.isr)))
            replica.on_isr(answer.partition.isr, answer.partition.partition_epoch)
        elif verdict is Verdict.KEEP_ISR:
            replica.on_isr_refused()
        return verdict is not Verdict.RETRY

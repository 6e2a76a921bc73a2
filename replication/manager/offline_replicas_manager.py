"""Offline replicas of this node, which the controller is to remove from the ISR.

    offline     in log directories that have failed
    given up    led here, with damage in uncommitted records: no replica has them, so they cannot
                be repaired, and followers cannot copy those behind them. Under the next leader they
                are truncated. Given up only if another replica is in the ISR or ELR, so that no
                committed records are lost

The request is sent at once when a directory has failed, and when an image makes this node lead an
offline partition; then again as long as no other replica can lead, as one may return or catch up.
One request is in flight at a time. An offline partition is in it until an image has this node out
of the ISR; one that was given up, until another node leads it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final, Protocol

from ...cluster.control.offline_replicas import OfflineReplica, RemoveOfflineReplicas
from ...cluster.metadata.metadata_image import MetadataImage, PartitionImage
from ...protocol.errors import ConnectionFailed, NotController, StaleBrokerEpoch
from ...protocol.topic_partition import TopicPartitionPair
from ..effects import DeadlineMoved, Effects, SendControllerRequest

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100
LOOK_AGAIN_MS: Final = 5_000
"""Pause before asking again about partitions without another eligible leader."""


class OfflineNode(Protocol):
    """Node whose directories these are."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def image(self) -> MetadataImage: ...


class OfflineReplicasManager:
    """RemoveOfflineReplicas requests of a node's incarnation; the caller maintains `offline`."""

    def __init__(
        self, node: OfflineNode, offline: Collection[TopicPartitionPair], effects: Effects
    ) -> None:
        self._node = node
        self._offline = offline
        self._given_up: dict[TopicPartitionPair, None] = {}
        self._effects = effects
        self._looks_at_ms: int | None = None
        self._is_asking = False

    def look(self) -> None:
        """Check soon: partitions may be offline while this node is in their ISR."""
        self._looks_at_ms = 0
        self._effects.append(DeadlineMoved(self))

    def give_up(self, key: TopicPartitionPair) -> None:
        """Resign the leadership of a partition in favour of another replica."""
        self._given_up[key] = None
        self.look()

    @property
    def next_deadline_ms(self) -> int | None:
        """See effects.TickingStep."""
        return None if self._is_asking else self._looks_at_ms

    def on_tick(self, now_ms: int) -> None:
        if self._is_asking or self._looks_at_ms is None or now_ms < self._looks_at_ms:
            return
        self._looks_at_ms = None
        replicas = self._counted_on()
        if replicas:
            self._is_asking = True
            request = RemoveOfflineReplicas(
                node_id=self._node.node_id,
                broker_epoch=self._node.broker_epoch,
                replicas=tuple(replicas),
            )
            self._effects.append(SendControllerRequest(self, request))
        elif self._given_up:
            self._looks_at_ms = now_ms + LOOK_AGAIN_MS

    def on_answer(self, answers: tuple[bool, ...], now_ms: int) -> None:
        """Called with the controller's answers: whether each replica is out of the ISR."""
        logger.info("%d offline replicas removed from the ISR", sum(answers))
        if not all(answers):
            logger.warning("%d partitions have no other eligible leader yet", answers.count(False))
        self._look_again(now_ms + LOOK_AGAIN_MS)

    def on_failed(self, error: Exception, now_ms: int) -> None:
        """Called when the request has failed; it may have been carried out, as an image shows."""
        is_expected = isinstance(error, NotController | ConnectionFailed | StaleBrokerEpoch)
        logger.log(
            logging.INFO if is_expected else logging.ERROR,
            "reporting offline replicas to the controller failed: %s",
            error,
            exc_info=None if is_expected else error,
        )
        self._look_again(now_ms + RETRY_MS)

    def _look_again(self, at_ms: int) -> None:
        self._is_asking = False
        if self._looks_at_ms is None:  # else `look` was called since the request was sent
            self._looks_at_ms = at_ms

    def _counted_on(self) -> list[OfflineReplica]:
        image, found = self._node.image, []
        for key in dict.fromkeys((*self._offline, *self._given_up)):
            state = image.partition(*key)
            if state is None or state.leader != self._node.node_id:
                self._given_up.pop(key, None)
            if state is None or self._node.node_id not in state.isr:
                continue
            if key in self._offline or self._may_be_given_up(key, state):
                found.append(OfflineReplica(image.topics[key[0]].topic_id, key[1]))
        return found

    def _may_be_given_up(self, key: TopicPartitionPair, state: PartitionImage) -> bool:
        """Whether another replica that has all committed records can lead the partition."""
        return key in self._given_up and bool({*state.isr, *state.elr} - {self._node.node_id})

"""Work of a member in a rebalance: on the consumer's thread, inside poll.

Invariants:
    Partitions are revoked when their started batches are finished and committed, after
    `revoke_timeout_ms` at the latest.
    Nothing of an assigned partition is read before its committed offset is known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from ...protocol.topic_partition import TopicPartition
from ..group.rebalance_listener import RebalanceListener
from .member_consumer import MemberConsumer
from .processing.member_config import MemberConfig
from .processing.work import MemberWork

logger = logging.getLogger(__name__)


class MemberRebalances(RebalanceListener):
    """Listener of a member. commit_finished: commits finished batches before a revocation.

    generation: that of the group when partitions were assigned last; -1: never yet.
    assigned_after_s: seconds from the start of the process to its first assignment.
    """

    def __init__(
        self,
        config: MemberConfig,
        work: MemberWork,
        consumer: MemberConsumer,
        commit_finished: Callable[[], None],
    ) -> None:
        self.generation = -1
        self.assigned_after_s: float | None = None
        self._started_at = time.monotonic()
        self._config = config
        self._work = work
        self._consumer = consumer
        self._commit_finished = commit_finished

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        consumer = self._consumer.current
        if consumer is None:
            return
        self._consumer.calm()
        committed = self._consumer.committed(partitions) if partitions else {}
        for key, position in self._work.on_assigned(committed).items():
            consumer.seek(key, position)
        if not self._work.has_room():
            consumer.pause(*partitions)
        self.generation = consumer.group_metadata().generation
        if self.assigned_after_s is None:
            self.assigned_after_s = time.monotonic() - self._started_at
        self._work.resume()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.calm()
        if not self._work.settle(partitions, self._config.revoke_timeout_ms / 1000):
            logger.warning(
                "member %s: %s revoked while a batch of it is being processed",
                self._config.instance_id,
                ", ".join(map(str, partitions)),
            )
        self._commit_finished()
        self._work.suspend(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._work.suspend(partitions)

"""Periodic tasks of the active controller. Kafka's PeriodicTask.

    nodes       those that were silent for a session are fenced; those without partitions get some
    unclean     partitions without a leader get one that may lack records, where that is allowed
    balance     preferred replicas lead again (auto.leader.rebalance.enable)
    tokens      expired delegation tokens are removed

No task starts until all changes of the previous tick are committed or have failed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from ...cluster.broker_config import BrokerConfig
from ...cluster.control.access.token_control import RemoveExpiredTokens
from ...cluster.control.automatic_rebalance import AutomaticRebalance
from ...cluster.control.controller_request import ConfigRules
from ...cluster.control.partition_control import PeriodicLeaderElection
from ...protocol.errors import NotController
from ..controller_effects import Instant
from ..quorum_times import QuorumTimes
from .change_queue import ChangeQueue
from .cluster_control import ClusterControl

logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Due times of the tasks, and the number of their changes that are not committed yet."""

    def __init__(
        self,
        config: BrokerConfig,
        rules: ConfigRules,
        times: QuorumTimes,
        changes: ChangeQueue,
        cluster: ClusterControl,
    ) -> None:
        self._config = config
        self._rules = rules
        self._times = times
        self._changes = changes
        self._cluster = cluster
        self._rebalance = AutomaticRebalance(config)
        self.next_deadline_ms: int | None = None
        """Time of the next tick; None: the controller is not active."""
        self._unclean_at_ms = 0
        self._balance_at_ms = 0
        self._tokens_at_ms = 0
        self._ticking = 0

    def begin(self, now: Instant) -> None:
        """Begin with an active controller."""
        self._ticking = 0
        self.next_deadline_ms = now.now_ms + self._times.tick_ms
        self._unclean_at_ms = now.now_ms + self._times.unclean_ms
        self._balance_at_ms = now.now_ms + self._balance_ms
        self._tokens_at_ms = now.now_ms  # at once: a short-lived controller would never check

    def stop(self) -> None:
        self.next_deadline_ms = None

    @property
    def _balance_ms(self) -> int:
        return self._config.leader_imbalance_check_interval_seconds * 1000

    def is_due(self, now: Instant) -> bool:
        """Whether it is time for a tick."""
        return self.next_deadline_ms is not None and now.now_ms >= self.next_deadline_ms

    def on_tick(self, now: Instant) -> None:
        """Begin the tasks that are due, unless the last ones' changes are not through yet."""
        self.next_deadline_ms = now.now_ms + self._times.tick_ms
        if self._ticking:
            return
        image = self._changes.image
        for node_id in self._cluster.sessions.expired(image, now_ms=now.now_ms):
            logger.warning("no heartbeat of node %d for a session: fencing it", node_id)
            self._ticking += 1
            self._cluster.fence(node_id, self._on_done, now)
        if now.now_ms >= self._unclean_at_ms:
            self._unclean_at_ms = now.now_ms + self._times.unclean_ms
            self._elect_leaders(now, is_balancing=False)
        if now.now_ms >= self._balance_at_ms:
            self._balance_at_ms = now.now_ms + self._balance_ms
            if self._config.auto_leader_rebalance_enable:
                self._elect_leaders(now, is_balancing=True)
        if now.now_ms >= self._tokens_at_ms:
            self._tokens_at_ms = now.now_ms + self._config.delegation_token_expiry_check_interval_ms
            self._remove_expired_tokens(now)
        if step := self._rebalance.next_step(self._changes.image, now.now_ms):
            decide = partial(step.decide, rules=self._rules)
            self._changes.submit(decide, self._rebalance.on_done, now)

    def _elect_leaders(self, now: Instant, *, is_balancing: bool) -> None:
        request = PeriodicLeaderElection(is_balancing=is_balancing)

        def then(changed: int | Exception, now: Instant) -> None:
            if changed and not isinstance(changed, Exception):
                how = "preferred replicas lead" if is_balancing else "unclean leader election"
                logger.warning("%d partitions: %s", changed, how)
            self._on_done(changed, now)

        self._ticking += 1
        self._changes.submit(lambda image: request.decide(image, self._rules), then, now)

    def _remove_expired_tokens(self, now: Instant) -> None:
        request = RemoveExpiredTokens(now_ms=now.wall_ms)

        def then(removed: int | Exception, now: Instant) -> None:
            if removed and not isinstance(removed, Exception):
                logger.info("removed %d expired delegation tokens", removed)
            self._on_done(removed, now)

        self._ticking += 1
        self._changes.submit(lambda image: request.decide(image, self._rules), then, now)

    def _on_done(self, answer: Any, now: Instant) -> None:
        del now
        self._ticking -= 1
        if isinstance(answer, Exception) and not isinstance(answer, NotController):
            logger.error("the controller's tick failed: %r", answer)

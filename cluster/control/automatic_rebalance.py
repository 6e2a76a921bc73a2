"""Automatic rebalance: moves partitions to nodes that have none, at a bounded rate.

Each step is a metadata change of its own, so that a new controller continues where the former one
stopped. The state is derived from the metadata:

    a node without replicas, no reassignments, no rate limit   set the rate limit, start moves
    the rate limit, reassignments under way                    wait
    the rate limit, no reassignments, more to move             start more moves
    the rate limit, no reassignments, nothing to move          remove the rate limit

It starts when the set of empty nodes has not changed for SETTLE_MS: often several nodes join.

The rate limit marks a rebalance of ours: the throttle rates of all nodes have exactly our value. If
an operator has set other rates, a manual move is under way or was abandoned, and nothing is done.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...protocol.errors import NotController
from ..broker_config import BrokerConfig
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import MetadataRecord
from .config_control import BROKER, TOPIC, ConfigChange, Operation, ResourceChanges, alter
from .controller_request import ConfigRules, ControllerRequest
from .rebalance import PartitionMove, Rebalance
from .throttled_moves import RATES, RECEIVERS, SENDERS, throttled_replicas

logger = logging.getLogger(__name__)

LOOK_MS = 1_000
SETTLE_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStep(ControllerRequest[tuple[PartitionMove, ...]]):
    """Request for the next rebalance step, if there is one; answered with the moves that start.

    bytes_per_second: rate limit at which each node sends, and receives, for new replicas.
    """

    bytes_per_second: int

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[PartitionMove, ...]]:
        is_begun = is_limited(image, self.bytes_per_second)
        if is_moving(image) or (not is_begun and _has_rates(image)):
            return [], ()
        records, moves = Rebalance().decide(image, rules)
        filled = {node_id for move in moves for node_id in move.after}
        if not is_begun and not filled & empty_nodes(image):
            return [], ()
        if not moves:
            return self._lifted(image, rules), ()
        return [*self._limited(image, rules, moves), *records], moves

    def _limited(
        self, image: MetadataImage, rules: ConfigRules, moves: tuple[PartitionMove, ...]
    ) -> list[MetadataRecord]:
        rate = str(self.bytes_per_second)
        records = _altered(image, rules, BROKER, "", Operation.SET, dict.fromkeys(RATES, rate))
        for topic, replicas in throttled_replicas(moves).items():
            listed = replicas.as_settings()
            records += _altered(image, rules, TOPIC, topic, Operation.APPEND, listed)
        return records

    def _lifted(self, image: MetadataImage, rules: ConfigRules) -> list[MetadataRecord]:
        nothing = dict.fromkeys(RATES)
        records = _altered(image, rules, BROKER, "", Operation.DELETE, nothing)
        for name, topic in sorted(image.topics.items()):
            listed = dict.fromkeys(each for each in (SENDERS, RECEIVERS) if each in topic.configs)
            if listed:
                records += _altered(image, rules, TOPIC, name, Operation.DELETE, listed)
        return records


class AutomaticRebalance:
    """Schedule of rebalance steps (bradbury.auto.rebalance). A part of the active controller."""

    def __init__(self, config: BrokerConfig) -> None:
        self._is_on = config.bradbury_auto_rebalance
        self._step = RebalanceStep(bytes_per_second=config.bradbury_auto_rebalance_bytes_per_second)
        self._look_at_ms = 0
        self._is_busy = False
        self._empty: set[int] = set()
        self._since_ms = 0
        self._decided_at_offset = -1

    def next_step(self, image: MetadataImage, now_ms: int) -> RebalanceStep | None:
        """Next step to carry out now, at most one per state of the metadata; None if there is none.
        Call `on_done` afterwards.
        """
        if not self._is_on or self._is_busy or now_ms < self._look_at_ms:
            return None
        self._look_at_ms = now_ms + LOOK_MS
        if image.offset == self._decided_at_offset or not self._is_due(image, now_ms):
            return None
        self._decided_at_offset = image.offset
        self._is_busy = True
        return self._step

    def on_done(self, answer: tuple[PartitionMove, ...] | Exception, now: object) -> None:
        """Called with the moves that the step started, or with its exception."""
        del now
        self._is_busy = False
        if isinstance(answer, NotController):
            return
        if isinstance(answer, Exception):
            logger.warning("moving partitions to new nodes failed: %s", answer)
        elif answer:
            logger.info("moving %d partitions to nodes that have joined", len(answer))

    def _is_due(self, image: MetadataImage, now_ms: int) -> bool:
        if is_limited(image, self._step.bytes_per_second):
            return not is_moving(image)
        empty = empty_nodes(image)
        if empty != self._empty:
            self._empty, self._since_ms = empty, now_ms
        return bool(empty) and now_ms - self._since_ms >= SETTLE_MS


def empty_nodes(image: MetadataImage) -> set[int]:
    """Nodes that may hold partitions but have no replicas."""
    may = {node.node_id for role in ("partition", "group") for node in image.nodes_for(role)}
    for topic in image.topics.values():
        for partition in topic.partitions:
            may.difference_update(partition.replicas)
            if not may:
                return may
    return may


def is_moving(image: MetadataImage) -> bool:
    """Whether any replica is being moved."""
    return any(
        partition.is_reassigned for topic in image.topics.values() for partition in topic.partitions
    )


def is_limited(image: MetadataImage, bytes_per_second: int) -> bool:
    """Whether the rates of a step are still set at `bytes_per_second`, so that a step was started
    and is not finished.
    """
    rates = image.broker_configs.get("", {})
    return all(rates.get(name) == str(bytes_per_second) for name in RATES)


def _has_rates(image: MetadataImage) -> bool:
    rates = image.broker_configs.get("", {})
    return any(name in rates for name in RATES)


def _altered(
    image: MetadataImage,
    rules: ConfigRules,
    resource_type: int,
    name: str,
    operation: Operation,
    values: dict[str, str] | dict[str, None],
) -> list[MetadataRecord]:
    changes = tuple(ConfigChange(key, operation, value) for key, value in values.items())
    resource = ResourceChanges(resource_type=resource_type, name=name, changes=changes)
    return alter(image, resource, rules)

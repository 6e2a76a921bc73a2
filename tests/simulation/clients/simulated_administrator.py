"""An administrator who changes settings, quotas and topics, and what every node makes of it.

S1  a setting that was acknowledged is the committed one, or one that was asked for without an
    answer
S2  at rest the logs of every node use the settings that their topics have
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from bradbury.cluster.control.client_quota_control import AlterClientQuotas, QuotaChange
from bradbury.cluster.control.config_control import (
    BROKER,
    TOPIC,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from bradbury.cluster.control.controller_request import RequestOutcome
from bradbury.cluster.control.partition_control import CreatePartitions, NewPartitions
from bradbury.cluster.control.rebalance import Rebalance
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.quotas.quota_entity import USER
from bradbury.controller.controller_calls import Change

from ..world.simulated_topic_configs import TOPIC as WRITTEN_TOPIC
from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

MOST_PARTITIONS: Final = 6
VALUES: Final = {
    "max.message.bytes": ("500000", "900000", None),
    "index.interval.bytes": ("1", "4096", None),
    "delete.retention.ms": ("60001", "60002", None),
    "cleanup.policy": ("delete", None),
    "segment.bytes": ("12", "x", None),  # refused
}
BROKER_VALUES: Final = {"log.index.interval.bytes": ("100", "4096", None)}


class Administrator:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._random = Random(f"administrator {cluster.seed}")
        self._acknowledged: dict[str, str | None] = {}
        self._unanswered: dict[str, set[str | None]] = {}

    def act(self) -> None:
        """One change of some kind."""
        random = self._random
        random.choice(
            (
                self._change_topic,
                self._change_topic,
                self._change_brokers,
                self._change_quota,
                self._add_partition,
                self._rebalance,
            )
        )()

    def _ask(self, request: Any, answered: Any = lambda answer: None) -> None:
        controller = self._cluster.current
        if controller is not None and controller.process.is_up:
            controller.ask(Change(request, timeout_ms=50), answered)

    def _change_topic(self) -> None:
        name = self._random.choice(list(VALUES))
        value = self._random.choice(VALUES[name])
        self._unanswered.setdefault(name, set()).add(value)
        kind = Operation.DELETE if value is None else Operation.SET
        change = ResourceChanges(
            resource_type=TOPIC,
            name=WRITTEN_TOPIC,
            changes=(ConfigChange(name, kind, value),),
        )

        def answered(answer: Any) -> None:
            if isinstance(answer, tuple):
                [outcome] = answer
                assert isinstance(outcome, RequestOutcome)
                if not outcome.code:
                    self._acknowledged[name] = value
                    self._check(name)

        self._ask(AlterConfigs(resources=(change,)), answered)

    def _change_brokers(self) -> None:
        name = self._random.choice(list(BROKER_VALUES))
        value = self._random.choice(BROKER_VALUES[name])
        kind = Operation.DELETE if value is None else Operation.SET
        which = self._random.choice(("", *map(str, self._cluster.nodes), "99", "nobody"))
        changes = (ConfigChange(name, kind, value),)
        change = ResourceChanges(resource_type=BROKER, name=which, changes=changes)
        self._ask(AlterConfigs(resources=(change,)))

    def _change_quota(self) -> None:
        entity = ((USER, self._random.choice(("ann", "bob", None))),)
        value = self._random.choice((1_000.0, 2_000.0, None))
        change = QuotaChange("producer_byte_rate", value)
        self._ask(AlterClientQuotas(entries=((entity, (change,)),)))

    def _add_partition(self) -> None:
        topic = self._cluster.oracle.image.topics.get(WRITTEN_TOPIC)
        if topic is not None and len(topic.partitions) < MOST_PARTITIONS:
            more = NewPartitions(WRITTEN_TOPIC, len(topic.partitions) + 1)
            self._ask(CreatePartitions(topics=(more,), is_repeated=self._random.random() < 0.2))

    def _rebalance(self) -> None:
        self._ask(Rebalance(most=self._random.choice((1, 1_000))))

    # --- what has become of it -------------------------------------------------------------------

    def _check(self, name: str) -> None:
        found = _configs(self._cluster.oracle.image).get(name)
        possible = {self._acknowledged[name], *self._unanswered[name]}
        if found not in possible:
            raise Violation("S1", f"{name} is {found!r}, and none of {sorted(map(str, possible))}")

    def check_end(self) -> None:
        for name in self._acknowledged:
            self._check(name)

    @property
    def unsettled(self) -> str | None:
        newest = self._cluster.oracle.image
        for node in self._cluster.nodes.values():
            if _configs(node.image) != _configs(newest):
                return f"S2: node {node.node_id} has settings {_configs(node.image)}"
            for replica in node.replicas.values():
                topic = node.image.topics.get(replica.partition_id[0])
                if topic is not None and replica.log.config != node.steps.log_configs.of(topic):
                    return f"S2: {replica} uses {replica.log.config}"
        return None


def _configs(image: MetadataImage) -> dict[str, str]:
    topic = image.topics.get(WRITTEN_TOPIC)
    return {} if topic is None else dict(topic.configs)

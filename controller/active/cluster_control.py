"""Nodes of the cluster as the active controller sees them: registered, fenced, in service.

A node is fenced when its session has expired, when it leaves, or when another node cannot reach it
and its port is closed; it is in service again when it polls for metadata.

Source: ClusterControlManager.java, BrokerHeartbeatManager.java in apache/kafka. The records of each
change: cluster/control/controller_state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...cluster.control import controller_state
from ...cluster.control.controller_request import ConfigRules
from ...cluster.control.controller_state import Sessions
from ...cluster.control.partition_control import may_be_unclean, min_insync_replicas
from ...cluster.metadata.metadata_image import MetadataImage, NodeImage
from ...cluster.metadata.metadata_records import MetadataRecord
from ...steps.replies import Refuse, Reply
from ..controller_calls import RegisterBroker, Registered
from ..controller_effects import Instant, ProbePort
from .change_queue import ChangeQueue, Then, answering

logger = logging.getLogger(__name__)


class ClusterControl:
    """Soft state: the sessions of the nodes, and whose ports are being probed."""

    def __init__(
        self, session_ms: int, rules: ConfigRules, changes: ChangeQueue, effects: list[Any]
    ) -> None:
        self._session_ms = session_ms
        self._rules = rules
        self._changes = changes
        self._effects = effects
        self._probing: set[int] = set()
        self.sessions = Sessions(session_ms)

    def begin(self) -> None:
        """Begin a controller epoch: all sessions restart."""
        self.sessions = Sessions(self._session_ms)
        self._probing.clear()

    def register(self, ticket: Any, call: RegisterBroker, now: Instant) -> None:
        """Register a node; answered with Registered once it is durable."""
        request = call.registration

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            node_id, records = controller_state.register_node(
                image,
                request,
                min_insync=partial(min_insync_replicas, image, self._rules),
                is_unclean=partial(may_be_unclean, image, self._rules),
            )
            return records, node_id

        def then(answer: int | Exception, now: Instant) -> None:
            if isinstance(answer, Exception):
                self._effects.append(Refuse(ticket, answer))
                return
            self.sessions.on_contact(answer, now_ms=now.now_ms)
            logger.info("node %d (%s) registered", answer, ",".join(request.roles))
            changes = self._changes
            registered = Registered(answer, changes.image.cluster_id, changes.me.epoch)
            self._effects.append(Reply(ticket, registered))

        self._changes.submit(decide, then, now)

    def suspect(self, ticket: Any, node_id: int) -> None:
        """Fence a node that another node cannot reach, if nothing listens on its port."""
        node = self._changes.image.nodes.get(node_id)
        if node is None or node.fenced or node_id in self._probing:
            self._effects.append(Reply(ticket, None))
            return
        self._probing.add(node_id)
        then = partial(self._on_probed, ticket, node)
        self._effects.append(ProbePort(node.host, node.port, then))

    def _on_probed(self, ticket: Any, node: NodeImage, is_dead: bool, now: Instant) -> None:
        self._probing.discard(node.node_id)
        known = self._changes.image.nodes.get(node.node_id)
        if is_dead is True and known is not None and known.epoch == node.epoch:
            logger.warning("connection refused by node %d: fencing it", node.node_id)
            self.fence(node.node_id, answering(ticket, self._effects), now)
        else:
            self._effects.append(Reply(ticket, None))

    def fence(self, node_id: int, then: Then, now: Instant, *, fenced: bool = True) -> None:
        """Fence a node, or bring it back into service."""

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            records = controller_state.fence_node(
                image,
                node_id,
                fenced=fenced,
                min_insync=partial(min_insync_replicas, image, self._rules),
                is_unclean=partial(may_be_unclean, image, self._rules),
            )
            return records, None

        self._changes.submit(decide, then, now)

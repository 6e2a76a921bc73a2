"""The controller's watch over Ray's nodes: starts the actors of each node that joins.

Ray is polled for its nodes every WATCH_SECONDS, in a thread; its answer is a hint, and a failed
poll is retried. Nothing here needs fencing: an actor's name and its pins follow from its Ray node
alone, and Ray gives a name to one actor only, so two controllers that both poll start a broker
once. The identity of a node's data is in the node's own directory.

Where nodes need certificates (`up --secure`), one that joins gets its own before its broker, and
all are checked every RENEWAL_SECONDS: a certificate that expires soon is replaced.

Invariants:
    The name of a node that left stays its own: no actor is started for it elsewhere, none stopped.
    A node that Ray drains gets neither a broker nor a certificate.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import ray

from ...cluster.metadata.metadata_image import MetadataImage
from ...controller.node.controller_finder import BROKER_PREFIX
from ...handlers.ports.server_config import ServerConfig
from .placement import ActorPlan, Address, JoinedNodes, Placement, plan_joined
from .ray_nodes import DrainingNodes, living_nodes

logger = logging.getLogger(__name__)

WATCH_SECONDS = 2.0
PATIENCE_SECONDS = 10.0
"""Seconds between two polls while Ray does not answer."""

RENEWAL_SECONDS = 12 * 3600.0
FIRST_RENEWAL_SECONDS = 15.0
"""Seconds from the start of a controller to its first renewal; `up` has just renewed them."""

Start = Callable[[ActorPlan], object]
"""Function that creates a broker and its siblings; it blocks."""
Certify = Callable[[Sequence[ActorPlan]], object]
"""Function that gives brokers' nodes valid certificates; blocks. Its errors have one line."""


class NodeWatch:
    """Watch over Ray's nodes. `run` it while the controller is active; `stop` it."""

    def __init__(
        self,
        namespace: str,
        placement: Placement,
        server: ServerConfig,
        start: Start,
        certify: Certify | None = None,
    ) -> None:
        """`certify`: None if nodes need no certificates from us."""
        self._namespace = namespace
        self._placement = placement
        self._server = server
        self._start = start
        self._certify = certify
        self._renew_at = time.monotonic() + FIRST_RENEWAL_SECONDS
        self._draining = DrainingNodes()
        self._stopped = asyncio.Event()
        self._looking: asyncio.Future[JoinedNodes] | None = None
        self.left_out: Mapping[str, str] = {}
        """Reasons why Ray nodes of the cluster get no broker, by the nodes' names."""

    async def run(self, image: Callable[[], MetadataImage]) -> None:
        """Run until it is stopped. `image`: returns the newest metadata image."""
        seconds = WATCH_SECONDS
        while not self._stopped.is_set():
            brokers = {
                node.machine_name: (node.host, node.port)
                for node in image().nodes.values()
                if "broker" in node.roles
            }
            self._looking = asyncio.ensure_future(
                asyncio.to_thread(self._start_missing_brokers, brokers)
            )
            try:
                self._note(await self._looking)
                seconds = WATCH_SECONDS
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises: it is asked again
                if seconds == WATCH_SECONDS:
                    logger.warning("asking Ray for new nodes failed, retrying: %s", error)
                seconds = PATIENCE_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Stop; when it returns, nothing is being started any more."""
        self._stopped.set()
        if self._looking is not None:
            await asyncio.wait({self._looking})

    def _start_missing_brokers(self, brokers: Mapping[str, Address]) -> JoinedNodes:
        """Start the brokers that are missing. Runs in a thread."""
        started = {
            str(entry["name"]).removeprefix(BROKER_PREFIX)
            for entry in ray.util.list_named_actors(all_namespaces=True)
            if entry["namespace"] == self._namespace
            and str(entry["name"]).startswith(BROKER_PREFIX)
        }
        going = self._draining.deadlines_ms()
        nodes = [node for node_id, node in living_nodes().items() if node_id not in going]
        joined = plan_joined(nodes, self._placement, self._server, started=started, brokers=brokers)
        left_out = dict(joined.left_out)
        for broker in joined.plans:
            problem = self._certified([broker])
            if problem is not None:
                left_out[broker.config.name] = problem
            elif not self._stopped.is_set():
                logger.info("Ray node %s has joined: starting its broker", broker.config.name)
                self._start(broker)
        if self._certify is not None and time.monotonic() > self._renew_at:
            self._renew_at = time.monotonic() + RENEWAL_SECONDS
            everyone = plan_joined(
                nodes, self._placement, self._server, started=(), brokers=brokers
            )
            problem = self._certified(everyone.plans)  # at once: others may join meanwhile
            if problem is not None:
                logger.warning("expiring certificates could not be renewed: %s", problem)
        return JoinedNodes(joined.plans, left_out)

    def _certified(self, brokers: Sequence[ActorPlan]) -> str | None:
        """Certify the brokers' nodes; returns the reason of a failure, or None. In a thread."""
        if self._certify is not None:
            try:
                self._certify(brokers)
            except Exception as error:  # noqa: BLE001 -- one node's trouble is not the others'
                return str(error)
        return None

    def _note(self, joined: JoinedNodes) -> None:
        for name, reason in joined.left_out.items():
            if self.left_out.get(name) != reason:
                logger.warning("Ray node %s gets no broker: %s", name, reason)
        self.left_out = joined.left_out

"""The processes of a cluster on Ray: thin shells around Node and Controller.

Rules learned from failures on Ray: `__init__` never raises, or a restarted actor stays DEAD for
good; SystemExit must never reach the event loop, or the actor lives on as a zombie; a process is
ended with os._exit, and Ray restarts the actor in about a second. Ray does not promise one instance
per name: locks protect the directories, epochs and incarnations fence the rest.

Plain classes; launch/actors makes them remote.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray

from ...controller.candidate_state import Superseded
from ...controller.controller_calls import ControllerCall
from ...controller.node.controller_finder import BROKER_PREFIX
from ...controller.voter_requests import QuorumRequest
from ...handlers.ports.server_config import ServerConfig
from ...protocol.errors import ConnectionFailed, InvalidConfig, KafkaError, NotController
from ...storage.disk.storage_failure import DataDirectoryError
from ..controller.controller import Controller
from ..controller.controller_handle import ControllerHandle
from ..controller.handles import RayActors, find_voters
from ..controller.standby import Standby
from ..controller.voter_host import VoterHost
from ..loop.heap import heap
from ..network.acceptor import PortInUse
from ..node import Node, NodeConfig
from .departure import Departure
from .node_watch import Certify, NodeWatch, Start
from .placement import Placement
from .ray_drain import RayDrain
from .ray_metrics import RayMetrics
from .secure_folder import CLIENT_FILE, FOLDER, NODE_FILE

RETRY_SECONDS = 0.5
WATCH_SECONDS = 5.0
EXIT_BUG = 70
EXIT_FENCED = 71
EXIT_DRAINED = 72


def leave(code: int, reason: str) -> None:
    """End this process so that Ray starts it again; the only safe way out of an actor."""
    print(f"bradbury: leaving, {reason}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(code)


class _Shell:
    """Base of actors: background work whose failure ends the process instead of vanishing."""

    def __init__(self) -> None:
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._problem: str | None = "is starting"

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 -- SystemExit, too, must end the process
                traceback.print_exc()
                leave(EXIT_BUG, repr(error))

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def problem(self) -> str | None:
        """Description of what the actor waits for; None while it serves."""
        return self._problem


def _in_words(error: Exception) -> str:
    """Text of an error that waiting does not solve, with a remedy after a semicolon: `up`
    (launch/actors) fails on a text with a semicolon, and waits on one without.
    """
    text = str(error)
    if f"/{FOLDER}/{NODE_FILE}" in text:
        return f"{text}; `bradbury up --secure` again gives this node its certificate"
    return text if ";" in text else f"{text}; correct that, it is tried again"


class NodeActor(_Shell):
    """Actor of one node. Retries recoverable errors forever, and reports them meanwhile."""

    def __init__(self, config: NodeConfig, namespace: str) -> None:
        super().__init__()
        config = config.moved_to(ray._private.worker.global_worker.node_ip_address)
        self._config = config
        self._controller = ControllerHandle(RayActors(namespace), lambda: self._node.image)
        self._node = Node(
            config,
            self._controller,
            on_fenced=lambda reason: leave(EXIT_FENCED, reason),
        )
        self._departure = Departure(
            self._node,
            self._controller,
            config.machine,
            is_broker="broker" in config.roles,
            on_end=lambda reason: leave(EXIT_DRAINED, reason),
            on_fault=lambda error: leave(EXIT_BUG, repr(error)),
        )
        self._spawn(self._main())
        self._spawn(self._leave_when_drained())

    def __repr__(self) -> str:
        """Name that identifies the actor in Ray's dashboard and before each line of its log."""
        return f"{type(self).__name__}({self._config.name}, {self._config.directory})"

    async def _main(self) -> None:
        heap.own_process()
        while True:
            try:
                await self._node.open()
                break
            except (DataDirectoryError, PortInUse, InvalidConfig) as error:
                self._problem = _in_words(error)
                await self._node.close()
                await asyncio.sleep(RETRY_SECONDS)
        self._problem = "waits for the controller"
        while True:
            try:
                await self._node.join()
                break
            except KafkaError as error:
                is_ours = isinstance(error, InvalidConfig)
                self._problem = _in_words(error) if is_ours else str(error)
                await asyncio.sleep(RETRY_SECONDS)
        self._problem = None
        self._spawn(RayMetrics(self._node, self._config.name).run())

    async def _leave_when_drained(self) -> None:
        """Ray creates the actor again when its machine is back."""
        departure = self._departure
        await RayDrain().follow(
            lambda left_ms, leaving: departure.on_notice(
                left_ms, leaving, is_serving=self._problem is None
            ),
            departure.on_withdrawn,
        )

    async def problem(self) -> str | None:
        return self._departure.problem or self._problem

    async def address(self) -> str:
        return self._node.address

    async def status(self) -> dict[str, object]:
        return {**self._node.status(), "problem": await self.problem()}

    async def stop(self) -> None:
        """Flush everything to the disk. The caller kills the process afterwards."""
        await self._node.close()


class PartitionActor(NodeActor):
    """Actor that hosts partitions of topics."""


class GroupCoordinatorActor(NodeActor):
    """Actor that hosts partitions of __consumer_offsets and coordinates their groups."""


class BrokerActor(NodeActor):
    """Actor with the node's well-known address and metadata log; it watches the node's actors."""

    def __init__(
        self, config: NodeConfig, namespace: str, start_siblings: Callable[[], object]
    ) -> None:
        super().__init__(config, namespace)
        self._start_siblings = start_siblings
        self._standby = Standby(
            lambda on_superseded: Controller(
                lambda: find_voters(namespace),
                config.server,
                now_ms=self._node.now_ms,
                on_superseded=on_superseded,
                name=f"{BROKER_PREFIX}{config.name}",
            ),
            voter=self._voter,
            image=lambda: self._node.image,
            candidacy=self._controller.candidacy,
            on_vote_granted=self._controller.find_controller_again,
        )
        self._spawn(self._watch())
        self._standby.start()

    async def _watch(self) -> None:
        """Create siblings again that are DEAD; Ray itself restarts all others."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await asyncio.to_thread(self._start_siblings)
            except Exception:  # noqa: BLE001 -- the watch goes on after any error of Ray
                traceback.print_exc()

    async def ask_standby(self, call: ControllerCall[Any]) -> Any:
        """Answer a call to the controller while this broker runs a standby; see standby."""
        return await self._standby.controller().ask(call)

    async def describe_standby(self) -> dict[str, Any] | None:
        """Like ControllerActor.describe without settings and pid; None without active standby."""
        try:
            return _description_of(self._standby.controller())
        except NotController:
            return None

    async def stop(self) -> None:
        await self._standby.close()
        await super().stop()

    def _voter(self) -> VoterHost:
        voter = self._node.storage.voter
        if voter is None or not voter.is_open:
            raise ConnectionFailed(f"the broker {self._problem}")
        return voter

    async def ask_voter(self, request: QuorumRequest[Any]) -> Any:
        return await self._voter().ask(request)


class ControllerActor(_Shell):
    """Actor of the controller. Holds no durable state: its log is on the voters' disks."""

    def __init__(
        self,
        namespace: str,
        settings: dict[str, Any],
        placement: Placement,
        start: Start,
        certify: Certify | None = None,
    ) -> None:
        """`start`: creates the actors of a Ray node that has joined. `certify`: see NodeWatch."""
        super().__init__()
        self._namespace = namespace
        self.settings = settings
        self._placement = placement
        server = ServerConfig.from_kafka(settings["config"])
        self._watch = (
            NodeWatch(namespace, placement, server, start, certify)
            if server.broker.bradbury_auto_join
            else None
        )
        self._controller = Controller(
            lambda: find_voters(namespace),
            server,
            now_ms=lambda: time.time_ns() // 1_000_000,
            on_superseded=lambda: leave(EXIT_FENCED, "a newer controller took over"),
        )
        self._spawn(self._main())
        self._spawn(self._leave_when_drained())

    async def _leave_when_drained(self) -> None:
        """Leave at once: Ray starts the actor elsewhere, and this machine's nodes wait for it."""
        await RayDrain().wait()
        reason = "its Ray node is being drained"
        self._controller.resign(reason)
        leave(EXIT_DRAINED, reason)

    async def _main(self) -> None:
        while True:
            try:
                await self._controller.start()
                break
            except (ConnectionFailed, Superseded) as error:
                self._problem = str(error)
                await asyncio.sleep(RETRY_SECONDS)
        self._problem = None
        if self._watch is not None:
            await self._watch.run(lambda: self._controller.image)

    async def problem(self) -> str | None:
        if self._problem is None:
            return None
        waiting_for = self._controller.waiting_for
        return f"waiting for {waiting_for}" if waiting_for else self._problem

    async def describe(self) -> dict[str, Any]:
        """Description for `up` and `status`: settings, epoch, nodes, counts."""
        return {
            "settings": self.settings,
            "placement": asdict(self._placement),
            "left_out": {} if self._watch is None else dict(self._watch.left_out),
            "pid": os.getpid(),
            **_description_of(self._controller),
        }

    async def client_config(self) -> tuple[str, str]:
        """Path of the client file that `up --secure` keeps on nodes, or ""; and the brokers."""
        own = self.settings["config"].get("ssl.keystore.location", "")
        path = str(Path(own).with_name(CLIENT_FILE)) if own.endswith(f"/{NODE_FILE}") else ""
        return path, await self.bootstrap_servers()

    async def bootstrap_servers(self) -> str:
        """host:port of the nodes that clients bootstrap from: brokers, or any if there are none."""
        if not self._controller.is_active:
            raise NotController(f"the controller is waiting for {self._controller.waiting_for}")
        image = self._controller.image
        nodes = image.live_nodes("broker") or image.live_nodes()
        return ",".join(f"{node.host}:{node.port}" for node in nodes)

    async def ask(self, call: ControllerCall[Any]) -> Any:
        return await self._controller.ask(call)

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.stop()
        await self._controller.close()


def _description_of(controller: Controller) -> dict[str, Any]:
    image = controller.image
    health = controller.health()
    return {
        "cluster_id": image.cluster_id,
        "epoch": image.epoch,
        "metadata_offset": image.offset,
        "voters": controller.voters,
        "active": controller.is_active,
        "topics": len(image.topics),
        "partitions": health.partitions,
        "leaderless": health.leaderless,
        "under_replicated": health.under_replicated,
        "under_min_isr": health.under_min_isr,
        "at_min_isr": health.at_min_isr,
        "reassigned": health.reassigned,
        "nodes": [
            {
                "node_id": node.node_id,
                "roles": list(node.roles),
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "machine": node.machine_name,
                "metadata_directory_id": node.metadata_directory_id,
                "draining": node.machine_name in image.draining,
                "fenced": node.fenced,
                "leaders": health.leaders[node.node_id],
                "replicas": health.replicas[node.node_id],
            }
            for node in image.nodes.values()
        ],
    }

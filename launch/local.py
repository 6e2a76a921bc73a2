"""A whole cluster in this process: the same nodes and controller, with sockets and files, no Ray.

    with bradbury.local() as cluster:
        producer = bradbury.Producer(bootstrap=cluster.bootstrap_servers)

One background thread runs the event loop of all nodes. Each of `nodes` is a Kafka node with every
role. Made for tests, notebooks and small tools; ready in a fraction of a second. With `processes`
partitions are served by nodes in processes of their own, for tests that need more than one core.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import uvloop

from ..actors.controller.controller import Controller
from ..actors.node import Node, NodeConfig
from ..actors.ray.placement import PARTITION_DIRECTORY
from ..cluster.security.listener_config import SecurityProtocol
from ..controller.candidate_state import Superseded
from ..handlers.ports.server_config import ServerConfig
from ..protocol.errors import InvalidConfig
from ..storage.disk.storage_failure import DataDirectoryError
from .processes.hosted_node import is_in_service
from .processes.node_process import NodeProcess
from .secure.listener_checks import refuse_open_listeners

if TYPE_CHECKING:
    from ..clients.admin.admin import Admin
    from ..clients.security.security_options import SecurityOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")
DataDirectories = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
START_SECONDS = 60.0
LOOK_SECONDS = 0.005
LEAVE_SECONDS = 1.0
# No other process is about to join a group, so its first member need not wait.
DEFAULTS = {"group.initial.rebalance.delay.ms": 0}


class LocalCluster:
    """Cluster in this process; see `local`. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        data_dir: DataDirectories | None,
        *,
        host: str,
        port: int,
        nodes: int,
        processes: int,
        config: Mapping[str, Any] | None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a cluster needs at least one node, not {nodes}")
        if processes < 0:
            raise ValueError(f"the number of processes must be 0 or more, not {processes}")
        self._server = ServerConfig.from_kafka(DEFAULTS | dict(config or {}))
        if nodes > 1:
            self._server.security.check_for_several_nodes()
        self._temporary = tempfile.mkdtemp(prefix="bradbury-") if data_dir is None else None
        given = data_dir or self._temporary or ""
        several = (given,) if isinstance(given, str | os.PathLike) else given
        self._data_dirs = tuple(os.fspath(each) for each in several)
        self.data_dir = self._data_dirs[0]
        self._host = host
        self._port = port
        self._node_count = nodes
        self._process_count = processes
        self.nodes: list[Node] = []
        self.processes: list[list[NodeProcess]] = []
        """Processes of each node, by the node's index."""
        self.controller: Controller | None = None
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._leading: asyncio.Task[None] | None = None
        self._restart_reason = ""
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="bradbury-local", daemon=True
        )
        self._thread.start()
        self._owner = os.getpid()
        if self._temporary is not None:
            atexit.register(self._remove_at_exit)
        try:
            self._start_in_time()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"LocalCluster({self.bootstrap_servers!r})"

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every running node, separated by commas."""
        return ",".join(node.address for node in self.nodes if node.is_open)

    def bootstrap_servers_of(self, listener: str) -> str:
        """host:port of every running node, at the listener with this name.

        Raises:
            KeyError: there is no such listener.
        """
        return ",".join(
            f"{node.advertised_host}:{node.socket_server.ports()[listener]}"
            for node in self.nodes
            if node.is_open
        )

    def admin(self, **security: Unpack[SecurityOptions]) -> Admin:
        """Make an Admin client of this cluster; `security` is needed if the cluster has any.

        Raises:
            InvalidConfig: the first listener is not PLAINTEXT, and `security` does not say how to
                connect to it.
        """
        protocol = self._server.security.listener_configs()[0].protocol
        if protocol != SecurityProtocol.PLAINTEXT and not security:
            raise InvalidConfig(
                f'clients of this cluster speak {protocol}: admin(security_protocol="{protocol}", '
                "...), with ssl_truststore_location, a PEM file with the certificate to trust, for "
                "TLS, and sasl_mechanism, sasl_username and sasl_password for SASL"
            )
        from ..clients.admin.admin import Admin

        return Admin(bootstrap=self.bootstrap_servers, **security)

    def stop_node(self, index: int) -> None:
        """Stop one node cleanly. In-sync replicas on other nodes become leaders."""

        async def stop() -> None:
            await asyncio.gather(*(each.stop(leave=True) for each in self.processes[index]))
            await self.nodes[index].leave()
            await self.nodes[index].close()

        self._call(stop(), START_SECONDS)

    def start_node(self, index: int) -> None:
        """Start a node that was stopped, on its data and, if it is still free, on its port."""

        async def start() -> None:
            node = self._make_node(index)
            await node.open()
            self.nodes[index] = node
            await node.join()
            await asyncio.gather(*(each.start() for each in self.processes[index]))
            await self._until_known(index)

        self._ending.pop(index, None)
        self._call(start(), START_SECONDS)

    def close(self) -> None:
        """Stop cleanly. Data in a directory that was given stays; a temporary one is removed."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):
            self._call(self._stop(), START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        atexit.unregister(self._remove_at_exit)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _remove_at_exit(self) -> None:
        """Remove the temporary directory of a cluster that the program has not closed.

        The nodes are not stopped cleanly: at exit the interpreter starts no more threads.
        """
        if os.getpid() != self._owner or self._temporary is None:
            return  # a forked child: the parent still uses the directory
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LEAVE_SECONDS)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _start_in_time(self) -> None:
        try:
            self._call(self._start(), START_SECONDS)
        except TimeoutError:
            waiting_for = None if self.controller is None else self.controller.waiting_for
            why = (
                f" (the controller was restarted: {self._restart_reason})"
                if self._restart_reason
                else ""
            )
            raise TimeoutError(
                f"not started within {START_SECONDS:g} s: waiting for "
                f"{waiting_for or 'its nodes'}{why}"
            ) from None

    async def _start(self) -> None:
        controller = Controller(
            lambda: [node.storage.voter for node in self.nodes if node.storage.voter is not None],
            self._server,
            now_ms=lambda: time.time_ns() // 1_000_000,
            on_superseded=self._on_superseded,
        )
        self.controller = controller
        for index in range(self._node_count):
            config = self._config_of(index)
            self._check_processes(config)
            node = self._make_node(index)
            self.nodes.append(node)  # close releases its locks if it fails
            await node.open()
        await self._lead(controller)
        await asyncio.gather(*(node.join() for node in self.nodes))
        self.processes = [
            [
                NodeProcess(self._config_of_process(index, number), controller)
                for number in range(1, self._process_count + 1)
            ]
            for index in range(self._node_count)
        ]
        await asyncio.gather(*(each.start() for own in self.processes for each in own))
        for index in range(self._node_count):
            await self._until_known(index)

    async def _until_known(self, index: int) -> None:
        """Wait until this node is in service in the metadata of all running nodes."""
        node, own = self.nodes[index], self.processes[index]
        while node.is_open:
            lives = [(node.node_id, node.incarnation)]
            lives += [each.life for each in own if each.life is not None]
            if all(
                is_in_service(each.image, life)
                for each in self.nodes
                if each.is_open
                for life in lives
            ) and all([await each.knows(lives) for others in self.processes for each in others]):
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _make_node(self, index: int) -> Node:
        assert self.controller is not None
        return Node(
            self._config_of(index), self.controller, on_fenced=partial(self._on_ended, index)
        )

    def _config_of(self, index: int) -> NodeConfig:
        name = f"node-{index}" if self._node_count > 1 else ""
        path, *more = (str(Path(data_dir) / name) for data_dir in self._data_dirs)
        return NodeConfig(
            name=f"node-{index}",
            roles=("broker", "group") if self._process_count else ("broker", "partition", "group"),
            data_dir=path,
            more_data_dirs=tuple(more),
            directory=f"{PARTITION_DIRECTORY}0",
            host=self._host,
            port=self._port + index if self._port else 0,
            port_offset=index,
            rack=None if self._node_count == 1 else f"node-{index}",
            machine=f"node-{index}",
            server=self._server,
        )

    def _config_of_process(self, index: int, number: int) -> NodeConfig:
        return replace(
            self._config_of(index),
            roles=("partition",),
            directory=f"{PARTITION_DIRECTORY}{number}",
            port=0,
            port_offset=index + number * self._node_count,
        )

    def _check_processes(self, config: NodeConfig) -> None:
        """Raise DataDirectoryError if there is data that needs more processes."""
        for data_dir in (config.data_dir, *config.more_data_dirs):
            for folder in Path(data_dir).glob(f"{PARTITION_DIRECTORY}*"):
                number = folder.name.removeprefix(PARTITION_DIRECTORY)
                has_partitions = any(each.is_dir() for each in folder.iterdir())
                if number.isdecimal() and int(number) > self._process_count and has_partitions:
                    raise DataDirectoryError(
                        f"{folder} has the partitions of process {number}, but this cluster has "
                        f"{self._process_count} processes per node; give "
                        f"local(processes={number}) or more"
                    )

    async def _lead(self, controller: Controller) -> None:
        while True:
            try:
                await controller.start()
                return
            except Superseded as error:
                self._restart_reason = str(error)
                logger.warning("restarting the controller: %s", error)

    def _on_superseded(self) -> None:
        """Start again in a new epoch: in one process no other controller takes over."""
        assert self.controller is not None
        self._leading = self._loop.create_task(self._lead(self.controller))

    def _on_ended(self, index: int, reason: str) -> None:
        """Close a node that cannot continue: fenced, or without a disk. The others continue."""
        logger.error("node %d is shut down: %s", index, reason)
        if self._ending.get(index) is None and index < len(self.nodes):
            self._ending[index] = self._loop.create_task(self.nodes[index].close())

    async def _stop(self) -> None:
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        await asyncio.gather(*(each.stop() for own in self.processes for each in own))
        if self.controller is not None:
            await self.controller.close()
        for node in self.nodes:
            await node.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


REMEDY = (
    "give it SASL or client certificates in config= (docs/security.md) or, where the network is "
    "private and trusted, insecure=True"
)


def local(
    data_dir: DataDirectories | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    nodes: int = 1,
    processes: int = 0,
    config: Mapping[str, Any] | None = None,
    insecure: bool = False,
) -> LocalCluster:
    """Start a cluster in this process; returns when all its `nodes` are in service.

    Args:
        data_dir: kept when given; else a temporary directory that `close` removes. Several, on
            several disks: partitions are spread over them.
        host: the address to bind.
        port: port of the first node, the next ones follow; 0: any free ports.
        nodes: number of Kafka nodes, each with every role.
        processes: number of processes per node that serve the partitions of topics, each a Kafka
            node, to use several cores; one that dies is restarted. 0: this process does everything.
        config: broker and group coordinator settings by Kafka's names, e.g.
            {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0}.
        insecure: allow listeners without authentication on addresses beyond loopback, where any
            machine of the network could use them.

    Raises:
        UpError: other machines could reach a listener that has no authentication.
        DataDirectoryError, PortInUse, InvalidConfig: one line with cause and remedy.
        TimeoutError: not started in time; the text says what it was waiting for.
    """
    if not insecure:
        security = ServerConfig.from_kafka(dict(config or {})).security
        refuse_open_listeners(security, [host], REMEDY)
    return LocalCluster(
        data_dir, host=host, port=port, nodes=nodes, processes=processes, config=config
    )

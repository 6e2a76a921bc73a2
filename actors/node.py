"""A listening process of the cluster: one Kafka node with the roles it was given.

    broker      a bootstrap and admin address; hosts the node's copy of the metadata log
    partition   hosts partitions of topics
    group       hosts partitions of __consumer_offsets and coordinates the groups in them

On Ray each role is a separate actor; local() gives one node all three. Every role answers every
API; a request for what it does not own gets the error code that sends the client to the owner.

Start: lock and recover the directories (threads), take the port, register with the controller,
apply its metadata, then accept. The lock comes first, so a registration proves that the former
incarnation of this directory is dead. Once fenced off by a newer incarnation the node ends itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ..cluster.broker_config import BrokerConfig
from ..cluster.control.controller_state import NodeRegistration
from ..cluster.metadata.departed_nodes import DepartedNodes
from ..cluster.metadata.listener_address import ListenerAddress
from ..cluster.metadata.metadata_image import MetadataImage, NodeImage
from ..controller.controller_calls import ReportUnreachableBroker
from ..controller.controller_effects import (
    ApplyMetadata,
    StoreIdentity,
)
from ..handlers.ports.context import Controller
from ..handlers.ports.fetch_session import FetchSessionCache
from ..handlers.ports.log_dirs_port import LogDirState
from ..handlers.ports.replica_port import LeaderReplica
from ..handlers.ports.server_config import EMPTY, ServerConfig
from ..protocol.errors import (
    InvalidConfig,
    KafkaError,
    LogDirNotFound,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from ..protocol.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ..protocol.topic_partition import TopicPartitionPair
from ..replication.manager.broker_metadata_publisher import MetadataUsers, publish_metadata
from ..replication.manager.node_close import close_node
from ..replication.manager.node_join import join_node
from ..replication.partition.replica import Replica
from ..storage.disk.file_system import FileSystem, OsFileSystem
from .controller.producer_ids import ProducerIds
from .coordinators.group_host import GroupHost
from .coordinators.transaction_host import TransactionHost
from .coordinators.transaction_partitions import HostedTransactionPartitions
from .loop.node_metrics import NodeMetrics
from .loop.process_services import ProcessServices
from .metrics.metrics_endpoint import MetricsEndpoint
from .network.node_listeners import NodeListeners
from .network.peers import Peers
from .network.socket_server import SocketServer
from .node_membership import NodeMembership
from .node_storage import NodeStorage
from .quotas.node_quotas import NodeQuotas
from .quotas.timed_request import timed_in_thread
from .replication.hosted_partitions import HostedPartitions
from .security.node_authorizer import NodeAuthorizer
from .security.secret_files import read_secret

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Configuration with which a node is started.

    The first data directory also holds the metadata log and the port of the last run; each data
    directory has a log directory named `directory`.

    port_offset: added to the ports of further listeners, see SecurityConfig.listeners.
    ray_address: address of the Ray node that the node was planned for; "" without Ray.
    """

    name: str
    roles: tuple[str, ...]
    data_dir: str
    more_data_dirs: tuple[str, ...] = ()
    directory: str
    host: str = "127.0.0.1"
    port: int = 0
    port_offset: int = 0
    advertised_host: str | None = None
    """Host by which the node is reached; None: `host`. Overridden by advertised.listeners."""
    rack: str | None = None
    machine: str = ""
    ray_address: str = ""
    server: ServerConfig = field(default_factory=ServerConfig)

    def moved_to(self, address: str) -> NodeConfig:
        """Copy for a Ray node of another address: a recreated pod, with the old one's disk."""

        def own(host: str | None) -> str | None:
            return address if self.ray_address and host == self.ray_address else host

        return replace(
            self,
            host=own(self.host) or self.host,
            advertised_host=own(self.advertised_host),
            ray_address=address,
        )


class NoPartitions:
    """The partitions port of a node that hosts none."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.throttle = NoThrottle()
        self.log_dirs = NoLogDirs()

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica:
        if self._node.image.partition(topic, partition) is None:
            raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
        raise NotLeaderOrFollower(f"{topic}-{partition} is led by another node")

    def follower_of(self, topic: str, partition: int, *, current_leader_epoch: int = -1) -> None:
        """Return None: the node follows no partition."""

    def on_follower_fetch_from(self, node_id: int, peer: str) -> None:
        """Do nothing: the response says that no partition is here."""

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        return self.leader_of(topic, partition).log.log_start_offset  # which raises

    async def checkpoint_log_start_offsets(
        self, partitions: Sequence[TopicPartitionPair]
    ) -> Mapping[TopicPartitionPair, KafkaError]:
        """Do nothing: there are no partitions."""
        return {}


class NoThrottle:
    """The throttle of a node that no follower copies from."""

    def should_throttle(self, topic: str, partition: int, follower_id: int) -> bool:
        return False

    def on_sent(self, topic: str, partition: int, size: int) -> None:
        """Do nothing: nothing is sent to followers."""


class NoLogDirs:
    """The log directories of a node without any."""

    async def describe(self) -> list[LogDirState]:
        return []

    async def move(self, topic: str, partition: int, path: str) -> None:
        raise LogDirNotFound(f"{path} is not a log directory of this node")


class Node:
    """A node of the cluster. Implements handlers.ports.context.Node. Runs in one event loop.

    Call `open`, `join`, `close`. After a failed `open`, call `close`; then it can be opened again.
    """

    def __init__(
        self,
        config: NodeConfig,
        controller: Controller,
        *,
        on_fenced: Callable[[str], None],
        file_system: FileSystem | None = None,
    ) -> None:
        self._node_config = config
        self.server_config = config.server
        self.fetch_sessions = FetchSessionCache(
            config.server.broker.max_incremental_fetch_session_cache_slots,
            config.server.broker.min_incremental_fetch_session_eviction_ms,
            random_id=lambda: 1 + secrets.randbelow(2**31 - 1),
        )
        self.controller = controller
        self.storage = NodeStorage(file_system or OsFileSystem(), self.now_ms)
        self.image = MetadataImage()
        self._departed = DepartedNodes()
        self.node_id = -1
        self.groups: GroupHost | None = None
        self.transactions: TransactionHost | None = None
        self.transaction_partitions = HostedTransactionPartitions(self)
        self.partitions: HostedPartitions | NoPartitions = NoPartitions(self)
        self.metrics = NodeMetrics()
        self.authorizer = (
            NodeAuthorizer(config.server.broker)
            if config.server.broker.authorizer_class_name
            else None
        )
        self._all_quotas = NodeQuotas(config.server.broker, self.metrics.throttles)
        self.quotas: NodeQuotas | None = None
        self._services = ProcessServices(self.metrics.loop_lag)
        self.delegation_token_key: bytes | None = None
        self.socket_server = SocketServer(self)
        self.peers = Peers(config.server.security)
        self.metrics_endpoint = MetricsEndpoint(self)
        self._addresses: tuple[ListenerAddress, ...] = ()
        """Advertised address of each listener."""
        self.is_open = False
        """Whether the directories are open and the ports are bound."""
        self.membership = NodeMembership(
            controller,
            config.server.broker.broker_session_timeout_ms,
            now_ms=self.now_ms,
            store_identity=self._store_identity,
            apply=self._apply,
            on_fenced=on_fenced,
        )
        self.producer_ids = ProducerIds(controller, self.now_ms)

    @property
    def incarnation(self) -> str:
        return self.membership.incarnation

    def listed_nodes(self) -> list[NodeImage]:
        """See handlers.ports.context.Node."""
        return self._departed.listed(self.image, now_ms=_monotonic_ms())

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def new_id(self) -> uuid.UUID:
        return uuid.uuid4()

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        """See handlers.ports.context.Node."""
        return await self._services.run_in_thread(timed_in_thread(call))

    @property
    def config(self) -> BrokerConfig:
        return self.server_config.broker

    # --- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Lock and recover the directories, take the port. The voter answers from here on.

        Raises:
            DataDirectoryError, PortInUse, InvalidConfig: one line with cause and remedy.
        """
        config = self._node_config
        secret = read_secret(self.server_config.security.delegation_token_secret_key)
        self.delegation_token_key = secret.encode() or None
        self._services.open()
        if "broker" in config.roles:
            await self.storage.open_voter(config.name, config.data_dir)
        if {"partition", "group"} & set(config.roles):
            data_dirs = (config.data_dir, *config.more_data_dirs)
            host = await self.storage.open_host(
                [str(Path(data_dir) / config.directory) for data_dir in data_dirs],
                config.server.broker,
                self.peers,
                self.membership.on_fenced,
            )
            self.partitions = host.partitions
        await asyncio.to_thread(self._bind)
        await self.socket_server.read_keys()
        self.is_open = True

    def _bind(self) -> None:
        """Bind the port of every listener."""
        config = self._node_config
        listeners = NodeListeners(
            self.socket_server,
            self.server_config.security,
            self.storage.file_system,
            self.storage.directory.path,
        )
        self._addresses = listeners.bind(
            config.host,
            config.port,
            port_offset=config.port_offset,
            advertised_host=self.advertised_host,
        )

    @property
    def advertised_host(self) -> str:
        return self._node_config.advertised_host or self._node_config.host

    @property
    def address(self) -> str:
        return f"{self.advertised_host}:{self.socket_server.port}"

    async def join(self) -> None:
        """Register, apply the metadata, accept connections. Waits for the controller.

        It may be called again after a failure: so `open` finds every error in the settings.

        Raises:
            InconsistentClusterId, BrokerIdNotRegistered: the data directory is not of this cluster.
        """
        membership = self.membership
        await membership.run(
            join_node(
                registered=membership.ended(lambda: membership.register(self._registration())),
                partitions=self._start_partitions,
                followed=membership.ended(membership.follow),
                clients=self._serve_clients,
            )
        )
        await self.metrics_endpoint.open(
            self.server_config.metrics_host(self._node_config.host),
            self.config.bradbury_metrics_port,
        )

    def _start_partitions(self) -> None:
        host = self.storage.partition_host
        if host is None or host.is_started:
            return
        host.start(self.node_id, self.controller, suspect=self._suspect)
        if "group" in self._node_config.roles:
            self.groups = GroupHost(self.server_config.groups, self.now_ms, self.new_id)
            host.partitions.listeners[OFFSETS_TOPIC] = self.groups
            self.transactions = TransactionHost(self)
            host.partitions.listeners[TRANSACTIONS_TOPIC] = self.transactions

    def _serve_clients(self) -> None:
        self.socket_server.open()
        self._services.serve()

    async def _suspect(self, node_id: int) -> None:
        """Report to the controller that this node cannot reach another one."""
        await self.controller.ask(ReportUnreachableBroker(node_id))

    def _registration(self) -> NodeRegistration:
        storage, config = self.storage, self._node_config
        identity = storage.directory.identity
        return NodeRegistration(
            directory_id=identity.directory_id,
            incarnation=self.incarnation,
            roles=config.roles,
            host=self.advertised_host,
            port=self.socket_server.port,
            rack=config.rack,
            machine=config.machine,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            has_all_data=storage.partition_host is None or storage.partition_host.logs.has_all_data,
            metadata_directory_id=(
                "" if storage.voter is None else storage.voter.directory.identity.directory_id
            ),
            listeners=self._addresses,
            name="/".join((*config.roles, config.name, config.directory)),
        )

    async def leave(self) -> bool:
        """Hand leadership to other nodes, before `close`; False if no controller could be reached.

        May be called again. If it fails, others become leaders when this node's session ends.
        """
        return await self.membership.leave()

    async def close(self) -> None:
        """Stop accepting connections, then flush everything and write the clean mark."""
        self.is_open = False
        host, voter, ended = self.storage.partition_host, self.storage.voter, self.membership.ended
        await self.membership.run(
            close_node(
                clients=ended(self._close_clients),
                metadata=self._stop_following,
                coordinators=(
                    ended(self.transaction_partitions.close),
                    ended(self._close_coordinators),
                ),
                partitions=None if host is None else ended(host.close),
                voter=None if voter is None else ended(voter.close),
            )
        )

    async def _close_clients(self) -> None:
        await self.socket_server.stop_reading_keys()
        self.socket_server.close()
        self.metrics_endpoint.close()
        self._services.close()

    def _stop_following(self) -> None:
        self.producer_ids.close()
        self.membership.close()

    async def _close_coordinators(self) -> None:
        if self.groups is not None:
            self.groups.close()
        if self.transactions is not None:
            await self.transactions.close()

    # --- following the metadata ------------------------------------------------------------------

    async def _store_identity(self, effect: StoreIdentity) -> None:
        registered = effect.registered
        self.node_id = registered.node_id
        await asyncio.to_thread(
            self.storage.directory.assign_identity,
            cluster_id=registered.cluster_id,
            node_id=registered.node_id,
        )

    async def _apply(self, effect: ApplyMetadata) -> None:
        await self.membership.run(publish_metadata(effect.image, self._metadata_users()))

    def _metadata_users(self) -> MetadataUsers:
        host, groups, transactions = self.storage.partition_host, self.groups, self.transactions
        become = None if host is None else host.apply
        return MetadataUsers(
            settings=self._configure,
            access=None if self.authorizer is None else self.authorizer.use,
            coordinators=None if transactions is None else transactions.on_metadata,
            partitions=(
                None
                if become is None
                else lambda image: self.membership.ended(lambda: become(image))
            ),
            serve_image=self._answer_by,
            quotas=self._use_quotas,
            pending_verifications=self.transaction_partitions.on_metadata,
            offsets=None if groups is None else groups.on_metadata,
            is_stopping=lambda: not self.is_open,
        )

    def _answer_by(self, image: MetadataImage) -> MetadataImage:
        self._departed.on_metadata(self.image, image, now_ms=_monotonic_ms())
        before, self.image = self.image, image
        if self.groups is not None:
            self.producer_ids.fill()  # transaction coordinators take them without waiting
        return before

    def _use_quotas(self, before: MetadataImage, image: MetadataImage) -> None:
        if image.client_quotas is not before.client_quotas:
            self.quotas = self._all_quotas.follow(image.client_quotas)

    def _configure(self, image: MetadataImage) -> None:
        """Take over the settings that were changed at run time."""
        for_all = image.broker_configs.get("", EMPTY)
        for_this = image.broker_configs.get(str(self.node_id), EMPTY)
        try:
            self.server_config = self.server_config.with_dynamic(for_all, for_this)
        except InvalidConfig as error:
            # The controller checks settings before it stores them: an older version stored these.
            logger.warning("node %d keeps its previous settings: %s", self.node_id, error)
        if (host := self.storage.partition_host) is not None:
            host.configure(self.server_config)

    def on_closed(self, peer: str) -> None:
        """See socket_server.ListeningNode."""
        if (host := self.storage.partition_host) is not None and self.is_open:
            host.unreachable.on_closed(peer)

    def status(self) -> dict[str, object]:
        """Fields of this node in `bradbury status`; until it is open only name, roles and pid."""
        if not self.is_open:
            return {
                "name": self._node_config.name,
                "roles": list(self._node_config.roles),
                "pid": os.getpid(),
            }
        host = self.storage.partition_host
        return {
            "node_id": self.node_id,
            "name": self._node_config.name,
            "roles": list(self._node_config.roles),
            "address": self.address,
            "pid": os.getpid(),
            "partitions": 0 if host is None else len(host.replicas),
            "size_bytes": 0 if host is None else _size_of(host.replicas),
            "connections": self.socket_server.connection_count,
            "metrics": self.metrics_endpoint.address(
                self.server_config.metrics_host(self.advertised_host)
            ),
            "metadata_offset": self.image.offset,
            "controller_epoch": self.membership.controller_epoch,
            "online": host is None or not host.directories.offline_count,
            "damaged": [] if host is None else host.damage_in_words(),
        }


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _size_of(replicas: list[Replica]) -> int:
    return sum(replica.log.segments.size_in_bytes for replica in replicas)

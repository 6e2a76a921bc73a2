"""Driver of replication/replica_manager: the partitions of one node.

Nothing is decided here. It gives the steps the time and what they ask for: threads, connections,
the controller, people's requests. Beside them run partition_upkeep, log_cleaner, hosted_log_dirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol
from uuid import uuid4

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...handlers.ports.context import Controller
from ...handlers.ports.replica_port import LeaderReplica
from ...handlers.ports.server_config import ServerConfig
from ...protocol.errors import ConnectionFailed, KafkaError, NotLeaderOrFollower
from ...replication.alter_log_dirs_manager import AlterLogDirsManager
from ...replication.directory_lifecycle import DirectoryLifecycle
from ...replication.effects import DirectoryFailed, EndMove, NoDirectoryLeft, SuspectNode
from ...replication.log_maintenance import LogMaintenance
from ...replication.log_manager import LogManager
from ...replication.partition_effects import (
    LeaderElected,
    ReplicaClosed,
    ReplicaOpened,
    Resigned,
    ResumeMove,
)
from ...replication.replica import LeadershipEnded, Replica
from ...replication.replica_manager import ReplicaManager
from ...replication.replication_throttle import ReplicationThrottle
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.file_system import FileSystem
from ...storage.log_config import LogConfig
from ..loop.step_driver import StepDriver
from ..loop.storage_threads import StorageThreads
from .controller_request_sender import ControllerRequestSender
from .conversion_queue import ConversionPool
from .deletion_policy import load_deletion_policy
from .hosted_log_dirs import HostedLogDirs
from .hosted_replica import HostedReplica
from .intact_token import IntactToken
from .leader_connections import LeaderConnections
from .log_cleaner import LogCleaner
from .partition_upkeep import PartitionUpkeep

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """The coordinators of one internal topic: where its partitions are led, so are they."""

    def on_leader(self, partition: int, leader_epoch: int, replica: LeaderReplica) -> None: ...
    def on_resigned(self, partition: int) -> None: ...


class PartitionHost:
    """One event loop. `open` first, then `start`, `apply` for every image, `close` at last."""

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        on_all_offline: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._config = config
        self._server = ServerConfig()
        self._now_ms = now_ms
        self._driver = StepDriver()
        self._threads = StorageThreads(self._driver)
        self.fsyncs = self._threads.fsyncs
        self._conversions = ConversionPool()
        self.logs = DirectoryLifecycle(
            paths,
            file_system,
            token_of=IntactToken.of,
            new_directory_id=lambda: str(uuid4()),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            make_lock=threading.Lock,
        )
        self.steps = ReplicaManager(self, self._driver.effects)
        self._hosted: dict[Replica, HostedReplica] = {}
        """What handlers reach of them."""
        self.node_id = -1
        self._upkeep: PartitionUpkeep | None = None
        self.cleaner: LogCleaner | None = None
        self._log_dirs: HostedLogDirs | None = None
        self._sender: ControllerRequestSender | None = None
        self._connections = LeaderConnections(self, self._driver)
        self._telling: set[asyncio.Task[None]] = set()
        self.throttle = ReplicationThrottle(
            self.steps.by_partition,
            config,
            node_id=lambda: self.node_id,
            image=lambda: self.steps.image,
            settings=lambda: self.config,
            monotonic_ms=self._driver.now_ms,
        )
        """See handlers.replica_port.Partitions."""
        self._followers: dict[str, int] = {}
        """Node by the other end of its connection."""
        self.listeners: dict[str, LeadershipListener] = {}
        """Whose coordinators are where a partition of this topic is led."""
        on = self._driver.on
        on(ReplicaOpened, self._on_replica_opened)
        on(ReplicaClosed, self._on_replica_closed)
        on(LeaderElected, self._on_leader_elected)
        on(LeadershipEnded, self._on_leadership_ended)
        on(Resigned, self._on_resigned)
        on(SuspectNode, lambda effect: self.on_unreachable(effect.node_id))
        on(EndMove, self._end_move)
        on(ResumeMove, lambda effect: self.log_dirs.resume(effect.key, effect.replica))
        on(DirectoryFailed, lambda effect: self.logs.on_directory_failed())
        on(NoDirectoryLeft, lambda effect: on_all_offline(effect.reason))

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self.logs.open(self._now_ms())

    @property
    def directories(self) -> LogDirectories:
        return self.logs.directories

    @property
    def upkeep(self) -> PartitionUpkeep:
        assert self._upkeep is not None, "start() comes first"
        return self._upkeep

    @property
    def log_dirs(self) -> HostedLogDirs:
        """See handlers.log_dirs_port.LogDirs."""
        assert self._log_dirs is not None, "start() comes first"
        return self._log_dirs

    def start(
        self,
        node_id: int,
        controller: Controller,
        *,
        suspect: Callable[[int], Coroutine[None, None, None]],
    ) -> None:
        """`suspect`: tells the controller of a node that cannot be reached."""
        self.node_id = node_id
        self._suspect = suspect
        self.logs.begin()
        log_manager = LogManager(
            self.directories,
            config_of=self.steps.log_configs.of,
            new_id=uuid4,
            on_storage_failure=self.steps.on_storage_failure,
        )
        self.steps.start(log_manager)
        self._sender = ControllerRequestSender(controller, self._driver)
        self._driver.tick_when_due(self.steps.alter_partition)
        maintenance = LogMaintenance(
            self.directories,
            self.steps.by_partition,
            self._config,
            self._driver.effects,
            changed=self.steps.changed,
            on_storage_failure=self.steps.on_storage_failure,
            deletion_policy=load_deletion_policy(self._config.bradbury_log_deletion_policy),
        )
        self._upkeep = PartitionUpkeep(maintenance, self._driver, wall_ms=self._now_ms)
        moves = AlterLogDirsManager(
            self.directories,
            self.steps.by_partition,
            self._driver.effects,
            throttle=self.throttle,
            write_note=log_manager.write_note,
            new_id=uuid4,
            on_storage_failure=self.steps.on_storage_failure,
        )
        self._log_dirs = HostedLogDirs(
            moves,
            self._driver,
            self.directories,
            self.steps.by_partition,
            wall_ms=self._now_ms,
            in_thread=self._threads.run,
            on_failure=self.on_failure,
        )
        self._upkeep.start()
        self.cleaner = LogCleaner(
            lambda: [replica.log for replica in self.replicas],
            self._config,
            now_ms=self._now_ms,
            checkpoint=self._upkeep.checkpoint,
            on_failure=self.on_failure,
        )
        self.cleaner.start()

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean marks."""
        await self.stop_following()
        if self._sender is not None:
            await self._sender.close()
        if self._log_dirs is not None:
            await self._log_dirs.close()
        if self.cleaner is not None:
            await self.cleaner.stop()
        if self._upkeep is not None:
            await self._upkeep.stop()
        directories = self.logs.end()
        if directories is not None:
            await self._driver.run(self.steps.shut_down(directories))
            self.logs.on_closed()
        await self._threads.settle()
        self._threads.close()
        self._conversions.close()

    async def stop_following(self) -> None:
        """No step does anything of its own accord any more."""
        self._driver.close()
        self.steps.halt()
        await self._connections.close()
        await self._threads.settle()

    def on_failure(self) -> None:
        """A disk may have failed."""
        self.steps.on_storage_failure()
        self._driver.carry_out()

    # --- handlers' port --------------------------------------------------------------------------

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica:
        """See handlers.replica_port.Partitions."""
        return self._hosted[
            self.steps.serving.leader_of(
                topic, partition, current_leader_epoch=current_leader_epoch
            )
        ]

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> HostedReplica | None:
        """See handlers.replica_port.Partitions."""
        step = self.steps.serving.follower_of(
            topic, partition, current_leader_epoch=current_leader_epoch
        )
        return None if step is None else self._hosted[step]

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See handlers.replica_port.Partitions."""
        return self.steps.serving.delete_records(topic, partition, before_offset)

    async def keep_log_starts(self) -> None:
        """See handlers.replica_port.Partitions."""
        await self.upkeep.checkpoint()

    def follower_asks(self, node_id: int, peer: str) -> None:
        """See handlers.replica_port.Partitions."""
        self._followers[peer] = node_id

    # --- following the metadata ------------------------------------------------------------------

    async def apply(self, image: MetadataImage) -> None:
        """Make this node's partitions what `image` says. Returns when they serve."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.steps.apply(image, applied, now_ms=self._driver.now_ms(), wall_ms=self._now_ms())
        self._driver.carry_out()
        await asyncio.shield(applied)

    def configure(self, server: ServerConfig) -> None:
        """Use these settings from now on; logs that take a default from them follow at once."""
        before, self._server = self._server, server
        if server.log_defaults != before.log_defaults:
            self.steps.log_configs.on_defaults()
        if self.cleaner is not None and server.broker != before.broker:
            self.cleaner.configure(server.broker)

    # --- effects ---------------------------------------------------------------------------------

    def _on_replica_opened(self, effect: ReplicaOpened) -> None:
        self._hosted[effect.replica] = HostedReplica(
            effect.replica,
            self._driver,
            wall_ms=self._now_ms,
            in_thread=self._threads.run,
            conversions=self._conversions,
        )

    def _on_replica_closed(self, effect: ReplicaClosed) -> None:
        del self._hosted[effect.replica]

    def _on_leader_elected(self, effect: LeaderElected) -> None:
        replica = effect.replica
        listener = self.listeners.get(replica.topic)
        if listener is not None:
            listener.on_leader(replica.partition, effect.state.leader_epoch, self._hosted[replica])

    def _on_leadership_ended(self, effect: LeadershipEnded) -> None:
        hosted = self._hosted.get(effect.replica)
        if hosted is not None:
            hosted.conversions.abandon(NotLeaderOrFollower(f"{effect.replica} has a new leader"))

    def _on_resigned(self, effect: Resigned) -> None:
        replica = effect.replica
        listener = self.listeners.get(replica.topic)
        if listener is not None:
            listener.on_resigned(replica.partition)

    def _end_move(self, effect: EndMove) -> None:
        async def end() -> None:
            failure: Exception | None = None
            try:
                await self.log_dirs.end(effect.condition.key)
            except Exception as error:  # noqa: BLE001 -- the step says what it means
                failure = error
            effect.step.on_work_done(effect.condition, failure, self._driver.now_ms())
            self._driver.carry_out()

        self._begin(end())

    def on_unreachable(self, node_id: int) -> None:
        """Tell the controller of a node that cannot be reached."""

        async def tell() -> None:
            with contextlib.suppress(KafkaError, ConnectionFailed):
                await self._suspect(node_id)

        self._begin(tell())

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def on_closed(self, peer: str) -> None:
        """A follower that leads nothing is missed by nobody else, and acks=all waits for it."""
        node_id = self._followers.pop(peer, None)
        if node_id is not None and self._sender is not None:
            self.on_unreachable(node_id)

    # --- what the steps ask ----------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        return self._server.broker

    @property
    def log_defaults(self) -> LogConfig:
        """See replication.replica_manager.ReplicaManagerNode."""
        return self._server.log_defaults

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """See leader_connections.FollowingNode."""
        node = self.steps.image.nodes.get(node_id)
        return None if node is None else (node.host, node.port)

    def wall_ms(self) -> int:
        """See leader_connections.FollowingNode."""
        return self._now_ms()

    # --- what people ask -------------------------------------------------------------------------

    @property
    def replicas(self) -> list[Replica]:
        return self.steps.replicas

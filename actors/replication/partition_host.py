"""Driver of replication/manager/replica_manager: the partitions of one node.

Nothing is decided here. It provides the steps with the time, threads, connections, and access to
the controller.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from uuid import uuid4

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...handlers.ports.context import Controller
from ...handlers.ports.server_config import ServerConfig
from ...replication.effects import DirectoryFailed, NoDirectoryLeft
from ...replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from ...replication.logs.clean_stop import clean_stop
from ...replication.logs.directory_lifecycle import DirectoryLifecycle
from ...replication.logs.log_compactor import LogCompactor
from ...replication.logs.log_maintenance import LogMaintenance
from ...replication.logs.log_manager import LogManager
from ...replication.logs.log_scrub import LogScrub
from ...replication.logs.segment_healer import SegmentHealer
from ...replication.manager.replica_manager import ReplicaManager
from ...replication.partition.replica import Replica
from ...replication.partition.replication_throttle import ReplicationThrottle
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.file_system import FileSystem
from ...storage.log_config import LogConfig
from ..loop.awaited_end import AwaitedEnd
from ..loop.step_driver import StepDriver
from ..loop.storage_threads import StorageThreads
from ..network.peers import Peers
from .controller_request_sender import ControllerRequestSender
from .conversion_threads import ConversionThreads
from .deletion_policy import load_deletion_policy
from .hosted_log_dirs import HostedLogDirs
from .hosted_partitions import HostedPartitions
from .hosted_replica import HostedReplica
from .intact_token import IntactToken
from .leader_connections import LeaderConnections
from .log_cleaner import LogCleaner, cleaner_config
from .log_maintenance_driver import LogMaintenanceDriver
from .log_scrubber import LogScrubber
from .unreachable_nodes import UnreachableNodes

logger = logging.getLogger(__name__)

MOST_SHOWN = 5
"""Maximum number of damaged ranges that `damage_in_words` lists."""


class PartitionHost:
    """Host of one node's partitions. Runs in one event loop.

    Call `open` first, then `start`, `apply` for every image, and `close` at last.
    """

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        peers: Peers,
        on_all_offline: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Raises InvalidConfig: there is no such deletion policy."""
        self.peers = peers
        self._config = config
        self._server = ServerConfig()
        self._now_ms = now_ms
        self._deletion_policy = load_deletion_policy(config.bradbury_log_deletion_policy)
        self._driver = StepDriver()
        self._threads = StorageThreads(self._driver)
        self.fsyncs = self._threads.fsyncs
        self._conversions = ConversionThreads(self._driver, wall_ms=now_ms)
        self.logs = DirectoryLifecycle(
            paths,
            file_system,
            token_of=IntactToken.of,
            new_directory_id=lambda: str(uuid4()),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            make_lock=threading.Lock,
        )
        self.steps = ReplicaManager(self, self._driver.effects)
        self.node_id = -1
        self._upkeep: LogMaintenanceDriver | None = None
        self.cleaner: LogCleaner | None = None
        self.scrubber: LogScrubber | None = None
        self._moves: AlterLogDirsManager | None = None
        self._sender: ControllerRequestSender | None = None
        self._connections = LeaderConnections(self, self._driver)
        self.throttle = ReplicationThrottle(
            self.steps.by_partition,
            config,
            node_id=lambda: self.node_id,
            image=lambda: self.steps.image,
            settings=lambda: self.config,
            monotonic_ms=self._driver.now_ms,
        )
        self.unreachable = UnreachableNodes(self._driver)
        self.partitions = HostedPartitions(
            self.steps.serving,
            self._driver,
            throttle=self.throttle,
            unreachable=self.unreachable,
            host_replica=self._host_replica,
        )
        on = self._driver.on
        on(DirectoryFailed, lambda effect: self.logs.on_directory_failed())
        on(NoDirectoryLeft, lambda effect: on_all_offline(effect.reason))

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: call it in a thread.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self.logs.open(self._now_ms())

    @property
    def is_started(self) -> bool:
        return self._sender is not None

    @property
    def directories(self) -> LogDirectories:
        return self.logs.directories

    def start(
        self,
        node_id: int,
        controller: Controller,
        *,
        suspect: Callable[[int], Coroutine[None, None, None]],
    ) -> None:
        """Start serving, once. `suspect`: reports an unreachable node to the controller."""
        assert not self.is_started
        self.node_id = node_id
        self.unreachable.start(suspect)
        self.logs.begin()
        log_manager = LogManager(
            self.directories,
            config_of=self.steps.log_configs.of,
            new_id=uuid4,
            on_storage_failure=self.steps.on_storage_failure,
        )
        maintenance = LogMaintenance(
            self.directories,
            self.steps.by_partition,
            self._config,
            self._driver.effects,
            changed=self.steps.changed,
            on_storage_failure=self.steps.on_storage_failure,
            deletion_policy=self._deletion_policy,
        )
        self.steps.start(log_manager, maintenance.note_gaps)
        self._sender = ControllerRequestSender(controller, self._driver)
        self._driver.tick_when_due(self.steps.alter_partition)
        self._upkeep = LogMaintenanceDriver(maintenance, self._driver, wall_ms=self._now_ms)
        self._moves = AlterLogDirsManager(
            self.directories,
            self.steps.by_partition,
            self._driver.effects,
            throttle=self.throttle,
            write_note=log_manager.write_note,
            new_id=uuid4,
            on_storage_failure=self.steps.on_storage_failure,
        )
        log_dirs = HostedLogDirs(
            self._moves,
            self._driver,
            self.directories,
            self.steps.by_partition,
            wall_ms=self._now_ms,
            in_thread=self._threads.run,
            on_failure=self.on_failure,
        )
        self._upkeep.start()
        self.partitions.start(log_dirs, maintenance.checkpoint)
        compactor = LogCompactor(
            lambda: [replica.log for replica in self.replicas],
            cleaner_config(self._config),
            self._driver.effects,
            wall_ms=self._now_ms,
            random_bytes=os.urandom,
            note_gaps=maintenance.note_gaps,
            checkpoint=maintenance.checkpoint,
            on_storage_failure=self.steps.on_storage_failure,
        )
        self.cleaner = LogCleaner(compactor, self._driver, self._config)
        self.cleaner.start()
        healer = SegmentHealer(
            self.directories,
            lambda: self.replicas,
            self._driver.effects,
            node_id=lambda: self.node_id,
            image=lambda: self.steps.image,
            wall_ms=self._now_ms,
            monotonic_ms=self._driver.now_ms,
            on_storage_failure=self.steps.on_storage_failure,
            give_up_leadership=self.steps.offline_replicas.give_up,
        )
        scrub = LogScrub(
            healer,
            lambda: self.replicas,
            self._config,
            self._driver.effects,
            monotonic_ms=self._driver.now_ms,
            wall_ms=self._now_ms,
        )
        self.scrubber = LogScrubber(healer, scrub, self._driver, self)
        self.scrubber.start()

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean marks."""
        await self.stop_following()
        if self._sender is not None:
            await self._sender.close()
        driver, scrubber, cleaner, upkeep = (
            self._driver,
            self.scrubber,
            self.cleaner,
            self._upkeep,
        )
        await driver.run(
            clean_stop(
                moves=self._moves,
                scrubber=None if scrubber is None else AwaitedEnd(driver, scrubber.stop),
                cleaner=None if cleaner is None else AwaitedEnd(driver, cleaner.stop),
                maintenance=None if upkeep is None else AwaitedEnd(driver, upkeep.stop),
                lifecycle=self.logs,
                shut_down=self.steps.shut_down,
            )
        )
        await self._threads.settle()
        self._threads.close()
        self._conversions.close()

    async def stop_following(self) -> None:
        """Stop all steps and connections to leaders; returns when storage work has ended."""
        self._driver.close()
        self.steps.halt()
        await self._connections.close()
        await self._threads.settle()

    def _host_replica(self, step: Replica) -> HostedReplica:
        return HostedReplica(
            step,
            self._driver,
            wall_ms=self._now_ms,
            in_thread=self._threads.run,
            conversions=self._conversions,
        )

    def on_failure(self) -> None:
        """Notify the steps that a disk may have failed."""
        self.steps.on_storage_failure()
        self._driver.carry_out()

    # --- following the metadata ------------------------------------------------------------------

    def apply(self, image: MetadataImage) -> asyncio.Future[None]:
        """Make this node's partitions what `image` says; the future is done when they serve."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.steps.apply(image, applied, now_ms=self._driver.now_ms(), wall_ms=self._now_ms())
        self._driver.carry_out()
        return applied

    def configure(self, server: ServerConfig) -> None:
        """Use these settings from now on; logs that use a default of theirs change at once."""
        before, self._server = self._server, server
        if server.log_defaults != before.log_defaults:
            self.steps.log_configs.on_defaults()
        if self.cleaner is not None and server.broker != before.broker:
            self.cleaner.configure(server.broker)
        if self.scrubber is not None and server.broker != before.broker:
            self.scrubber.configure(server.broker)

    def damage_in_words(self) -> list[str]:
        """Unreadable ranges of partitions here, for `bradbury status`; at most MOST_SHOWN."""
        damaged = [] if self.scrubber is None else self.scrubber.healer.damaged()
        said = [f"{replica} has lost {damage}" for replica, damage in damaged[:MOST_SHOWN]]
        if len(damaged) > MOST_SHOWN:
            said.append(f"and {len(damaged) - MOST_SHOWN} more")
        return said

    # --- read by the steps -----------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        return self._server.broker

    @property
    def image(self) -> MetadataImage:
        """See network.peers.ConnectingNode."""
        return self.steps.image

    @property
    def log_defaults(self) -> LogConfig:
        """See replication.manager.replica_manager.ReplicaManagerNode."""
        return self._server.log_defaults

    def wall_ms(self) -> int:
        """See leader_connections.FetchingNode."""
        return self._now_ms()

    @property
    def replicas(self) -> list[Replica]:
        return self.steps.replicas

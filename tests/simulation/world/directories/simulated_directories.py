"""The log directories of one life of a simulated node, with what is done to them beside the requests.

Composed as actors/replication/partition_host is; the directories' disks are parts of the node's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bradbury.protocol.errors import KafkaError
from bradbury.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.replication.effects import (
    DirectoryFailed,
    EndMove,
    NoDirectoryLeft,
    RunCleanerWork,
)
from bradbury.replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from bradbury.replication.logs.clean_stop import clean_stop
from bradbury.replication.logs.directory_lifecycle import DirectoryLifecycle
from bradbury.replication.logs.log_compactor import LogCompactor
from bradbury.replication.logs.log_maintenance import ROUND_MS, LogMaintenance
from bradbury.replication.logs.log_manager import LogManager
from bradbury.replication.partition.partition_effects import ResumeMove
from bradbury.storage.cleaner.cleaner import CleaningAborted
from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.log.local_log import PRODUCER_ID_EXPIRATION_MS
from bradbury.storage.log.partition_log import PartitionLog

from ...clients.simulated_log_checks import Violation
from ..simulated_driver import Ended
from ..simulated_requests import handle
from .simulated_scrubber import SimulatedScrubber

if TYPE_CHECKING:
    from ..simulated_node import SimulatedNode

PATHS = ("/data", "/more")
CLEANER_MS = 150
DELETION_TIMEOUT_MS = 30_000


class SimulatedDirectories:
    """`begin` when the node is registered; `shut_down` at a clean stop."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        swarm = node.cluster.swarm
        ids = iter([node.metadata_directory_id, f"{node.metadata_directory_id}b"])
        self.lifecycle = DirectoryLifecycle(
            PATHS[: swarm.directories],
            node.disk,
            token_of=lambda directories: SimulatedToken(node.memory, directories),
            new_directory_id=lambda: next(ids),
            producer_id_expiration_ms=PRODUCER_ID_EXPIRATION_MS,
            make_lock=nullcontext,
        )
        self.lifecycle.open(node.clock.now_ms)
        self.all = directories = self.lifecycle.directories
        for directory in directories.online:
            for partition_id, log in directory.logs.items():
                node.cluster.oracle.on_opened(node, partition_id, log)
        steps, driver = node.steps, node.driver
        self.log_manager = LogManager(
            directories,
            config_of=steps.log_configs.of,
            new_id=self._new_id,
            on_storage_failure=steps.on_storage_failure,
        )
        self._maintenance = LogMaintenance(
            directories,
            steps.by_partition,
            node.server_config.broker,
            driver.effects,
            changed=steps.changed,
            on_storage_failure=steps.on_storage_failure,
        )
        steps.start(self.log_manager, self._maintenance.note_gaps)
        no_log_dirs: Any = None  # no request asks for them
        node.partitions.start(no_log_dirs, self._maintenance.checkpoint)
        self._maintenance.begin()
        self._moves = AlterLogDirsManager(
            directories,
            steps.by_partition,
            driver.effects,
            throttle=node.throttle,
            write_note=self.log_manager.write_note,
            new_id=self._new_id,
            on_storage_failure=steps.on_storage_failure,
        )
        driver.on(DirectoryFailed, self._on_directory_failed)
        driver.on(NoDirectoryLeft, lambda effect: node.end(effect.reason))
        driver.on(EndMove, self._end_move)
        driver.on(RunCleanerWork, self._run_cleaner_work)
        self.compactor = LogCompactor(
            lambda: [replica.log for replica in steps.by_partition.values()],
            CleanerConfig(dedupe_buffer_size=300 if node.node_id % 2 else 1 << 20),
            driver.effects,
            wall_ms=node.now_ms,
            random_bytes=node.cluster.random.randbytes,
            note_gaps=self._maintenance.note_gaps,
            checkpoint=self._maintenance.checkpoint,
            on_storage_failure=steps.on_storage_failure,
        )
        self._is_stopping = False
        self._is_cleaning = False
        self._when_cleaned: list[Callable[[], None]] = []
        if swarm.compacts:
            node.process.after(node.cluster.random.randrange(CLEANER_MS), self._clean)
        self.scrubber = SimulatedScrubber(node, self)
        driver.on(ResumeMove, self._resume_move)
        node.process.after(ROUND_MS, self._keep_up)

    def _on_directory_failed(self, effect: DirectoryFailed) -> None:
        self.lifecycle.on_directory_failed()
        steps = self._node.steps
        for image in steps.image.topics.values():
            for index in range(len(image.partitions)):
                leader = steps.fetchers.leader_of((image.topic_id, index))
                if leader is not None and (image.name, index) not in steps.by_partition:
                    reason = f"{effect.path} failed; node {leader} is followed without a replica"
                    raise Violation("F3", reason, (image.name, index))

    def _new_id(self) -> UUID:
        return UUID(int=self._node.cluster.random.getrandbits(128))

    def begin(self) -> None:
        """The node is registered."""
        self.lifecycle.begin()

    @property
    def are_online(self) -> bool:
        """Whether all of them serve. What there was no room for is made when there is some."""
        return not self.all.unusable and len(self.all.online) == len(self.all.all)

    @property
    def offline(self) -> Collection[TopicPartitionPair]:
        """What cannot serve: its directory failed, or was full when its log was to be made."""
        return self._node.steps._offline

    def shut_down(self, then: Callable[[Exception | None], None]) -> None:
        """A clean stop, in the shipped order."""
        node = self._node
        node.steps.halt()
        node.driver.run(
            clean_stop(
                moves=self._moves,
                scrubber=Ended(node.driver, self.scrubber.stop),
                cleaner=Ended(node.driver, self._stop_cleaning),
                maintenance=Ended(node.driver, self._stop_maintenance),
                lifecycle=self.lifecycle,
                shut_down=node.steps.shut_down,
            ),
            then,
        )

    def _stop_cleaning(self, then: Callable[[], None]) -> None:
        self._is_stopping = True
        if self._is_cleaning:
            self._when_cleaned.append(then)
        else:
            then()

    def _stop_maintenance(self, then: Callable[[], None]) -> None:
        self._maintenance.halt()
        self._node.driver.run(self._maintenance.settle(), lambda error: then())

    def _keep_up(self) -> None:
        """As actors/replication/log_maintenance_driver does."""
        now_ms = self._node.clock.now_ms

        def again(error: Exception | None) -> None:
            if error is not None:
                raise error
            self._node.process.after(ROUND_MS, self._keep_up)

        self._node.driver.run(self._maintenance.due_rounds(now_ms, now_ms), again)

    # --- the cleaner -----------------------------------------------------------------------------

    def _clean(self) -> None:
        """As a worker of actors/replication/log_cleaner does."""
        node = self._node
        cleaned: list[PartitionLog] = []

        def again(error: Exception | None) -> None:
            if error is not None:
                raise error
            self._is_cleaning = False
            node.cluster.oracle.on_cleaned(node, self.compactor, cleaned)
            while self._when_cleaned:
                self._when_cleaned.pop()()
            if not self._is_stopping:
                node.process.after(CLEANER_MS, self._clean)

        self._is_cleaning = True
        node.driver.run(self.compactor.clean_filthiest(cleaned), again)

    def _run_cleaner_work(self, effect: RunCleanerWork) -> None:
        def progress(size: int) -> None:
            if self._is_stopping:
                raise CleaningAborted("the cleaner stops")

        self._node.driver.run_aside(
            effect, progress, random=self._node.cluster.random, stopped_by=CleaningAborted
        )

    # --- moves between them ----------------------------------------------------------------------

    def move(self, partition_id: TopicPartitionPair, path: str) -> None:
        """AlterReplicaLogDirs, as an administrator asks for it."""
        now_ms = self._node.clock.now_ms
        steps = self._moves.move(*partition_id, path, now_ms=now_ms, wall_ms=now_ms)
        self._node.driver.run(steps, _expect_kafka_error)

    def _resume_move(self, effect: ResumeMove) -> None:
        now_ms = self._node.clock.now_ms
        self._moves.resume(effect.key, effect.replica, now_ms=now_ms, wall_ms=now_ms)

    def _end_move(self, effect: EndMove) -> None:
        def ended(error: Exception | None) -> None:
            effect.step.on_work_done(effect.condition, error, self._node.clock.now_ms)
            self._node.driver.carry_out()

        self._node.driver.run(self._moves.end(effect.condition.key), ended)

    # --- DeleteRecords ---------------------------------------------------------------------------

    def delete_records(
        self, partition_id: TopicPartitionPair, offset: int, then: Callable[[Any], None]
    ) -> None:
        """Ask the node's handler. `then` is given the log start offset, or None: it was refused."""
        topic, index = partition_id
        asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])

        def answered(response: Any) -> None:
            [deleted] = response.topics[0].partitions
            then(None if deleted.error_code else deleted.low_watermark)

        handle(self._node, DeleteRecordsRequest([asked], DELETION_TIMEOUT_MS), 2, answered)


def _expect_kafka_error(error: Exception | None) -> None:
    if error is not None and not isinstance(error, KafkaError):
        raise error


class SimulatedToken:
    """Implements replication.logs.directory_lifecycle.IntactToken: it goes with the machine's memory."""

    def __init__(self, memory: set[str], directories: LogDirectories) -> None:
        self._memory = memory
        self._ids = {each.identity.directory_id for each in directories.all}

    def is_valid(self, directory_id: str) -> bool:
        return directory_id in self._memory

    def put(self) -> None:
        self._memory |= self._ids

    def remove(self) -> None:
        self._memory -= self._ids

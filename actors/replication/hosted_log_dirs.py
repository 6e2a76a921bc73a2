"""Driver of replication/logs/alter_log_dirs_manager: log directories as handlers use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ...handlers.ports.log_dirs_port import LogDirState, LogInDir
from ...protocol.topic_partition import TopicPartitionPair
from ...replication.effects import EndMove
from ...replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from ...replication.partition.partition_effects import ResumeMove
from ...replication.partition.replica import Replica
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.disk.storage_failure import StorageFailure
from ..loop.step_driver import StepDriver
from .hosted_replica import InThread


class HostedLogDirs:
    """Implements handlers.ports.log_dirs_port.LogDirs. One event loop."""

    def __init__(
        self,
        steps: AlterLogDirsManager,
        driver: StepDriver,
        directories: LogDirectories,
        replicas: Mapping[TopicPartitionPair, Replica],
        *,
        wall_ms: Callable[[], int],
        in_thread: InThread,
        on_failure: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._driver = driver
        self._directories = directories
        self._replicas = replicas
        self._wall_ms = wall_ms
        self._in_thread = in_thread
        self._on_failure = on_failure
        self._ending: set[asyncio.Task[None]] = set()
        driver.on(ResumeMove, lambda effect: self._resume(effect.key, effect.replica))
        driver.on(EndMove, self._on_end_move)

    async def describe(self) -> list[LogDirState]:
        """Describe all directories of this node with their logs; see log_dirs_port.LogDirs."""
        states = [
            LogDirState(path, is_online=False, logs=(), total_bytes=-1, usable_bytes=-1)
            for path in self._directories.unusable
        ]
        for directory in self._directories.all:
            state = LogDirState(directory.path, False, (), -1, -1)
            if directory.health.is_online:
                try:
                    usable, total = await self._in_thread(directory.space)
                    state = LogDirState(
                        directory.path, True, self._logs_in(directory), total, usable
                    )
                except StorageFailure:
                    self._on_failure()
            states.append(state)
        return states

    def _logs_in(self, directory: LogDirectory) -> tuple[LogInDir, ...]:
        logs = [
            LogInDir(topic, partition, log.segments.size_in_bytes, 0, False)
            for (topic, partition), log in directory.logs.items()
        ]
        for (topic, partition), future in directory.future_logs.items():
            replica = self._replicas.get((topic, partition))
            end = future.log_end_offset if replica is None else replica.log.log_end_offset
            lag = max(end - future.log_end_offset, 0)
            logs.append(LogInDir(topic, partition, future.segments.size_in_bytes, lag, True))
        return tuple(logs)

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Begin to move a partition to `path`; see handlers.ports.log_dirs_port.LogDirs.

        It begins even if the caller is cancelled meanwhile: a move that is half begun would leave a
        future log that no step knows of.
        """
        now_ms, wall_ms = self._driver.now_ms(), self._wall_ms()
        await self._driver.run(
            self._steps.move(topic, partition, path, now_ms=now_ms, wall_ms=wall_ms)
        )

    def _resume(self, key: TopicPartitionPair, replica: Replica) -> None:
        self._steps.resume(key, replica, now_ms=self._driver.now_ms(), wall_ms=self._wall_ms())

    def _on_end_move(self, effect: EndMove) -> None:
        task = asyncio.get_running_loop().create_task(self._end_move(effect))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_move(self, effect: EndMove) -> None:
        failure: Exception | None = None
        try:
            await self._driver.run(self._steps.end(effect.condition.key))
        except Exception as error:  # noqa: BLE001 -- the step says what it means
            failure = error
        effect.step.on_work_done(effect.condition, failure, self._driver.now_ms())
        self._driver.carry_out()

"""Moving partitions between the log directories of a node, and telling what is in them.

A move makes a copy of the log in the other directory, which follows it, a MiB at a time in a
thread, until almost nothing is missing. Then the copy takes the log's place, in one step of the
event loop: the last records are copied, the directory gets its final name, and from there on the
replica appends to it and reads from it. Producers and consumers notice nothing: a slice that is
being sent holds its file, and what waits for an fsync waits for one of the new log.

storage/directories/log_directories says in which order things reach the disk, and what a crash
leaves behind.
A move that a stop or a crash has interrupted goes on after the start.

What ends a move: the topic is deleted, another move of the same partition, one of the two
directories fails. The copy is removed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import uuid4

from ...handlers.ports.log_dirs_port import LogDirState, LogInDir
from ...protocol.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
)
from ...protocol.topic_partition import TopicPartition
from ...replication.replica import Replica
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.directories.partition_directory import (
    DELETE_SUFFIX,
    MAX_NAME_LENGTH,
    directory_name,
    future_directory_name,
)
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.partition_log import LogSlice, PartitionLog
from ..loop.carry_through import carry_through
from .hosted_replica import InThread
from .replication_throttle import ReplicationThrottle

logger = logging.getLogger(__name__)

COPY_BYTES = 1024**2
LONGEST_WAIT_MS = 1000
LAST_BYTES = 256 * 1024
"""What is copied in the step that switches, while requests wait: well below a millisecond."""


class MoveCancelled(Exception):
    """The reason is not an error: the partition is gone, or wanted elsewhere."""


class ReplicaMove:
    """One copy on its way: it lies in `directory`, and `task` follows the log."""

    __slots__ = ("directory", "future", "key", "replica", "task", "truncations")

    def __init__(
        self, key: TopicPartition, replica: Replica, future: PartitionLog, directory: LogDirectory
    ) -> None:
        self.key = key
        self.replica = replica
        self.future = future
        self.directory = directory
        self.truncations = replica.log.local.truncations
        self.task: asyncio.Task[None] | None = None


class ReplicaMover:
    """Implements handlers.log_dirs_port.LogDirs. One event loop."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Mapping[TopicPartition, Replica],
        *,
        now_ms: Callable[[], int],
        in_thread: InThread,
        throttle: ReplicationThrottle,
        write_note: Callable[[], Awaitable[None]],
        replace_log: Callable[[Replica, PartitionLog], None],
        flush: Callable[[PartitionLog], Awaitable[None]],
        on_failure: Callable[[], None],
    ) -> None:
        self._directories = directories
        self._replicas = replicas
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._throttle = throttle
        self._write_note = write_note
        self._replace_log = replace_log
        self._flush = flush
        self._on_failure = on_failure
        self._moves: dict[TopicPartition, ReplicaMove] = {}

    # --- LogDirs ---------------------------------------------------------------------------------

    async def describe(self) -> list[LogDirState]:
        """Every directory of this node with its logs; see handlers.log_dirs_port.LogDirs."""
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
        """Begin to move a partition to the directory `path`; see handlers.log_dirs_port.LogDirs.

        It begins also if the one who asks goes away meanwhile: half begun it would leave a copy
        that nobody knows of.
        """
        await carry_through(self._start(topic, partition, path))

    async def _start(self, topic: str, partition: int, path: str) -> None:
        key = (topic, partition)
        if len(future_directory_name(topic, partition, uuid4())) > MAX_NAME_LENGTH:
            raise InvalidTopicException(f"the name of {topic} is too long for a move")
        directory = self._directories.at(path)
        if directory is None and path not in self._directories.unusable:
            raise LogDirNotFound(f"{path} is no log directory of this node")
        if directory is None or not directory.health.is_online:
            raise KafkaStorageError(f"the log directory {path} is offline")
        replica = self._replicas.get(key)
        if replica is None:
            raise ReplicaNotAvailable(f"{topic}-{partition} has no replica here")
        current = self._moves.get(key)
        if current is not None and current.directory is not directory:
            await self.end(key)
        if self._directories.of(replica.log) is directory or key in self._moves:
            return
        log = replica.log
        assert log.topic_id is not None
        future = await self._in_thread(
            partial(
                directory.make_log,
                topic,
                partition,
                log.topic_id,
                log.config,
                unique_id=uuid4(),
            )
        )
        if self._replicas.get(key) is not replica or key in self._moves:
            # Deleted, or another request's move, while the directory was made.
            future.close(clean=False)
            await self._in_thread(partial(directory.deletions.delete, [future.directory]))
            return
        directory.future_logs[key] = future
        self._begin(ReplicaMove(key, replica, future, directory))

    def resume(self, key: TopicPartition, replica: Replica) -> None:
        """Go on with a move that a stop has interrupted, if there is one."""
        for directory in self._directories.online:
            future = directory.future_logs.get(key)
            if future is None or key in self._moves:
                continue
            if future.topic_id == replica.log.topic_id and key not in directory.logs:
                future.local.reconfigure(replica.log.config)
                self._begin(ReplicaMove(key, replica, future, directory))

    async def end(self, key: TopicPartition) -> None:
        """Give up the move of a partition, if there is one, and remove the copy."""
        move = self._moves.pop(key, None)
        if move is None:
            return
        if move.task is not None:
            move.task.cancel()
            await asyncio.gather(move.task, return_exceptions=True)
        await self._remove_copy(move)

    async def close(self) -> None:
        """Stop copying; the copies stay and are gone on with after the next start."""
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- moving ----------------------------------------------------------------------------------

    def _begin(self, move: ReplicaMove) -> None:
        self._moves[move.key] = move
        logger.info("%s-%d: moving to %s", *move.key, move.directory.path)
        move.task = asyncio.create_task(self._run(move))

    async def _run(self, move: ReplicaMove) -> None:
        try:
            await self._catch_up(move)
            source = await self._prepare(move)
            while not self._switch(move, source):
                await asyncio.sleep(0)
                await self._catch_up(move)
            await self._finish(move, source)
        except MoveCancelled:
            await self._give_up(move)
        except KafkaError as error:
            logger.warning("%s-%d: the move to %s ends: %s", *move.key, move.directory.path, error)
            self._on_failure()
            await self._give_up(move)
        except Exception:
            logger.exception("%s-%d: the move to %s ends", *move.key, move.directory.path)
            await self._give_up(move)

    def _log(self, move: ReplicaMove) -> PartitionLog:
        """The log that is followed. Raises MoveEnded if there is none any more."""
        if self._replicas.get(move.key) is not move.replica:
            raise MoveCancelled
        return move.replica.log

    def _missing(self, move: ReplicaMove, max_bytes: int) -> LogSlice | None:
        """The next piece to copy; None if the copy has to begin anew."""
        log, future = self._log(move), move.future
        offset = future.log_end_offset
        if log.local.truncations != move.truncations:
            return None
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None
        return log.read(offset, max_bytes=max_bytes, up_to=log.log_end_offset, min_one_batch=True)

    async def _catch_up(self, move: ReplicaMove) -> None:
        """Returns when less than LAST_BYTES are missing."""
        while True:
            piece = self._missing(move, COPY_BYTES)
            if piece is None:
                log = self._log(move)
                move.truncations = log.local.truncations
                await self._in_thread(
                    partial(move.future.truncate_fully_and_start_at, log.log_start_offset)
                )
                continue
            if piece.size:
                await self._in_thread(partial(self._copy, move, piece))
                self._throttle.on_moved(piece.size)
                await self._wait_for_throttle()
            if piece.size <= LAST_BYTES and not piece.is_limited:
                return

    async def _wait_for_throttle(self) -> None:
        """Looked at every second, as the limit may change; a cancelled move ends in it."""
        while (wait_ms := self._throttle.wait_to_move_ms()) > 0:
            await asyncio.sleep(min(wait_ms, LONGEST_WAIT_MS) / 1000)

    def _copy(self, move: ReplicaMove, piece: LogSlice) -> None:
        """In a thread, or on the loop for the last piece: nobody else uses the copy."""
        assert piece.file is not None
        data = piece.file.read_at(piece.size, piece.position)
        move.future.append_as_follower(data, now_ms=self._now_ms())

    async def _prepare(self, move: ReplicaMove) -> LogDirectory:
        """All that waits for the disk and may come before the switch. Returns the old directory."""
        log = self._log(move)
        await self._in_thread(partial(move.future.local.assign_epochs, log.epochs.entries))
        await self._in_thread(move.future.flushing.flush)
        forgetting = move.directory.checkpoints.begin_forgetting([move.key])
        if forgetting is not None:
            await self._in_thread(forgetting.run)
        assert log.topic_id is not None
        self._directories.placements.assign((log.topic_id, move.key[1]), move.directory)
        await self._write_note()
        return self._directories.of(self._log(move))

    def _switch(self, move: ReplicaMove, source: LogDirectory) -> bool:
        """Put the copy in the log's place, in one step; False if too much is missing for that."""
        log, future = self._log(move), move.future
        copied = 0
        while future.log_end_offset != log.log_end_offset:
            piece = self._missing(move, LAST_BYTES)
            if piece is None or copied > LAST_BYTES:
                return False
            if not piece.size:
                # Compaction removed the last batches; their offsets are not given again.
                future.local.roll(now_ms=self._now_ms(), at_offset=log.log_end_offset)
                break
            self._copy(move, piece)
            copied += piece.size
        if log.epochs.latest_epoch != future.epochs.latest_epoch:
            future.local.assign_epochs(log.epochs.entries)
        future.high_watermark = log.high_watermark
        if log.log_start_offset > future.log_start_offset:
            future.advance_log_start_offset(log.log_start_offset)
        future.local.reconfigure(log.config)
        move.directory.rename_log(future, directory_name(*move.key))
        del move.directory.future_logs[move.key]
        move.directory.logs[move.key] = future
        source.release_log(*move.key)
        del self._moves[move.key]
        self._replace_log(move.replica, future)
        return True

    async def _finish(self, move: ReplicaMove, source: LogDirectory) -> None:
        """The old log goes when the new one, and its name, are on the disk."""
        old = f"{source.path}/{directory_name(*move.key)}"
        await self._in_thread(move.directory.sync_names)
        await self._flush(move.replica.log)
        target = await self._in_thread(
            partial(source.retire, old, *move.key, suffix=DELETE_SUFFIX, unique_id=uuid4())
        )
        source.deletions.schedule(target, self._now_ms() + move.future.config.file_delete_delay_ms)
        logger.info("%s-%d: moved to %s", *move.key, move.directory.path)

    async def _give_up(self, move: ReplicaMove) -> None:
        """What has switched stays so; else the log stays where it was, and the note says that."""
        if self._moves.get(move.key) is not move:
            return
        del self._moves[move.key]
        try:
            await self._remove_copy(move)
        except KafkaError:
            self._on_failure()

    async def _remove_copy(self, move: ReplicaMove) -> None:
        log = move.replica.log
        if log.topic_id is not None and self._replicas.get(move.key) is move.replica:
            self._directories.placements.assign(
                (log.topic_id, move.key[1]), self._directories.of(log)
            )
            await self._write_note()
        if move.directory.future_logs.get(move.key) is not move.future:
            return
        if move.directory.health.is_online:
            future = move.directory.release_log(*move.key, future=True)
            await self._in_thread(partial(move.directory.deletions.delete, [future.directory]))
        else:
            del move.directory.future_logs[move.key]

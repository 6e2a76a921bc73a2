"""AlterReplicaLogDirs manager: moves replicas of one node between its log directories.

A move makes a copy of the log in the other directory, which follows it, a MiB at a time in a
thread, until almost nothing is missing. Then the copy takes the log's place, in one input of this
step: the last records are copied, the directory gets its final name, and from there on the replica
appends to it and reads from it. Producers and consumers notice nothing: a slice that is being sent
keeps its file open, and producers that wait for an fsync wait for one of the new log.

The order of disk writes, and the state after a crash: storage/directories/log_directories.
A move that a stop or a crash has interrupted continues after the start.

A move is cancelled, and its copy removed, if the topic is deleted, the partition is moved to
another directory, or one of the two directories fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol
from uuid import UUID

from ...protocol.errors import (
    CorruptMessage,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
)
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.directories.partition_directory import (
    DELETE_SUFFIX,
    MAX_NAME_LENGTH,
    directory_name,
    future_directory_name,
)
from ...storage.log.log_compaction import UnnotedGap
from ...storage.log.partition_log import LogSlice, PartitionLog
from ..effects import Effects, WakeAt, WorkingStep
from ..partition.replica import Replica
from ..procedure import Outcomes, Procedure, ProcedureSteps, Turn, done
from ..storage_work import StorageCall, begin_flush

logger = logging.getLogger(__name__)

COPY_BYTES = 1024**2
LONGEST_WAIT_MS = 1000
"""Longest wait of a throttled move until its limit, which may change, is checked again."""
LAST_BYTES = 256 * 1024
"""Most bytes copied in the step that switches, while requests wait: well below a millisecond."""


NEVER = -1
"""Equal to no number of truncations: the copy has to start again."""


class NothingToMove(Exception):
    """A move ends without an error: its replica is no longer here, or its directory is offline."""


class MoveThrottle(Protocol):
    """Throttle of moves; see replication_throttle."""

    def wait_to_move_ms(self) -> float: ...
    def on_moved(self, size: int) -> None: ...


class Move:
    """A move under way: its copy is in `directory`, and `procedure` makes it follow the log."""

    __slots__ = (
        "_begun",
        "directory",
        "ended",
        "future",
        "key",
        "pause",
        "procedure",
        "replica",
        "truncations",
    )

    def __init__(
        self,
        key: TopicPartitionPair,
        replica: Replica,
        future: PartitionLog,
        directory: LogDirectory,
    ) -> None:
        self.key = key
        self.replica = replica
        self.future = future
        self.directory = directory
        self.truncations = replica.log.local.truncations
        self.procedure: Procedure
        self.pause: Pause | None = None
        self.ended: list[tuple[object, WorkingStep]] = []
        """Steps that wait for the procedure's end, with their conditions: see CopyingStopped."""
        self._begun = (0, 0)

    def begin(self, procedure: Procedure, wall_ms: int) -> None:
        self.procedure = procedure
        self._begun = (procedure.now_ms, wall_ms)
        procedure.begin()

    @property
    def wall_ms(self) -> int:
        """Wall-clock time at the end of the last wait."""
        begun_ms, wall_ms = self._begun
        return wall_ms + self.procedure.now_ms - begun_ms

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"


class AlterLogDirsManager:
    """Moves of one incarnation of a node. Waits for the disk are procedures (see procedure.py)."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Mapping[TopicPartitionPair, Replica],
        effects: Effects,
        *,
        throttle: MoveThrottle,
        write_note: Callable[[], ProcedureSteps],
        new_id: Callable[[], UUID],
        on_storage_failure: Callable[[], None],
    ) -> None:
        """`write_note`: see log_manager."""
        self._directories = directories
        self._replicas = replicas
        self._effects = effects
        self._throttle = throttle
        self._write_note = write_note
        self._new_id = new_id
        self._on_storage_failure = on_storage_failure
        self._moves: dict[TopicPartitionPair, Move] = {}

    # --- beginning and ending --------------------------------------------------------------------

    def move(
        self, topic: str, partition: int, path: str, *, now_ms: int, wall_ms: int
    ) -> ProcedureSteps:
        """Begin to move a partition to `path`; see handlers.ports.log_dirs_port.LogDirs."""
        key = (topic, partition)
        if len(future_directory_name(topic, partition, self._new_id())) > MAX_NAME_LENGTH:
            raise InvalidTopicException(f"the name of {topic} is too long for a move")
        directory = self._directories.at(path)
        if directory is None and path not in self._directories.unusable:
            raise LogDirNotFound(f"{path} is not a log directory of this node")
        if directory is None or not directory.health.is_online:
            raise KafkaStorageError(f"the log directory {path} is offline")
        replica = self._replicas.get(key)
        if replica is None:
            raise ReplicaNotAvailable(f"{topic}-{partition} has no replica here")
        current = self._moves.get(key)
        if current is not None and current.directory is not directory:
            yield from self.end(key)
        if self._directories.of(replica.log) is directory or key in self._moves:
            return
        log = replica.log
        topic_id, config, unique_id = log.topic_id, log.config, self._new_id()
        assert topic_id is not None
        made = StorageCall(
            lambda: directory.make_log(topic, partition, topic_id, config, unique_id=unique_id)
        )
        yield from done(made)
        future = made.result
        if self._replicas.get(key) is not replica or key in self._moves:
            # Deleted, or another request's move, while the directory was made.
            future.close(clean=False)
            yield from done(StorageCall(lambda: directory.deletions.delete([future.directory])))
            return
        directory.future_logs[key] = future
        self._begin(Move(key, replica, future, directory), now_ms, wall_ms)

    def resume(
        self, key: TopicPartitionPair, replica: Replica, *, now_ms: int, wall_ms: int
    ) -> None:
        """Resume a move that a stop interrupted, if there is one."""
        for directory in self._directories.online:
            future = directory.future_logs.get(key)
            if future is None or key in self._moves:
                continue
            if future.topic_id == replica.log.topic_id and key not in directory.logs:
                future.local.reconfigure(replica.log.config)
                move = Move(key, replica, future, directory)
                if not _is_copy_of(replica.log, future):
                    move.truncations = NEVER
                self._begin(move, now_ms, wall_ms)

    def end(self, key: TopicPartitionPair) -> ProcedureSteps:
        """Cancel the move of a partition, if there is one, and remove the copy."""
        move = self._moves.pop(key, None)
        if move is not None:
            yield [CopyingStopped(move)]
            yield from self._remove_copy(move)

    def close(self) -> ProcedureSteps:
        """Stop copying; the copies stay, and the moves resume after the next start."""
        moves = list(self._moves.values())
        if moves:
            yield [CopyingStopped(move) for move in moves]

    # --- moving ----------------------------------------------------------------------------------

    def _begin(self, move: Move, now_ms: int, wall_ms: int) -> None:
        self._moves[move.key] = move
        logger.info("%s: moving to %s", move, move.directory.path)

        def on_end(error: Exception | None) -> None:
            if error is not None:
                logger.error("%s: the move to %s failed", move, move.directory.path, exc_info=error)
            waiting, move.ended = move.ended, []
            for condition, step in waiting:
                step.on_work_done(condition, None, move.procedure.now_ms)

        move.begin(Procedure(self._effects, self._follow(move), now_ms, on_end), wall_ms)

    def _follow(self, move: Move) -> ProcedureSteps:
        try:
            yield from self._catch_up(move)
            source = yield from self._prepare(move)
            while not self._switch(move, source):
                yield [Turn(self._effects)]
                yield from self._catch_up(move)
                yield from self._note_copy(move)
            yield from self._finish(move, source)
        except NothingToMove:
            yield from self._give_up(move)
        except CorruptMessage as error:
            self._examine_source(move, error)
            yield from self._give_up(move)
        except KafkaError as error:
            logger.warning("%s: the move to %s failed: %s", move, move.directory.path, error)
            self._on_storage_failure()
            yield from self._give_up(move)
        except Exception:
            logger.exception("%s: the move to %s failed", move, move.directory.path)
            yield from self._give_up(move)

    def _examine_source(self, move: Move, error: CorruptMessage) -> None:
        """Have the source segment examined, as it could not be copied; it is repaired if another
        replica has the records.
        """
        logger.warning(
            "%s: the move to %s failed: %s; examining the segment: retry when it is repaired",
            move,
            move.directory.path,
            error,
        )
        log = move.replica.log
        segment = log.segments.from_offset(move.future.log_end_offset)[0]
        log.damage.suspect(segment, "copying it to another directory failed")

    def _log(self, move: Move) -> PartitionLog:
        """Log that is followed. Raises NothingToMove if it does not exist any more."""
        if self._replicas.get(move.key) is not move.replica:
            raise NothingToMove
        return move.replica.log

    def _missing(self, move: Move, max_bytes: int) -> LogSlice | None:
        """Next piece to copy; None if the copy has to start again."""
        log, future = self._log(move), move.future
        offset = future.log_end_offset
        if log.local.truncations != move.truncations:
            return None
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return None
        log.damage.refuse_gap(offset)
        return log.read(offset, max_bytes=max_bytes, up_to=log.log_end_offset, min_one_batch=True)

    def _catch_up(self, move: Move) -> ProcedureSteps:
        """Copy until at most LAST_BYTES are missing."""
        while True:
            piece = self._missing(move, COPY_BYTES)
            if piece is None:
                log = self._log(move)
                move.truncations = log.local.truncations
                start = log.log_start_offset
                yield from done(StorageCall(_restart_copy_at(move.future, start)))
                continue
            if piece.size:
                yield from done(CopyPiece(move, piece))
                self._throttle.on_moved(piece.size)
                while (wait_ms := self._throttle.wait_to_move_ms()) > 0:
                    until_ms = move.procedure.now_ms + max(1, int(min(wait_ms, LONGEST_WAIT_MS)))
                    move.pause = Pause(self._effects, until_ms)
                    yield [move.pause]
                    move.pause = None
            if piece.size <= LAST_BYTES and not piece.is_limited:
                return

    def _prepare(self, move: Move) -> Generator[Any, Outcomes, LogDirectory]:
        """Do all disk work that may come before the switch. Returns the old directory."""
        log = self._log(move)
        yield from done(StorageCall(lambda: move.future.local.assign_epochs(log.epochs.entries)))
        yield from done(StorageCall(move.future.flushing.flush))
        forgetting = move.directory.checkpoints.begin_forgetting([move.key])
        if forgetting is not None:
            yield from done(forgetting)
        yield from self._note_copy(move)
        assert log.topic_id is not None
        self._directories.placements.assign((log.topic_id, move.key[1]), move.directory)
        yield from self._write_note()
        return self._directories.of(self._log(move))

    def _note_copy(self, move: Move) -> ProcedureSteps:
        """Store two facts for a start before the copy becomes the log: that it may have gaps, and
        the log start offset, if that is above its first record, as DeleteRecords was answered.
        """
        log, checkpoints = self._log(move), move.directory.checkpoints
        has_gaps, begins_later = log.compaction.cleaner_offset is not None, _begins_later(move)
        if has_gaps:
            checkpoints.expect_gaps(move.key, True)
        if begins_later:
            checkpoints.expect_start(move.key, log.log_start_offset)
        work = checkpoints.begin() if has_gaps or begins_later else None
        if work is not None:
            yield from done(work)

    def _switch(self, move: Move, source: LogDirectory) -> bool:
        """Replace the log by the copy, in one step; False if too much is missing."""
        log, future = self._log(move), move.future
        if log.local.truncations != move.truncations:
            return False  # truncated records were copied, though both may have the same end again
        cleaner_offset, checkpoints = log.compaction.cleaner_offset, move.directory.checkpoints
        if cleaner_offset is not None and not checkpoints.has_noted_gaps(move.key):
            return False
        if _begins_later(move) and checkpoints.noted_start(move.key) < log.log_start_offset:
            return False  # DeleteRecords was answered: records below are deleted
        copied = 0
        while future.log_end_offset != log.log_end_offset:
            piece = self._missing(move, LAST_BYTES)
            if piece is None or copied > LAST_BYTES:
                return False
            if not piece.size:
                # Compaction removed the last batches; their offsets are not given again.
                future.local.roll(now_ms=move.wall_ms, at_offset=log.log_end_offset)
                break
            CopyPiece(move, piece).run()
            copied += piece.size
        if log.epochs.latest_epoch != future.epochs.latest_epoch:
            future.local.assign_epochs(log.epochs.entries)
        future.high_watermark = log.high_watermark
        future.compaction.cleaner_offset = cleaner_offset
        future.advance_log_start_offset(log.log_start_offset)
        future.local.reconfigure(log.config)
        move.directory.rename_log(future, directory_name(*move.key))
        del move.directory.future_logs[move.key]
        move.directory.logs[move.key] = future
        checkpoints.expect_gaps(move.key, False)
        checkpoints.expect_start(move.key, None)
        source.release_log(*move.key)
        del self._moves[move.key]
        move.replica.replace_log(future)
        return True

    def _finish(self, move: Move, source: LogDirectory) -> ProcedureSteps:
        """Delete the old log when the new one, and its name, are durable."""
        old = f"{source.path}/{directory_name(*move.key)}"
        yield from done(StorageCall(move.directory.sync_names))
        flush = begin_flush(move.replica.log)
        if flush is not None:
            yield from done(flush)
            flush.complete()
        unique_id = self._new_id()
        retired = StorageCall(
            lambda: source.retire(old, *move.key, suffix=DELETE_SUFFIX, unique_id=unique_id)
        )
        yield from done(retired)
        delay_ms = move.future.config.file_delete_delay_ms
        source.deletions.schedule(retired.result, move.wall_ms + delay_ms)
        logger.info("%s: moved to %s", move, move.directory.path)

    def _give_up(self, move: Move) -> ProcedureSteps:
        """End a failed move. A completed switch stays; otherwise the log stays where it was, and
        the stored placements are reset to that.
        """
        if self._moves.get(move.key) is not move:
            return
        del self._moves[move.key]
        try:
            yield from self._remove_copy(move)
        except KafkaError:
            self._on_storage_failure()

    def _remove_copy(self, move: Move) -> ProcedureSteps:
        log, placements = move.replica.log, self._directories.placements
        # Otherwise a later log of this name would be expected to begin where this one did.
        move.directory.checkpoints.expect_gaps(move.key, False)
        move.directory.checkpoints.expect_start(move.key, None)
        if log.topic_id is not None:
            # Also if the log's directory has just failed: the next start without it would make an
            # empty log in the stored placement. A partition that was deleted has no placement.
            replica_id = (log.topic_id, move.key[1])
            is_offline = move.key not in self._replicas
            is_noted = placements.directory_id_of(replica_id) is not None
            if self._replicas.get(move.key) is move.replica or (is_offline and is_noted):
                placements.assign(replica_id, self._directories.of(log))
                yield from self._write_note()
        if move.directory.future_logs.get(move.key) is not move.future:
            return
        if move.directory.health.is_online:
            future = move.directory.release_log(*move.key, future=True)
            copy = future.directory
            yield from done(StorageCall(lambda: move.directory.deletions.delete([copy])))
        else:
            del move.directory.future_logs[move.key]


def _is_copy_of(log: PartitionLog, future: PartitionLog) -> bool:
    """Whether `log` contains all of `future`: it may have been truncated since."""
    copied = future.epochs.latest_epoch
    epoch, end = log.end_offset_for_epoch(copied)
    return epoch == copied and future.log_end_offset <= end


def _begins_later(move: Move) -> bool:
    """Whether records in the copy are deleted in the log."""
    return move.replica.log.log_start_offset > move.future.segments[0].base_offset


def _restart_copy_at(future: PartitionLog, start: int) -> Callable[[], None]:
    return lambda: future.truncate_fully_and_start_at(start)


class CopyPiece:
    """Copies a piece of a log into the copy of a move, which nothing else uses."""

    __slots__ = ("_move", "_piece", "_wall_ms")

    def __init__(self, move: Move, piece: LogSlice) -> None:
        self._move = move
        self._piece = piece
        self._wall_ms = move.wall_ms

    def run(self) -> None:
        """See storage_work.Work."""
        piece = self._piece
        assert piece.file is not None
        data = piece.file.read_at(piece.size, piece.position)
        future = self._move.future
        try:
            future.append_as_follower(data, now_ms=self._wall_ms)
        except UnnotedGap:  # noted on the disk before it is the log
            future.compaction.note_gaps(future.log_start_offset)
            future.append_as_follower(data, now_ms=self._wall_ms)


class Pause:
    """Condition that a time is reached, or that waiting for it is cancelled."""

    def __init__(self, effects: Effects, until_ms: int) -> None:
        self._effects = effects
        self._until_ms = until_ms
        self._step: WorkingStep | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        """See procedure.Condition."""
        self._step = step
        self._effects.append(WakeAt(self, self._until_ms))

    def on_time(self, now_ms: int) -> None:
        """See effects.WakeAt."""
        step, self._step = self._step, None
        if step is not None:
            step.on_work_done(self, None, now_ms)


class CopyingStopped:
    """Condition that the copy of a move is never changed again."""

    def __init__(self, move: Move) -> None:
        self._move = move

    def begin_waiting(self, step: WorkingStep) -> None:
        """See procedure.Condition."""
        move = self._move
        if not move.procedure.is_running:
            step.on_work_done(self, None, move.procedure.now_ms)
            return
        move.ended.append((self, step))
        move.procedure.cancel()
        if move.pause is not None:
            move.pause.on_time(move.procedure.now_ms)

"""Log manager: finds, creates, sets aside and deletes the logs of one node in its directories.

The logs of a removed topic are renamed at once and their files deleted later. A directory whose
topic is not in the metadata is set aside as `-stray` and never deleted: it may be the only copy.
The placement of a partition is stored durably before its log is made.

Methods that wait for the disk are procedures (see procedure.py). Not here: leaders and followers
(replica_manager), how the directories are opened and closed (directory_lifecycle).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from ...cluster.metadata.metadata_image import MetadataImage, PartitionImage, TopicImage
from ...protocol.errors import KafkaStorageError
from ...protocol.topic_partition import TopicIdPartition, TopicPartitionPair
from ...storage.directories.log_directories import LogDirectories
from ...storage.directories.log_directory import LogDirectory
from ...storage.directories.partition_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    parse_directory_name,
)
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.partition_log import PartitionLog
from ...storage.log_config import LogConfig
from ..procedure import OneAtATime, Outcomes, ProcedureSteps
from ..storage_work import StorageCall

logger = logging.getLogger(__name__)

MAKE_AT_ONCE = 64
"""Logs that one thread creates in a row: few jobs, but enough to use several threads."""


class AssignedPartition(NamedTuple):
    """A partition that the metadata places on this node."""

    topic: TopicImage
    partition: int
    state: PartitionImage
    is_led_here: bool

    @property
    def key(self) -> TopicPartitionPair:
        return self.topic.name, self.partition

    @property
    def replica_id(self) -> TopicIdPartition:
        return self.topic.topic_id, self.partition


class OpenedLogs(NamedTuple):
    """Opened logs, and the reasons why others are offline. found: partitions whose logs existed
    already.

    unmade: those of `offline` that never had a log here, so that one may still be made.
    """

    logs: list[tuple[AssignedPartition, PartitionLog]]
    found: list[AssignedPartition]
    offline: dict[TopicPartitionPair, str]
    unmade: list[TopicPartitionPair]

    def put_off(self, assigned: Iterable[AssignedPartition], why: object) -> None:
        for each in assigned:
            self.offline[each.key] = str(why)
            self.unmade.append(each.key)


class MakeLogs:
    """Creation of logs in one directory; `made` are those created, even if it failed in between."""

    def __init__(
        self,
        directory: LogDirectory,
        assigned: Sequence[AssignedPartition],
        config_of: Callable[[TopicImage], LogConfig],
    ) -> None:
        self.directory = directory
        self.assigned = assigned
        self.made: list[tuple[AssignedPartition, PartitionLog]] = []
        self._configs = [config_of(each.topic) for each in assigned]

    def run(self) -> None:
        """See storage_work.Work."""
        for each, config in zip(self.assigned, self._configs, strict=True):
            log = self.directory.make_log(
                each.topic.name,
                each.partition,
                each.topic.topic_id,
                config,
                leader_epoch=each.state.leader_epoch if each.is_led_here else None,
                sync_names=False,
            )
            self.made.append((each, log))
        self.directory.sync_names()


class RetireLog:
    """Rename of the directory of a closed log to a name under which it is not opened."""

    def __init__(
        self,
        directory: LogDirectory,
        path: str,
        key: TopicPartitionPair,
        *,
        suffix: str,
        unique_id: UUID,
    ) -> None:
        self._directory = directory
        self._path = path
        self._key = key
        self._suffix = suffix
        self._unique_id = unique_id
        self.target = ""

    def run(self) -> None:
        """See storage_work.Work."""
        self.target = self._directory.retire(
            self._path, *self._key, suffix=self._suffix, unique_id=self._unique_id
        )


class LogManager:
    """Logs of one incarnation of a node."""

    def __init__(
        self,
        directories: LogDirectories,
        *,
        config_of: Callable[[TopicImage], LogConfig],
        new_id: Callable[[], UUID],
        on_storage_failure: Callable[[], None],
    ) -> None:
        """`new_id`: makes a random unique id."""
        self.directories = directories
        self._config_of = config_of
        self._new_id = new_id
        self._on_storage_failure = on_storage_failure
        self._note_turn = OneAtATime()
        # Logs found at the start that belong to no known partition so far.
        self._unclaimed: dict[PartitionLog, TopicPartitionPair] = {
            log: key for directory in directories.online for key, log in directory.logs.items()
        }

    def open_logs(
        self, assigned: Sequence[AssignedPartition], wall_ms: int
    ) -> Generator[Sequence[Any], Outcomes, OpenedLogs]:
        """Open the existing logs; create missing ones, after their placements are stored.

        A log that cannot be made, or whose directory is missing, leaves its partition offline.
        """
        directories = self.directories
        opened = OpenedLogs([], [], {}, [])
        missing: list[AssignedPartition] = []
        for each in assigned:
            log = directories.claim(each.key, each.topic.topic_id, each.state.leader_epoch)
            if log is None:
                reasons = [
                    one.unopened[each.key] for one in directories.online if each.key in one.unopened
                ]
                if reasons:
                    opened.offline[each.key] = reasons[0]
                elif _awaits_its_log(directories, each):
                    opened.offline[each.key] = _directory_missing(each.key)
                else:
                    missing.append(each)
                continue
            self._unclaimed.pop(log, None)
            if log.topic_id != each.topic.topic_id:
                yield from self._write_topic_id(log, each)
            opened.logs.append((each, log))
            opened.found.append(each)
        for each in missing:
            yield from self._clear_name(each, wall_ms)
        places = directories.placements.place(each.replica_id for each in missing)
        try:
            yield from self.write_note()
        except KafkaStorageError as error:
            self._on_storage_failure()
            opened.put_off(missing, error)
            return opened
        jobs: dict[LogDirectory, list[AssignedPartition]] = {}
        for each in missing:
            directory = places.get(each.replica_id)
            if directory is None:
                opened.offline[each.key] = _directory_missing(each.key)
            else:
                jobs.setdefault(directory, []).append(each)
        yield from self._forget_names(jobs, opened)
        yield from self._make_logs(jobs, opened)
        return opened

    def _write_topic_id(self, log: PartitionLog, assigned: AssignedPartition) -> ProcedureSteps:
        """Restore a lost partition.metadata. As in Kafka: the topic id comes from the metadata."""
        topic_id = assigned.topic.topic_id
        logger.warning(
            "%s: partition.metadata is lost or damaged: topic id %s", log.directory, topic_id
        )
        call = partial(self.directories.of(log).assign_topic_id, log, topic_id)
        [failure] = yield [StorageCall(call)]
        if isinstance(failure, KafkaStorageError):
            self._on_storage_failure()
        elif failure is not None:
            raise failure

    def write_note(self) -> ProcedureSteps:
        """Store the placements of the partitions durably. Raises KafkaStorageError."""
        try:
            yield [self._note_turn]  # in `try`: a cancelled procedure ends here, and has the turn
            note = self.directories.placements.begin_note()
            if note is not None:
                [failure] = yield [note]
                if failure is not None:
                    raise failure
        finally:
            self._note_turn.release()

    def _forget_names(
        self, jobs: dict[LogDirectory, list[AssignedPartition]], opened: OpenedLogs
    ) -> ProcedureSteps:
        """Remove checkpoint entries of a former log of this name before a new one is created."""
        begun = [
            (directory, work)
            for directory, assigned in jobs.items()
            if (work := directory.checkpoints.begin_forgetting([each.key for each in assigned]))
            is not None
        ]
        if not begun:
            return
        outcomes = yield [work for _, work in begun]
        for (directory, _), failure in zip(begun, outcomes, strict=True):
            if isinstance(failure, KafkaStorageError):
                self._on_storage_failure()
                refused = jobs.pop(directory)
                opened.put_off(refused, failure)
            elif failure is not None:
                raise failure

    def _make_logs(
        self, jobs: dict[LogDirectory, list[AssignedPartition]], opened: OpenedLogs
    ) -> ProcedureSteps:
        works = [
            MakeLogs(directory, assigned[start : start + MAKE_AT_ONCE], self._config_of)
            for directory, assigned in jobs.items()
            for start in range(0, len(assigned), MAKE_AT_ONCE)
        ]
        if not works:
            return
        outcomes = yield works
        for work, failure in zip(works, outcomes, strict=True):
            if isinstance(failure, KafkaStorageError):
                self._on_storage_failure()
                unmade = work.assigned[len(work.made) :]
                opened.put_off(unmade, failure)
            elif failure is not None:
                raise failure
            for each, log in work.made:
                work.directory.logs[each.key] = log
                opened.logs.append((each, log))

    def forget(self, replica_ids: Iterable[TopicIdPartition]) -> None:
        """Forget the placements of partitions that are no longer assigned to this node."""
        self.directories.placements.forget(replica_ids)

    def _clear_name(self, assigned: AssignedPartition, wall_ms: int) -> ProcedureSteps:
        """Set aside a log of this name that belongs to another, deleted topic id."""
        for directory in self.directories.online:
            log = directory.logs.get(assigned.key)
            if log in self._unclaimed:
                yield from self._set_aside(assigned.key, log, wall_ms)

    @property
    def has_unclaimed(self) -> bool:
        """Whether there are logs that belong to no known partition so far."""
        return bool(self._unclaimed)

    def set_strays_aside(
        self,
        image: MetadataImage,
        node_id: int,
        served: Mapping[TopicPartitionPair, PartitionLog],
        wall_ms: int,
    ) -> ProcedureSteps:
        """Set aside logs that the metadata, now known, does not assign to this node.

        served: the logs of its partitions, which stay. The log of an assigned partition without a
            served log stays, too, whatever has prevented that it was claimed.
        """
        for log in list(self._unclaimed):
            key = parse_directory_name(log.directory.rpartition("/")[2])
            assert key is not None, log.directory
            if not _is_assigned(image, node_id, key, log) or served.get(key, log) is not log:
                yield from self._set_aside(key, log, wall_ms)

    def _set_aside(
        self, key: TopicPartitionPair, log: PartitionLog, wall_ms: int
    ) -> ProcedureSteps:
        self._unclaimed.pop(log, None)
        logger.warning(
            "%s-%d with topic id %s is not in the metadata: renaming its directory to -stray",
            *key,
            log.topic_id,
        )
        yield from self.retire(key, log, STRAY_SUFFIX, wall_ms)

    def retire(
        self, key: TopicPartitionPair, log: PartitionLog, suffix: str, wall_ms: int
    ) -> ProcedureSteps:
        """Close a log and rename its directory, durably, so that it is not opened."""
        directory = self.directories.of(log)
        try:
            path = log.directory
            directory.release_log(*key)
            work = RetireLog(directory, path, key, suffix=suffix, unique_id=self._new_id())
            [failure] = yield [work]
            if failure is not None:
                raise failure
        except StorageFailure:
            self._on_storage_failure()
            return
        if suffix == DELETE_SUFFIX:
            directory.deletions.schedule(work.target, wall_ms + log.config.file_delete_delay_ms)


def _directory_missing(key: TopicPartitionPair) -> str:
    return f"the log directory that holds {key[0]}-{key[1]} is offline"


def _awaits_its_log(directories: LogDirectories, assigned: AssignedPartition) -> bool:
    """Whether only the copy of a move is here, and a directory is missing.

    A move stores its target as the placement before it switches, so the placement may be a
    directory that has only the copy. The log is in the missing directory then.
    """
    return directories.offline_count > 0 and any(
        (future := each.future_logs.get(assigned.key)) is not None
        and future.topic_id == assigned.topic.topic_id
        for each in directories.online
    )


def _is_assigned(
    image: MetadataImage, node_id: int, key: TopicPartitionPair, log: PartitionLog
) -> bool:
    topic, state = image.topics.get(key[0]), image.partition(*key)
    if topic is None or state is None or topic.topic_id != log.topic_id:
        return False
    return node_id in state.replicas

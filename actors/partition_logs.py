"""The log directories of one node and the logs in them: found, made, set aside, deleted.

The logs of a removed topic are renamed away at once and their files deleted later. A directory
whose topic the metadata does not know is set aside as `-stray` and never deleted: it may be
somebody's only copy.

Not here: who leads what (partition_host).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ..cluster.broker_config import BrokerConfig
from ..cluster.metadata_image import PartitionImage, TopicImage
from ..protocol.errors import KafkaStorageError
from ..storage.directories.log_directories import OFFLINE, LogDirectories
from ..storage.directories.log_directory import LogDirectory
from ..storage.directories.partition_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    parse_directory_name,
)
from ..storage.directories.replica_directories import ReplicaId
from ..storage.disk.file_system import FileSystem
from ..storage.disk.storage_failure import DataDirectoryError, DirectoryUnusable, StorageFailure
from ..storage.log.partition_log import PartitionLog
from ..storage.log_config import LogConfig
from .intact_token import IntactToken
from .replica import InThread

logger = logging.getLogger("bradbury.partitions")

TopicPartition = tuple[str, int]
MAKE_AT_ONCE = 64
"""Logs that one thread makes in a row: enough threads get work, and few jobs are handed out."""


class Wanted(NamedTuple):
    """A partition that the metadata places on this node."""

    topic: TopicImage
    partition: int
    state: PartitionImage
    is_led_here: bool

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.partition

    @property
    def replica_id(self) -> ReplicaId:
        return self.topic.topic_id, self.partition


class Taken(NamedTuple):
    """Logs that are open now, and why others are not. found: it was there already."""

    logs: list[tuple[Wanted, PartitionLog]]
    found: list[Wanted]
    offline: dict[TopicPartition, str]


class PartitionLogs:
    """One event loop. `open` first; `close` at last."""

    def __init__(
        self,
        paths: Sequence[str],
        file_system: FileSystem,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
        in_thread: InThread,
        log_config: Callable[[TopicImage], LogConfig],
        on_failure: Callable[[], None],
    ) -> None:
        self._paths = tuple(paths)
        self._file_system = file_system
        self._config = config
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._log_config = log_config
        self._on_failure = on_failure
        self._directories: LogDirectories | None = None
        self._unclaimed: set[PartitionLog] = set()
        self._token: IntactToken | None = None
        self.has_all_data = True
        """Whether all that this node ever acknowledged is here: see intact_token."""
        self._noting = asyncio.Lock()

    # --- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directories and recover their logs. Blocking: in a thread, before the loop's.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        directories = LogDirectories.open(
            self._file_system,
            self._paths,
            directory_ids=[str(uuid4()) for _ in self._paths],
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            make_lock=threading.Lock,
        )
        self._directories = directories
        for path, reason in directories.unusable.items():
            logger.error("%s is offline until restart: %s", path, reason)
        try:
            said = directories.load_logs(lambda topic: LogConfig(), now_ms=self._now_ms())
        except (StorageFailure, DataDirectoryError) as error:
            self._directories = None
            directories.close(clean=False)
            if isinstance(error, DataDirectoryError):
                raise
            raise DirectoryUnusable(f"no data directory can be read: {error}") from error
        self._token = IntactToken(
            {each.directory_id: str(Path(each.path).absolute()) for each in directories.all}
        )
        self.has_all_data = directories.has_all_data(self._token.is_valid)
        if not self.has_all_data:
            logger.warning(
                "the last stop was neither clean nor the death of a process alone: what this node "
                "leads is given to others that are in sync"
            )
        else:
            self._token.put()  # the clean marks are taken: from here on it says the same
        for sentence in said:
            logger.warning("%s", sentence)
        for directory in directories.online:
            for (topic, partition), log in directory.logs.items():
                self._unclaimed.add(log)
                if log.recovery.bytes_truncated:
                    logger.warning("%s-%d recovered: %s", topic, partition, log.recovery)

    @property
    def is_open(self) -> bool:
        return self._directories is not None

    @property
    def directories(self) -> LogDirectories:
        assert self._directories is not None, "open() comes first"
        return self._directories

    async def close(self) -> None:
        """Flush everything, write the checkpoints and the clean marks."""
        if self._directories is not None:
            directories, self._directories = self._directories, None
            if self._token is not None:
                self._token.remove()  # from here on the clean marks say it
            try:
                await self._in_thread(partial(directories.close, clean=True))
            except KafkaStorageError as error:
                logger.error("not closed cleanly, so the next start recovers it: %s", error)  # noqa: TRY400

    # --- logs ------------------------------------------------------------------------------------

    async def take(self, wanted: Iterable[Wanted]) -> Taken:
        """Take the logs that are there; make those that are not, noted before they are made.

        A log that cannot be made, or whose directory is missing, leaves its partition offline.
        """
        directories = self.directories
        taken = Taken([], [], {})
        missing: list[Wanted] = []
        for each in wanted:
            log = directories.claim(each.key, each.topic.topic_id)
            if log is None:
                missing.append(each)
                continue
            self._unclaimed.discard(log)
            taken.logs.append((each, log))
            taken.found.append(each)
        for each in missing:
            await self._clear_name(each)
        places = directories.place(each.replica_id for each in missing)
        try:
            await self.write_note()
        except KafkaStorageError as error:
            self._on_failure()
            taken.offline.update((each.key, str(error)) for each in missing)
            return taken
        jobs: dict[LogDirectory, list[Wanted]] = {}
        for each in missing:
            directory = places.get(each.replica_id)
            if directory is None:
                taken.offline[each.key] = OFFLINE.format(*each.key)
            else:
                jobs.setdefault(directory, []).append(each)
        await asyncio.gather(
            *(self._make_in(directory, each, taken) for directory, each in jobs.items())
        )
        return taken

    def begin(self) -> None:
        """The directories are this node's from now on; the death of its process loses nothing."""
        if self._token is not None:
            self._token.put()

    def on_failure_of_disk(self) -> None:
        """What a disk that failed still has is not known: the next life catches up first."""
        if self._token is not None:
            self._token.remove()

    async def write_note(self) -> None:
        """Where the partitions are, durably. Raises KafkaStorageError."""
        async with self._noting:
            note = self.directories.begin_note()
            if note is not None:
                await self._in_thread(note.run)

    async def _make_in(
        self, directory: LogDirectory, wanted: Sequence[Wanted], taken: Taken
    ) -> None:
        forgetting = directory.begin_forgetting([each.key for each in wanted])
        if forgetting is not None:
            try:
                await self._in_thread(forgetting.run)
            except KafkaStorageError as error:
                self._on_failure()
                taken.offline.update((each.key, str(error)) for each in wanted)
                return
        await asyncio.gather(
            *(
                self._make_logs(directory, wanted[start : start + MAKE_AT_ONCE], taken)
                for start in range(0, len(wanted), MAKE_AT_ONCE)
            )
        )

    async def _make_logs(
        self, directory: LogDirectory, wanted: Sequence[Wanted], taken: Taken
    ) -> None:
        made: list[tuple[Wanted, PartitionLog]] = []

        def make() -> None:
            for each in wanted:
                log = directory.make_log(
                    each.topic.name,
                    each.partition,
                    each.topic.topic_id,
                    self._log_config(each.topic),
                    leader_epoch=each.state.leader_epoch if each.is_led_here else None,
                    sync_names=False,
                )
                made.append((each, log))
            directory.sync_names()

        try:
            await self._in_thread(make)
        except KafkaStorageError as error:
            self._on_failure()
            taken.offline.update((each.key, str(error)) for each in wanted[len(made) :])
        for each, log in made:
            directory.logs[each.key] = log
            taken.logs.append((each, log))

    def forget(self, replica_ids: Iterable[ReplicaId]) -> None:
        """They are not placed here any more."""
        self.directories.forget(replica_ids)

    async def _clear_name(self, wanted: Wanted) -> None:
        """A log of this name that belongs to another topic id, which is no more."""
        for directory in self.directories.online:
            log = directory.logs.get(wanted.key)
            if log in self._unclaimed:
                await self._set_aside(*wanted.key, log)

    async def set_strays_aside(self) -> None:
        """Logs on the disk that the metadata, now known, does not place here."""
        for log in list(self._unclaimed):
            found = parse_directory_name(log.directory.rpartition("/")[2])
            assert found is not None, log.directory
            await self._set_aside(*found, log)

    async def _set_aside(self, topic: str, index: int, log: PartitionLog) -> None:
        self._unclaimed.discard(log)
        logger.warning(
            "the metadata knows no %s-%d with topic id %s: setting its log aside as -stray",
            topic,
            index,
            log.topic_id,
        )
        await self.retire(topic, index, log, STRAY_SUFFIX)

    async def retire(self, topic: str, index: int, log: PartitionLog, suffix: str) -> None:
        """Close a log and give its directory, durably, a name under which it is not opened."""
        directory = self.directories.of(log)
        try:
            directory.release_log(topic, index)
            target = await self._in_thread(
                partial(
                    directory.retire,
                    log.directory,
                    topic,
                    index,
                    suffix=suffix,
                    unique_id=uuid4(),
                )
            )
        except StorageFailure:
            self._on_failure()
            return
        if suffix == DELETE_SUFFIX:
            directory.doom(target, self._now_ms() + log.config.file_delete_delay_ms)

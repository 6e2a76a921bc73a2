"""What is said of log directories whose disk fails while they are opened, and of the next life."""

import errno
from contextlib import nullcontext
from uuid import UUID

import pytest

from bradbury.protocol.errors import KafkaStorageError
from bradbury.replication.logs.directory_lifecycle import DirectoryLifecycle
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

PATHS = ("/a", "/b")


class Memory:
    """Ids of directories whose page cache is there; put and removed as the token is."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._of: set[str] = set()

    def token_of(self, directories: LogDirectories) -> "Memory":
        self._of = {each.identity.directory_id for each in directories.all}
        return self

    def is_valid(self, directory_id: str) -> bool:
        return directory_id in self.ids

    def put(self) -> None:
        self.ids |= self._of

    def remove(self) -> None:
        self.ids -= self._of


def opened(disk: MemoryFileSystem, memory: Memory) -> DirectoryLifecycle:
    ids = iter(("a", "b"))
    lifecycle = DirectoryLifecycle(
        PATHS,
        disk,
        token_of=memory.token_of,
        new_directory_id=lambda: next(ids),
        producer_id_expiration_ms=1000,
        make_lock=nullcontext,
    )
    lifecycle.open(0)
    return lifecycle


def registered(lifecycle: DirectoryLifecycle) -> LogDirectories:
    lifecycle.directories.assign_identity(cluster_id="c", node_id=1)
    lifecycle.begin()
    return lifecycle.directories


def killed(disk: MemoryFileSystem) -> None:
    disk.locks.clear()


def test_a_directory_with_a_log_that_cannot_be_opened_has_not_all_data() -> None:
    disk, memory = MemoryFileSystem(), Memory()
    first = registered(opened(disk, memory))
    first.all[1].create_log("t", 0, UUID(int=1), LogConfig(), now_ms=0)
    killed(disk)
    assert opened(disk, memory).has_all_data, "only the process has died"
    killed(disk)

    def fail(operation: str, path: str) -> None:
        if path.startswith("/b/t-0/"):
            raise OSError(errno.EIO, "Input/output error")

    disk.before = fail
    second = opened(disk, memory)
    assert [each.health.is_online for each in second.directories.all] == [True, True]
    assert list(second.directories.all[1].unopened) == [("t", 0)], "the disk itself is fine"
    assert not second.has_all_data
    registered(second)
    memory.ids.clear()  # as a disk that failed and a machine that was started again
    registered(second)
    assert memory.ids == set(), "what the failed disk has is not known in the next life either"


def test_what_a_failed_disk_has_is_not_known_after_a_restart() -> None:
    disk, memory = MemoryFileSystem(), Memory()
    lifecycle = opened(disk, memory)
    registered(lifecycle)
    lifecycle.on_directory_failed()
    killed(disk)
    second = opened(disk, memory)
    assert not second.has_all_data
    assert memory.ids == set(), "each life has to say so until it is registered"
    registered(second)
    killed(disk)
    assert opened(disk, memory).has_all_data


def test_after_a_clean_stop_the_marks_say_it_alone() -> None:
    disk, memory = MemoryFileSystem(), Memory()
    lifecycle = opened(disk, memory)
    registered(lifecycle)
    directories = lifecycle.end()
    assert directories is not None
    assert memory.ids, "it may still be killed before the marks are there"
    directories.close(clean=True)
    lifecycle.on_closed()
    assert memory.ids == set()
    assert opened(disk, memory).has_all_data


@pytest.mark.parametrize("refused", [errno.ENOSPC, errno.EIO], ids=["full", "failed"])
def test_a_full_disk_that_takes_no_clean_mark_has_lost_nothing(refused: int) -> None:
    disk, memory = MemoryFileSystem(), Memory()
    lifecycle = opened(disk, memory)
    log = registered(lifecycle).all[1].create_log("t", 0, UUID(int=1), LogConfig(), now_ms=0)
    log.append_as_leader(make_batch(), leader_epoch=0, now_ms=0, opened=True)

    def refuse(operation: str, path: str) -> None:
        if path.startswith("/b/") and operation == "write":
            raise OSError(refused, "refused")

    disk.before = refuse
    directories = lifecycle.end()
    assert directories is not None
    with pytest.raises(KafkaStorageError):
        directories.close(clean=True)
    lifecycle.on_closed()
    disk.before = lambda operation, path: None
    second = opened(disk, memory)
    assert second.has_all_data == (refused == errno.ENOSPC)


def test_damage_is_told_by_every_life_until_the_node_is_registered() -> None:
    """The first life cuts the damage off, so that the next one finds nothing wrong."""
    disk, memory = MemoryFileSystem(), Memory()
    first = registered(opened(disk, memory))
    log = first.all[0].create_log("t", 0, UUID(int=1), LogConfig(), now_ms=0)
    for _ in range(3):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=0, opened=True)
    killed(disk)
    [path] = [name for name in disk.names if name.endswith(".log")]
    content = disk.names[path].content
    content[len(content) // 2] ^= 0xFF
    assert not opened(disk, memory).has_all_data
    killed(disk)
    second = opened(disk, memory)
    assert not any(log.recovery.is_damaged for log in second.directories.all[0].logs.values())
    assert not second.has_all_data, "the controller does not know of it"
    registered(second)
    killed(disk)
    assert opened(disk, memory).has_all_data


def test_what_was_there_when_it_was_opened_is_still_known_if_the_process_dies_at_once() -> None:
    disk, memory = MemoryFileSystem(), Memory()
    registered(opened(disk, memory))
    for _ in range(3):  # none of these lives is registered
        killed(disk)
        assert opened(disk, memory).has_all_data
        assert memory.ids == {"a", "b"}

"""Several log directories on a node: where are the partitions, and what if a disk is missing?"""

import errno
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from bradbury.protocol.errors import KafkaStorageError
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.directories.partition_directory import directory_name
from bradbury.storage.disk.storage_failure import (
    DataDirectoryError,
    DirectoryUnusable,
    StorageFailure,
)
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.closed_segments import CLOSED_SEGMENTS
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import read_all, remove_log
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

CONFIG = LogConfig(segment_bytes=256)
TOPIC_ID = UUID(int=7)
PATHS = ("/one", "/two", "/three")
SIZE = len(make_batch())


def start(
    disk: MemoryFileSystem, paths: Sequence[str] = PATHS, *, load: bool = True
) -> LogDirectories:
    ids = [f"id-of{path.replace('/', '-')}" for path in paths]
    directories = LogDirectories.open(disk, paths, directory_ids=ids)
    if load:
        directories.load_logs(lambda topic: CONFIG, now_ms=1000)
    return directories


def make(directories: LogDirectories, partitions: Sequence[int]) -> list[str]:
    """Make the logs of partitions of topic `t`; returns the directory of each."""
    places = directories.placements.place((TOPIC_ID, partition) for partition in partitions)
    note = directories.placements.begin_note()
    if note is not None:
        note.run()
    for (_, partition), directory in places.items():
        directory.logs["t", partition] = directory.make_log("t", partition, TOPIC_ID, CONFIG)
    return [directory.path for directory in places.values()]


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)


def failing(path: str, operations: tuple[str, ...] = ()) -> Callable[[str, str], None]:
    """Every operation below `path` (of these kinds) meets an I/O error."""

    def before(operation: str, called: str) -> None:
        inside = called == path or called.startswith(path + "/")
        if inside and (not operations or operation in operations):
            raise OSError(errno.EIO, "Input/output error")

    return before


def test_new_partitions_go_where_the_fewest_are() -> None:
    directories = start(MemoryFileSystem())
    assert make(directories, [0, 1, 2, 3]) == ["/one", "/two", "/three", "/one"]
    remove_log(directories.all[1], "t", 1, now_ms=0)
    directories.placements.forget([(TOPIC_ID, 1)])
    assert make(directories, [4, 5]) == ["/two", "/two"]


def test_a_directory_given_twice_is_refused() -> None:
    with pytest.raises(DataDirectoryError, match="twice"):
        start(MemoryFileSystem(), ("/one", "/one"))


def test_all_logs_are_found_again_in_any_order_of_directories() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, range(7))
    for partition in range(7):
        log = directories.claim(("t", partition), TOPIC_ID)
        assert log is not None
        append(log, partition)
    directories.close(clean=True)
    again = start(disk, PATHS[::-1])
    for partition in range(7):
        log = again.claim(("t", partition), TOPIC_ID)
        assert log is not None
        assert log.log_end_offset == partition
        assert log.recovery.segments_scanned == 0
    assert again.placements.begin_note() is None


def test_a_failing_directory_leaves_the_others_alone() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0, 1, 2])
    disk.before = failing("/two")
    with pytest.raises(StorageFailure):
        directories.all[1].logs["t", 1].flushing.flush() or append(directories.all[1].logs["t", 1])
    assert [each.path for each in directories.online] == ["/one", "/three"]
    append(directories.all[0].logs["t", 0])
    assert directories.placements.place([(TOPIC_ID, 1)]) == {}
    directories.close(clean=True)
    assert "/one/.kafka_cleanshutdown" in disk.names
    assert "/two/.kafka_cleanshutdown" not in disk.names


@pytest.mark.parametrize("absence", ["not named", "cannot be read", "damaged", "an empty new disk"])
def test_a_partition_of_a_missing_directory_is_never_created_again(absence: str) -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0, 1, 2])
    append(directories.all[1].logs["t", 1], 5)
    directories.close(clean=True)
    paths: Sequence[str] = PATHS
    if absence == "not named":
        paths = ("/one", "/three")
    elif absence == "cannot be read":
        disk.before = failing("/two")
    elif absence == "damaged":
        for name in ("meta.properties", "meta.properties.copy"):
            disk.open(f"/two/{name}").truncate(3)
    else:
        for name in [name for name in disk.names if name.startswith("/two")]:
            del disk.names[name]
    again = LogDirectories.open(disk, paths, directory_ids=["a", "b", "c"][: len(paths)])
    again.load_logs(lambda topic: CONFIG, now_ms=1000)
    assert again.claim(("t", 1), TOPIC_ID) is None
    assert again.placements.place([(TOPIC_ID, 1)]) == {}
    assert again.claim(("t", 0), TOPIC_ID) is not None
    # A topic of the same name that was made after the old one was deleted is another topic.
    assert len(again.placements.place([(UUID(int=8), 1)])) == 1
    again.close(clean=True)
    disk.before = lambda operation, path: None
    if absence in ("not named", "cannot be read"):
        whole = start(disk)
        log = whole.claim(("t", 1), TOPIC_ID)
        assert log is not None
        assert log.log_end_offset == 5


def test_the_newest_note_counts() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0, 1, 2])
    directories.close(clean=True)
    # Without "/three" a partition is made; its note is newer than the one in "/three".
    two = start(disk, ("/one", "/two"))
    assert make(two, [3]) == ["/one"]
    two.close(clean=True)
    without_one = start(disk, ("/two", "/three"))
    assert without_one.placements.place([(TOPIC_ID, 3), (TOPIC_ID, 0)]) == {}


def test_a_second_directory_records_what_was_there_before_it() -> None:
    disk = MemoryFileSystem()
    directories = start(disk, ("/one",))
    make(directories, [0])
    directories.close(clean=True)
    two = start(disk, ("/one", "/two"))
    note = two.placements.begin_note()
    assert note is not None
    note.run()
    two.close(clean=True)
    assert start(disk, ("/two",)).placements.place([(TOPIC_ID, 0)]) == {}


def test_with_the_last_directory_the_node_cannot_start() -> None:
    disk = MemoryFileSystem()
    start(disk, ("/one", "/two")).close(clean=True)
    disk.before = failing("/one")
    assert [each.path for each in start(disk, ("/one", "/two"), load=False).all] == ["/two"]
    disk.locks.clear()
    disk.before = lambda operation, path: (
        failing("/one")(operation, path) or failing("/two")(operation, path)
    )
    with pytest.raises(DirectoryUnusable, match="one.*two"):
        start(disk, ("/one", "/two"), load=False)


def test_a_directory_in_use_or_of_another_node_stops_the_start_and_unlocks_the_others() -> None:
    disk = MemoryFileSystem()
    other = LogDirectory.open(disk, "/two", directory_id="x", cluster_id="c", node_id=5)
    with pytest.raises(DataDirectoryError, match="in use"):
        start(disk, ("/one", "/two"))
    other.close(clean=True)
    mine = start(disk, ("/one",))
    mine.assign_identity(cluster_id="c", node_id=4)
    mine.close(clean=True)
    with pytest.raises(DataDirectoryError, match="different nodes"):
        start(disk, ("/one", "/two"))
    assert disk.locks == {}


def test_the_node_id_is_known_as_long_as_one_directory_is_left() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    directories.assign_identity(cluster_id="c", node_id=4)
    directories.close(clean=True)
    again = start(disk, ("/four", "/three"))
    assert (again.identity.cluster_id, again.identity.node_id) == ("c", 4)


def test_the_note_is_on_every_disk_before_the_log_is_there() -> None:
    """Whatever a crash leaves: if the log is there, the other directories know about it."""
    operations: list[tuple[str, str]] = []
    disk = MemoryFileSystem()
    directories = start(disk)
    disk.before = lambda operation, path: operations.append((operation, path))
    make(directories, [0])
    count = len(operations)
    for crash_at in range(count):
        disk = MemoryFileSystem()
        directories = start(disk)
        countdown = [crash_at]

        def before(operation: str, path: str, countdown: list[int] = countdown) -> None:
            countdown[0] -= 1
            if countdown[0] < 0:
                raise PowerLoss

        disk.before = before
        with pytest.raises(PowerLoss):
            make(directories, [0])
        after = disk.crash()
        whole = start(after)
        holds = whole.claim(("t", 0), TOPIC_ID) is not None
        whole.close(clean=False)
        if holds:
            assert start(after, ("/two", "/three")).placements.place([(TOPIC_ID, 0)]) == {}


class PowerLoss(BaseException):
    """Nothing catches this, as nothing runs after a power loss."""


def test_a_full_disk_refuses_a_new_partition_and_stays_online() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0])
    disk.space = 3
    with pytest.raises(KafkaStorageError) as caught:
        make(directories, [1])
    assert not isinstance(caught.value, StorageFailure)
    assert len(directories.online) == 3
    disk.space = None
    assert make(directories, [1]) == ["/two"]
    again = start(disk.crash(), ("/one", "/three"))
    assert again.placements.place([(TOPIC_ID, 1)]) == {}


# --- moves --------------------------------------------------------------------------------------


def move(directories: LogDirectories, disk: MemoryFileSystem, *, more: int) -> None:
    """All steps of a move of t-0 from /one to /two, with `more` appends after the switch."""
    source, target = directories.all[:2]
    log = source.logs["t", 0]
    future = target.make_log("t", 0, TOPIC_ID, CONFIG, unique_id=UUID(int=1))
    target.future_logs["t", 0] = future
    future.append_as_follower(read_all(log), now_ms=1000)
    future.local.assign_epochs(log.epochs.entries)
    future.flushing.flush()
    directories.placements.assign((TOPIC_ID, 0), target)
    note = directories.placements.begin_note()
    assert note is not None
    note.run()
    target.rename_log(future, directory_name("t", 0))
    target.logs["t", 0] = target.future_logs.pop(("t", 0))
    source.release_log("t", 0)
    for _ in range(more):
        append(future)
    target.sync_names()
    future.flushing.flush()
    path = source.retire(log.directory, "t", 0, suffix="-delete", unique_id=UUID(int=1))
    source.deletions.delete([path])


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("loses_power", [True, False])
def test_a_move_that_dies_at_any_disk_operation_leaves_one_whole_log(
    more: int, loses_power: bool
) -> None:
    def prepared() -> tuple[MemoryFileSystem, LogDirectories]:
        disk = MemoryFileSystem()
        directories = start(disk)
        assert make(directories, [0]) == ["/one"]
        log = directories.all[0].logs["t", 0]
        log.local.assign_epoch(0)
        append(log, 6)
        log.flushing.flush()
        return disk, directories

    operations: list[tuple[str, str]] = []
    disk, directories = prepared()
    disk.before = lambda operation, path: operations.append((operation, path))
    move(directories, disk, more=more)
    appends = [
        number
        for number, (operation, path) in enumerate(operations)
        if operation == "write" and path.startswith("/two/t-0/") and path.endswith(".log")
    ]
    assert len(operations) > 30
    for crash_at in range(len(operations)):
        disk, directories = prepared()
        countdown = [crash_at]

        def before(operation: str, path: str, countdown: list[int] = countdown) -> None:
            countdown[0] -= 1
            if countdown[0] < 0:
                raise PowerLoss

        disk.before = before
        with pytest.raises(PowerLoss):
            move(directories, disk, more=more)
        disk.before = lambda operation, path: None
        disk.locks.clear()
        again = start(disk.crash() if loses_power else disk)
        log = again.claim(("t", 0), TOPIC_ID)
        assert log is not None, operations[crash_at]
        acknowledged = 6 if loses_power else 6 + len([at for at in appends if at < crash_at])
        assert log.log_end_offset >= acknowledged, operations[crash_at]
        assert len(read_all(log)) == log.log_end_offset * SIZE
        assert sum(("t", 0) in each.logs for each in again.all) == 1
        append(log)


def test_a_copy_that_kept_more_than_the_log_after_a_power_loss_becomes_the_log() -> None:
    """The copy was flushed before the switch, the end of the log was not."""
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0])
    source, target = directories.all[:2]
    log = source.logs["t", 0]
    append(log, 3)
    log.flushing.flush()
    append(log, 3)
    future = target.make_log("t", 0, TOPIC_ID, CONFIG, unique_id=UUID(int=1))
    target.future_logs["t", 0] = future
    future.append_as_follower(read_all(log), now_ms=1000)
    future.flushing.flush()
    again = start(disk.crash())
    assert [sorted(each.logs) for each in again.all] == [[], [("t", 0)], []]
    assert not again.all[1].future_logs
    assert again.all[1].logs["t", 0].log_end_offset == 6


def test_a_move_that_was_interrupted_can_go_on() -> None:
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0])
    source, target = directories.all[:2]
    append(source.logs["t", 0], 6)
    future = target.make_log("t", 0, TOPIC_ID, CONFIG, unique_id=UUID(int=1))
    target.future_logs["t", 0] = future
    future.append_as_follower(read_all(source.logs["t", 0])[: 3 * SIZE], now_ms=1000)
    directories.close(clean=True)
    again = start(disk)
    assert again.all[1].future_logs["t", 0].log_end_offset == 3
    assert again.all[0].logs["t", 0].log_end_offset == 6


@pytest.mark.parametrize("fails", [False, True])
def test_a_list_of_segments_from_before_another_program_wrote_here_is_not_kept(fails: bool) -> None:
    """What that program has deleted would count as lost. A disk that cannot remove it is failing."""
    disk = MemoryFileSystem()
    directories = start(disk)
    make(directories, [0])
    log = directories.all[0].logs["t", 0]
    append(log, 4)
    log.local.roll(now_ms=1000)
    append(log, 4)
    directories.close(clean=True)
    listed = f"{log.directory}/{CLOSED_SEGMENTS}"
    assert disk.exists(listed)
    checkpoint = disk.names["/one/recovery-point-offset-checkpoint"]
    assert checkpoint is not None
    checkpoint.content = bytearray(b"0\n1\nt 0 8\n")  # as Kafka writes it

    removed: list[str] = []

    def note(operation: str, path: str) -> None:
        if (operation, path) == ("unlink", listed):
            removed.append(path)
            if fails:
                raise OSError(errno.EIO, "Input/output error")

    disk.before = note
    again = start(disk)
    assert removed == [listed]
    assert bool(again.all[0].health.failure) == fails

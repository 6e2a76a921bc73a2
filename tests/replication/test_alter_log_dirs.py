"""Moves between log directories, one input at a time: what comes between two steps of the disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bradbury.cluster.metadata.metadata_image import PartitionImage, TopicImage
from bradbury.protocol.errors import (
    CorruptMessage,
    InvalidTopicException,
    KafkaError,
    ReplicaNotAvailable,
)
from bradbury.replication.effects import RunWork, WakeAt, YieldToRequests
from bradbury.replication.logs.alter_log_dirs_manager import AlterLogDirsManager
from bradbury.replication.logs.log_manager import AssignedPartition, LogManager, OpenedLogs
from bradbury.replication.partition.conversion_queue import ConversionMemory
from bradbury.replication.partition.replica import Replica
from bradbury.replication.procedure import Procedure, ProcedureSteps
from bradbury.steps.replies import Refuse, ended
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import read_all
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

TOPIC_ID = UUID(int=3)
KEY = ("t", 0)


class MovingNode:
    """A follower of t-0 with two log directories; the disk works when `work` says so."""

    node_id = 1

    def __init__(self) -> None:
        self.effects: list[Any] = []
        self.changed: dict[Replica, None] = {}
        self.conversion_memory = ConversionMemory()
        self.disk = MemoryFileSystem()
        self.directories = LogDirectories.open(self.disk, ["/a", "/b"], directory_ids=["a", "b"])
        self.directories.load_logs(lambda topic: LogConfig(), now_ms=0)
        first = self.directories.all[0]
        self.old = first.create_log("t", 0, TOPIC_ID, LogConfig(), now_ms=0)
        self.old.local.assign_epoch(1)
        self.replica = Replica("t", 0, self.old, self)
        self.waits_ms = 0
        self.ids = (UUID(int=number) for number in range(1, 99))
        self.replicas = {KEY: self.replica}
        self.moves = AlterLogDirsManager(
            self.directories,
            self.replicas,
            self.effects,
            throttle=SimpleNamespace(
                wait_to_move_ms=lambda: self.waits_ms, on_moved=lambda size: None
            ),
            write_note=self._write_note,
            new_id=lambda: next(self.ids),
            on_storage_failure=self.on_storage_failure,
        )
        self.done: list[str] = []
        self.failures = 0

    def on_storage_failure(self) -> None:
        self.failures += 1

    def _write_note(self) -> ProcedureSteps:
        note = self.directories.placements.begin_note()
        if note is not None:
            [failure] = yield [note]
            if failure is not None:
                raise failure

    def append(self, epoch: int = 1) -> None:
        self.old.append_as_leader(make_batch(), leader_epoch=epoch, now_ms=0, opened=True)

    def run(self, steps: ProcedureSteps) -> None:
        Procedure(
            self.effects, steps, 0, lambda error: self.effects.append(ended("move", error))
        ).begin()

    def begin(self, path: str = "/b") -> None:
        self.run(self.moves.move("t", 0, path, now_ms=0, wall_ms=0))

    def work(self, until: str = "") -> bool:
        """All that the disk is to do; or up to before the work of this name."""
        while self.effects:
            effect = self.effects[0]
            if isinstance(effect, RunWork) and until and until in type(effect.work).__name__:
                return True
            self.work_one()
        return False

    def work_unheard(self) -> RunWork:
        """The first of what the disk is to do; nobody is told yet that it is done."""
        effect: RunWork = self.effects.pop(0)
        effect.work.run()
        return effect

    def work_one(self) -> None:
        """The first of what is asked for, and no more."""
        effect = self.effects.pop(0)
        if isinstance(effect, RunWork):
            failure = None
            try:
                effect.work.run()
            except KafkaError as error:
                failure = error
            self.done.append(type(effect.work).__name__)
            effect.step.on_work_done(effect.work, failure, 0)
        elif isinstance(effect, YieldToRequests):
            effect.step.on_work_done(effect.condition, None, 0)
        elif isinstance(effect, WakeAt):
            self.done.append(f"wait until {effect.at_ms}")
            self.waits_ms = 0
            effect.step.on_time(effect.at_ms)
        elif isinstance(effect, Refuse):
            raise effect.error

    def placed_at_a_start_without(self, path: str) -> dict[str, str]:
        """Where logs are made at a start, by what is assigned: (partition, directory)."""
        self.disk.locks.clear()

        def fail(operation: str, at: str) -> None:
            if at.startswith(path):
                raise OSError(5, "Input/output error")

        self.disk.before = fail
        again = LogDirectories.open(self.disk, ["/a", "/b"], directory_ids=["a", "b"])
        again.load_logs(lambda topic: LogConfig(), now_ms=0)
        assert again.claim(KEY, TOPIC_ID) is None
        state = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=1, partition_epoch=0)
        topic = TopicImage(TOPIC_ID, "t", (state,))
        logs = LogManager(
            again,
            config_of=lambda topic: LogConfig(),
            new_id=lambda: next(self.ids),
            on_storage_failure=self.on_storage_failure,
        )
        opened: list[OpenedLogs] = []

        def opening() -> ProcedureSteps:
            assigned = AssignedPartition(topic, 0, state, True)
            opened.append((yield from logs.open_logs([assigned], 0)))

        self.run(opening())
        self.work()
        self.disk.before = lambda operation, at: None
        [found] = opened
        assert list(found.offline) == ([] if found.logs else [KEY])
        return {each.key[0]: again.of(log).path for each, log in found.logs}

    def held(self) -> list[list[tuple[str, int]]]:
        return [list(each.logs) for each in self.directories.all]


def test_records_that_come_while_the_note_is_written_are_in_the_log_that_takes_over() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="NoteWork")
    node.append()
    expected = read_all(node.old)
    assert not node.work()
    assert node.held() == [[], [KEY]]
    assert node.replica.log is not node.old
    assert read_all(node.replica.log) == expected
    assert node.disk.list_directory("/a") == sorted(
        each for each in node.disk.list_directory("/a") if "t-0" not in each or "-delete" in each
    )


def test_an_epoch_that_begins_without_a_record_is_in_the_log_that_takes_over() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="NoteWork")
    node.old.local.assign_epoch(2)
    assert not node.work()
    assert node.replica.log is not node.old
    assert node.replica.log.epochs.entries == [(1, 0), (2, 1)]


def test_a_long_log_is_copied_piece_by_piece_before_the_log_stands_still() -> None:
    """The switch is one step, in which nothing is appended: little is left for it."""
    node = MovingNode()
    batch = make_batch(value=b"x" * 200_000)
    for _ in range(20):
        node.old.append_as_leader(bytearray(batch), leader_epoch=1, now_ms=0, opened=True)
    node.begin()
    assert node.work(until="NoteWork")
    assert node.done.count("CopyPiece") >= 4
    expected = read_all(node.old)
    assert not node.work()
    assert read_all(node.replica.log) == expected


def test_a_copy_is_of_the_time_at_which_it_is_made() -> None:
    """Its segments are closed by their age; the clock of waits began with the machine."""
    node = MovingNode()
    node.append()
    node.run(node.moves.move("t", 0, "/b", now_ms=70, wall_ms=1_700_000_000_000))
    assert node.work(until="CopyPiece")
    while not node.done.count("CopyPiece"):
        node.work_one()
    [copy] = node.directories.all[1].future_logs.values()
    assert copy.log_end_offset == 1
    assert copy.flushing.unflushed_since_ms == 1_700_000_000_000


def test_what_was_dropped_meanwhile_is_not_in_the_log_that_takes_over() -> None:
    """The log has the same end again, with other records."""
    node = MovingNode()
    node.append()
    node.append()
    node.begin()
    assert node.work(until="NoteWork")
    end = node.old.log_end_offset
    node.old.truncate_to(end // 2)
    node.old.local.assign_epoch(2)
    node.append(epoch=2)
    assert node.old.log_end_offset == end
    expected, epochs = read_all(node.old), node.old.epochs.entries
    node.work()
    assert node.held() == [[], [KEY]]
    assert read_all(node.replica.log) == expected
    assert node.replica.log.epochs.entries == epochs


@pytest.mark.parametrize("moment", ["CopyPiece", "StorageCall", "NoteWork"])
def test_a_move_that_is_given_up_leaves_the_log_where_it_was(moment: str) -> None:
    node = MovingNode()
    node.append()
    node.begin()
    node.work(until="CopyPiece")
    node.work(until=moment)
    node.run(node.moves.end(KEY))
    node.work()
    assert node.held() == [[KEY], []]
    assert node.replica.log is node.old
    assert not any("t-0" in each for each in node.disk.list_directory("/b"))


def test_a_throttled_move_waits_and_ends_at_once_when_it_is_given_up() -> None:
    node = MovingNode()
    node.append()
    node.waits_ms = 5_000
    node.begin()
    node.work()
    assert "wait until 1000" in node.done
    assert node.held() == [[], [KEY]]

    node = MovingNode()
    node.append()
    node.begin()
    node.work(until="CopyPiece")
    node.waits_ms = 5_000
    effect = node.effects.pop(0)
    effect.work.run()
    effect.step.on_work_done(effect.work, None, 0)
    [wake] = [each for each in node.effects if isinstance(each, WakeAt)]
    node.effects.remove(wake)
    node.run(node.moves.end(KEY))
    node.work()
    wake.step.on_time(1_000)  # the clock's answer comes all the same
    node.work()
    assert node.held() == [[KEY], []]


def test_a_disk_that_fails_under_the_copy_ends_the_move_and_nothing_else() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    node.work(until="CopyPiece")

    def fail(operation: str, path: str) -> None:
        if path.startswith("/b"):
            raise OSError(5, "Input/output error")

    node.disk.before = fail
    node.work()
    assert node.failures
    assert node.held() == [[KEY], []]
    assert node.directories.all[0].health.is_online
    assert not node.directories.all[1].health.is_online
    node.append()
    assert node.replica.log.log_end_offset == node.old.log_end_offset


def test_a_name_that_no_copy_could_have_is_refused() -> None:
    node = MovingNode()
    with pytest.raises(InvalidTopicException, match="too long for a move"):
        next(node.moves.move("t" * 249, 0, "/b", now_ms=0, wall_ms=0))
    with pytest.raises(ReplicaNotAvailable):
        next(node.moves.move("t" * 200, 0, "/b", now_ms=0, wall_ms=0))


def test_a_move_that_has_failed_leaves_no_copy_and_can_be_begun_again() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    node.work(until="CopyPiece")
    effect = node.effects.pop(0)
    effect.step.on_work_done(effect.work, CorruptMessage("a batch is damaged"), 0)
    node.work()
    assert node.held() == [[KEY], []]
    assert not any("t-0" in each for each in node.disk.list_directory("/b"))
    node.begin()
    node.work()
    assert node.held() == [[], [KEY]]


def test_a_move_goes_on_after_a_stop() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="CopyPiece")
    node.run(node.moves.close())
    node.work()
    assert node.held() == [[KEY], []]
    assert list(node.directories.all[1].future_logs) == [KEY]
    node.moves._moves.clear()  # as in the next life
    node.moves.resume(KEY, node.replica, now_ms=0, wall_ms=0)
    expected = read_all(node.old)
    node.work()
    assert node.held() == [[], [KEY]]
    assert read_all(node.replica.log) == expected


def test_the_copy_of_a_deleted_topic_of_the_same_name_does_not_become_the_log() -> None:
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="CopyPiece")
    node.run(node.moves.close())
    node.work()
    node.moves._moves.clear()  # as in the next life, in which the topic is another one
    node.old.topic_id = UUID(int=9)
    node.moves.resume(KEY, node.replica, now_ms=0, wall_ms=0)
    node.work()
    assert node.held() == [[KEY], []]
    assert node.replica.log is node.old
    assert node.moves._moves == {}


def test_a_move_goes_on_from_nowhere_if_a_former_life_has_truncated_the_log() -> None:
    node = MovingNode()
    node.append()
    node.append()
    node.begin()
    node.work(until="NoteWork")  # everything is copied
    node.run(node.moves.close())
    node.work()
    node.moves._moves.clear()  # as in the next life, but for what the former one has done since
    node.old.truncate_to(node.old.log_end_offset // 2)
    node.old.local.assign_epoch(2)
    for _ in range(3):
        node.append(epoch=2)
    node.old.local.truncations = 0
    node.moves.resume(KEY, node.replica, now_ms=0, wall_ms=0)
    expected, epochs = read_all(node.old), node.old.epochs.entries
    node.work()
    assert node.held() == [[], [KEY]]
    assert read_all(node.replica.log) == expected
    assert node.replica.log.epochs.entries == epochs


def test_a_start_keeps_what_was_written_since_a_truncation_though_the_copy_is_longer() -> None:
    node = MovingNode()
    for _ in range(3):
        node.append()
    node.begin()
    node.work(until="NoteWork")
    node.old.truncate_to(node.old.log_end_offset // 3)
    node.old.local.assign_epoch(2)
    node.append(epoch=2)
    expected = read_all(node.old)
    [future] = node.directories.all[1].future_logs.values()
    assert future.log_end_offset > node.old.log_end_offset
    node.disk.locks.clear()  # the process dies
    again = LogDirectories.open(node.disk, ["/a", "/b"], directory_ids=["a", "b"])
    again.load_logs(lambda topic: LogConfig(), now_ms=0)
    log = again.claim(KEY, TOPIC_ID)
    assert log is not None
    assert read_all(log) == expected


def test_the_note_is_true_when_the_directory_of_the_log_fails_during_the_move() -> None:
    """By a note of the other one the next start would make an empty log there."""
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="NoteWork")
    noted = node.work_unheard()
    node.old.health.fail("reading", OSError(5, "Input/output error"))
    del node.replicas[KEY]  # as the replica manager does
    noted.step.on_work_done(noted.work, None, 0)
    node.work()
    assert node.placed_at_a_start_without("/a") == {}


def test_a_copy_is_not_taken_for_the_log_when_the_directory_of_that_is_missing() -> None:
    """The process dies with the note written, before the copy has taken over."""
    node = MovingNode()
    node.append()
    node.begin()
    assert node.work(until="NoteWork")
    node.work_unheard()
    assert node.placed_at_a_start_without("/a") == {}
    node.disk.locks.clear()
    whole = LogDirectories.open(node.disk, ["/a", "/b"], directory_ids=["a", "b"])
    whole.load_logs(lambda topic: LogConfig(), now_ms=0)
    assert whole.claim(KEY, TOPIC_ID) is not None


@pytest.mark.parametrize("moment", ["CopyPiece", "NoteWork", ""])
def test_what_was_deleted_during_a_move_stays_so_if_the_process_dies_behind_it(moment: str) -> None:
    """DeleteRecords was answered when the old directory had it on the disk."""
    node = MovingNode()
    for _ in range(4):
        node.append()
    if moment:
        node.begin()
        assert node.work(until=moment)
    node.old.high_watermark = node.old.log_end_offset
    node.old.advance_log_start_offset(3)
    node.directories.all[0].checkpoints.bring_up_to_date()
    if not moment:
        node.begin()
    while node.replica.log is node.old:
        node.work_one()
    node.disk.locks.clear()
    again = LogDirectories.open(node.disk, ["/a", "/b"], directory_ids=["a", "b"])
    again.load_logs(lambda topic: LogConfig(), now_ms=0)
    log = again.claim(KEY, TOPIC_ID)
    assert log is not None
    assert log.log_start_offset == 3


def test_a_move_that_is_given_up_says_nothing_of_later_logs_of_its_name() -> None:
    node = MovingNode()
    for _ in range(4):
        node.append()
    node.begin()
    assert node.work(until="CopyPiece")
    node.old.high_watermark = node.old.log_end_offset
    node.old.advance_log_start_offset(3)
    assert node.work(until="NoteWork")
    checkpoints = node.directories.all[1].checkpoints
    node.run(node.moves.end(KEY))
    node.work()
    forgetting = checkpoints.begin_forgetting([KEY])
    if forgetting is not None:
        forgetting.run()
    assert checkpoints.noted_start(KEY) == 0

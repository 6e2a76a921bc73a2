"""What becomes of a round of maintenance that meets what nobody expected?"""

from errno import ENOSPC
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.protocol.errors import KafkaStorageError
from bradbury.replication.logs.log_flusher import LogFlusher
from bradbury.replication.logs.log_maintenance import LogMaintenance, SpaceQuery
from bradbury.replication.procedure import Procedure, ProcedureSteps
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.file_system import OsFileSystem, read_file
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem


def test_a_question_for_free_space_that_fails_oddly_refuses_no_producer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes are 0 then, which would look like a full disk."""
    directories = LogDirectories.open(OsFileSystem(), [str(tmp_path)], directory_ids=["d-0"])
    maintenance = LogMaintenance(
        directories,
        {},
        BrokerConfig(bradbury_log_dir_min_free_bytes=1),
        [],
        changed={},
        on_storage_failure=lambda: None,
    )
    maintenance.begin()
    health = directories.all[0].health
    room = health.headroom
    assert room > 0
    asked = 0
    rounds = maintenance.due_rounds(0, 0)
    works = next(rounds, None)
    while works is not None:
        answers: list[Exception | None] = []
        for work in works:
            if isinstance(work, SpaceQuery):
                asked += 1
                answers.append(RuntimeError("not a failure of the disk"))
            else:
                work.run()
                answers.append(None)
        try:
            works = rounds.send(answers)
        except StopIteration:
            works = None
    assert asked == 1
    assert health.headroom == room
    assert "log maintenance failed" in caplog.text
    directories.close(clean=True)


def test_what_a_full_disk_refused_is_neither_a_gap_nor_a_log_start(tmp_path: Path) -> None:
    """Of the two directories one is full: it says so for its own logs, and for no others."""
    disk = MemoryFileSystem()
    directories = LogDirectories.open(disk, ["/full", "/other"], directory_ids=["d-0", "d-1"])
    directories.load_logs(lambda topic: LogConfig(), now_ms=0, on_damaged=lambda: None)
    full, other = (
        each.create_log("t", number, uuid4(), LogConfig())
        for number, each in enumerate(directories.all)
    )
    for number, (directory, log) in enumerate(zip(directories.all, (full, other), strict=True)):
        directory.logs["t", number] = log
    flusher = LogFlusher(directories, {}, on_storage_failure=lambda: None)

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("/full/"):
            raise OSError(ENOSPC, "No space left on device", path)

    disk.before = refuse
    assert isinstance(outcome(flusher.note_gaps(full)), KafkaStorageError)
    assert full.compaction.cleaner_offset is None
    assert isinstance(outcome(flusher.checkpoint(full)), KafkaStorageError)
    assert outcome(flusher.checkpoint(other)) is None
    assert outcome(flusher.checkpoint()) is None, "nobody asks for one directory"
    assert full.health.is_online
    disk.before = lambda operation, path: None
    assert outcome(flusher.note_gaps(full)) is None
    assert full.compaction.cleaner_offset == 0
    assert b"t 0 0" in read_file(disk, "/full/cleaner-offset-checkpoint")


def test_a_gap_that_was_refused_to_one_is_durable_for_the_others() -> None:
    """Each notes all compacted logs of the directory, and takes back what it has asked for."""
    disk = MemoryFileSystem()
    directories = LogDirectories.open(disk, ["/data"], directory_ids=["d-0"])
    directories.load_logs(lambda topic: LogConfig(), now_ms=0)
    [directory] = directories.all
    config = LogConfig(cleanup_policy="compact")
    logs = [directory.create_log("t", number, uuid4(), config, now_ms=0) for number in range(3)]
    flusher = LogFlusher(directories, {}, on_storage_failure=lambda: None)
    refusals = [OSError(ENOSPC, "No space left on device")]

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and refusals:
            raise refusals.pop()

    disk.before = refuse
    ended = outcomes(*map(flusher.note_gaps, logs))
    assert [type(each) for each in ended] == [KafkaStorageError, type(None), type(None)]
    assert [each.compaction.cleaner_offset for each in logs] == [0, 0, 0]
    content = read_file(disk, "/data/cleaner-offset-checkpoint").decode()
    assert [f"t {number} 0" in content for number in range(3)] == [True, True, True]


def outcome(steps: ProcedureSteps) -> Exception | None:
    """Of a sequence, whose work is done at once."""
    return outcomes(steps)[0]


def outcomes(*sequences: ProcedureSteps) -> list[Exception | None]:
    """Of sequences that begin one after the other, before any work is done."""
    ended: list[Exception | None] = []
    effects: list[Any] = []
    for steps in sequences:
        Procedure(effects, steps, 0, ended.append).begin()
    while effects:
        effect = effects.pop(0)
        failure = None
        try:
            effect.work.run()
        except KafkaStorageError as error:
            failure = error
        effect.step.on_work_done(effect.work, failure, 0)
    return ended

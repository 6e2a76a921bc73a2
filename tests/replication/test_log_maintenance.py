"""What becomes of a round of maintenance that meets what nobody expected?"""

from pathlib import Path

import pytest

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.replication.logs.log_maintenance import LogMaintenance, SpaceQuery
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.file_system import OsFileSystem


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
    assert "maintenance of the logs failed" in caplog.text
    directories.close(clean=True)

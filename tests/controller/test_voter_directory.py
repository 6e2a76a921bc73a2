"""Does a voter start from a directory in which something stands that is no file?"""

import logging
from pathlib import Path

import pytest

from bradbury.controller.voter_files.voter_directory import VoterDirectory
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000


def test_a_directory_among_the_files_of_the_log_is_named_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    voter = VoterDirectory(str(tmp_path), OsFileSystem())
    voter.open(directory_id="A" * 22, now_ms=NOW)
    log = voter.create_log(("A" * 22,), now_ms=NOW)
    batch = encode_records([(NOW, None, b"an entry", ())])
    stamp(memoryview(batch), base_offset=0, leader_epoch=1)
    log.append(memoryview(batch), now_ms=NOW)
    log.flush()
    entries = log.read(0)
    assert entries
    log.close()
    voter.close()

    index = tmp_path / "metadata" / "__cluster_metadata-0" / f"{0:020d}.index"
    index.unlink()
    index.mkdir()
    voter = VoterDirectory(str(tmp_path), OsFileSystem())
    with caplog.at_level(logging.WARNING):
        found = voter.open(directory_id="", now_ms=NOW + 1)
    assert found.log is not None
    assert found.log.read(0) == entries
    assert f"{index.name} are not files; rewriting the log" in caplog.text
    found.log.close()
    voter.close()

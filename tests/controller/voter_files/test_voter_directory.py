"""Does a voter start from a directory with damaged files, or with something that is not a file?"""

import logging
import stat
from pathlib import Path

import pytest

from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.voter_files.voter_directory import VoterDirectory
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.file_system import OsFileSystem

NOW = 1_700_000_000_000


def write_an_entry(data_dir: Path) -> list[bytes]:
    """A voter writes an entry and stops. Returns what its log has."""
    voter = VoterDirectory(str(data_dir), OsFileSystem())
    voter.open(directory_id="A" * 22, now_ms=NOW)
    voter.store(Candidate(epoch=1, owner=""), ("A" * 22,))
    log = voter.create_log(("A" * 22,), now_ms=NOW)
    batch = encode_records([(NOW, None, b"an entry", ())])
    stamp(memoryview(batch), base_offset=0, leader_epoch=1)
    log.append(memoryview(batch), now_ms=NOW)
    log.flush()
    entries = log.read(0)
    assert entries
    log.close()
    voter.close()
    return entries


def test_a_directory_among_the_files_of_the_log_is_named_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = write_an_entry(tmp_path)
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


def test_a_directory_in_the_place_of_a_file_that_can_be_made_again_is_renamed(
    tmp_path: Path,
) -> None:
    voter = VoterDirectory(str(tmp_path), OsFileSystem())
    voter.open(directory_id="A" * 22, now_ms=NOW)
    voter.store(Candidate(epoch=1, owner=""), ("A" * 22,))
    voter.close()
    mark = tmp_path / "metadata" / "acknowledged-offset"
    mark.unlink(missing_ok=True)
    mark.mkdir()
    (mark / "a file of somebody").touch()
    voter = VoterDirectory(str(tmp_path), OsFileSystem())
    found = voter.open(directory_id="", now_ms=NOW + 1)
    assert (found.vote.epoch, found.formatted_with) == (1, ("A" * 22,))
    assert (mark.with_name(f"{mark.name}.{NOW + 1}") / "a file of somebody").exists()
    voter.close()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("meta.properties", "meta.properties is damaged"),
        ("acknowledged-offset", "acknowledged-offset is damaged and not used"),
        ("recovery-point-offset-checkpoint", "was damaged; rewriting it"),
        ("meta.properties.copy", ""),
    ],
)
def test_a_damaged_file_that_can_be_made_again_costs_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, line: str
) -> None:
    entries = write_an_entry(tmp_path)
    damaged = tmp_path / "metadata" / name
    assert damaged.exists()
    damaged.write_bytes(b"garbage" * 200)
    voter = VoterDirectory(str(tmp_path), OsFileSystem())
    with caplog.at_level(logging.WARNING):
        found = voter.open(directory_id="", now_ms=NOW + 1)
    assert found.log is not None
    assert found.log.read(0) == entries
    assert line in caplog.text
    assert bool(line) == bool(caplog.records)
    found.log.close()
    voter.close()


def test_the_metadata_is_for_its_user_alone_as_scram_keys_are_in_it(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir(mode=0o755)  # as an earlier version made it
    write_an_entry(tmp_path)
    assert stat.S_IMODE((tmp_path / "metadata").stat().st_mode) == 0o700

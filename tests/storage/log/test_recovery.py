"""What is left of a log after a crash?"""

import shutil
from pathlib import Path

import pytest

from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log, read_all

SMALL = LogConfig(segment_bytes=256, index_interval_bytes=64)
INDEXED = LogConfig(index_interval_bytes=64)
LOG_NAME = "00000000000000000000.log"


def fill(directory: Path, count: int, config: LogConfig, *, records: int = 2) -> list[bytes]:
    """A log of `count` batches that was never closed; returns its batches."""
    log = open_log(directory, config=config)
    batches = []
    for number in range(count):
        batch = make_batch(records, value=b"%04d" % number)
        log.append_as_leader(batch, leader_epoch=number // 4, now_ms=1000)
        batches.append(bytes(batch))
    return batches


def assert_usable(log: PartitionLog, batches: list[bytes]) -> None:
    """The log holds exactly `batches`, finds each of their offsets, and can be appended to."""
    assert read_all(log) == b"".join(batches)
    assert log.log_end_offset == 2 * len(batches)
    for number in range(len(batches)):
        for offset in (2 * number, 2 * number + 1):
            assert read_all(log, offset) == b"".join(batches[number:])
    result = log.append_as_leader(make_batch(), leader_epoch=99, now_ms=1000)
    assert result.base_offset == 2 * len(batches)


@pytest.mark.thorough
def test_a_tail_torn_at_any_byte_of_the_last_three_batches_is_cut_to_whole_batches(
    tmp_path: Path,
) -> None:
    batches = fill(tmp_path / "whole", 6, INDEXED)
    content = b"".join(batches)
    ends = [sum(len(batch) for batch in batches[:count]) for count in range(7)]
    for size in range(ends[3], ends[6]):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / LOG_NAME).write_bytes(content[:size])
        whole = max(count for count in range(7) if ends[count] <= size)
        log = open_log(directory, config=INDEXED)
        assert log.recovery.bytes_truncated == size - ends[whole]
        assert (directory / LOG_NAME).stat().st_size == ends[whole]
        assert_usable(log, batches[:whole])
        shutil.rmtree(directory)


def test_any_flipped_bit_of_a_batch_cuts_the_log_there(tmp_path: Path) -> None:
    batches = fill(tmp_path / "whole", 3, INDEXED)
    first, second = len(batches[0]), len(batches[1])
    content = b"".join(batches)
    # Bytes 12-15 are the leader epoch, which no CRC covers: some values look sound.
    for position in [*range(12), *range(16, second)]:
        for bit in (0, 3, 7):
            damaged = bytearray(content)
            damaged[first + position] ^= 1 << bit
            directory = tmp_path / "damaged"
            directory.mkdir()
            (directory / LOG_NAME).write_bytes(damaged)
            log = open_log(directory, config=INDEXED)
            assert read_all(log) == batches[0]
            shutil.rmtree(directory)


@pytest.mark.parametrize(
    "nonsense", [bytes(4096), b"\xff" * 4096, b"nonsense" * 512], ids=["zeros", "ones", "text"]
)
def test_a_block_of_nonsense_in_the_middle_ends_the_log(tmp_path: Path, nonsense: bytes) -> None:
    batches = fill(tmp_path / "log", 300, INDEXED)
    path = tmp_path / "log" / LOG_NAME
    content = bytearray(path.read_bytes())
    content[8192 : 8192 + 4096] = nonsense
    path.write_bytes(content)
    whole = 8192 // len(batches[0])
    log = open_log(tmp_path / "log", config=INDEXED)
    assert len(log.recovery.reasons) == 1
    assert_usable(log, batches[:whole])


def test_an_old_batch_in_a_recycled_block_is_not_mistaken_for_a_new_one(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 4, INDEXED)
    path = tmp_path / "log" / LOG_NAME
    path.write_bytes(path.read_bytes() + batches[1])
    log = open_log(tmp_path / "log", config=INDEXED)
    assert "base offset 2 where 8 was expected" in log.recovery.reasons[0]
    assert_usable(log, batches)


def test_a_batch_of_an_earlier_epoch_ends_the_log(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 5, INDEXED)  # the last is of epoch 1
    stale = bytearray(make_batch(2))
    stale[0:8] = (10).to_bytes(8, "big")
    stale[12:16] = (0).to_bytes(4, "big")
    path = tmp_path / "log" / LOG_NAME
    path.write_bytes(path.read_bytes() + stale)
    assert_usable(open_log(tmp_path / "log", config=INDEXED), batches)


def test_what_follows_a_damaged_segment_is_deleted(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 12, SMALL)
    names = sorted(path.name for path in (tmp_path / "log").glob("*.log"))
    per_segment = 12 // len(names)
    damaged = tmp_path / "log" / names[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    log = open_log(tmp_path / "log", config=SMALL)
    assert log.recovery.segments_deleted == len(names) - 2
    assert sorted(path.name for path in (tmp_path / "log").glob("*.log")) == names[:2]
    assert_usable(log, batches[: 2 * per_segment - 1])


def test_a_segment_that_lost_whole_batches_at_its_end_leaves_no_hole(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 12, SMALL)
    first = tmp_path / "log" / LOG_NAME
    per_segment = first.stat().st_size // len(batches[0])
    first.write_bytes(first.read_bytes()[: -len(batches[0])])
    log = open_log(tmp_path / "log", config=SMALL)
    assert_usable(log, batches[: per_segment - 1])


def test_only_the_part_from_the_recovery_point_on_is_scanned(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 12, SMALL)
    log = open_log(tmp_path / "log", config=SMALL)
    log.flushing.flush()
    log.append_as_leader(make_batch(2), leader_epoch=5, now_ms=1000)
    total = len(log.segments)
    again = open_log(tmp_path / "log", config=SMALL, recovery_point=log.flushing.recovery_point)
    assert log.flushing.recovery_point == 24
    assert again.recovery.segments_scanned == total - len(
        [s for s in log.segments[1:] if s.base_offset <= 24]
    )
    assert read_all(again).startswith(b"".join(batches))


def test_a_clean_stop_needs_no_scan(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 12, SMALL)
    log = open_log(tmp_path / "log", config=SMALL)
    log.close(clean=True)
    again = open_log(
        tmp_path / "log", config=SMALL, clean=True, recovery_point=log.flushing.recovery_point
    )
    assert again.recovery.segments_scanned == 0
    assert again.recovery.bytes_scanned == 0
    assert again.recovery.batches_replayed == 0
    assert again.recovery.reasons == ()
    assert_usable(again, batches)


def test_a_log_that_was_cut_after_a_clean_stop_is_scanned_all_the_same(tmp_path: Path) -> None:
    batches = fill(tmp_path / "log", 6, INDEXED)
    open_log(tmp_path / "log", config=INDEXED).close(clean=True)
    path = tmp_path / "log" / LOG_NAME
    path.write_bytes(path.read_bytes()[:-5])
    assert_usable(open_log(tmp_path / "log", config=INDEXED, clean=True), batches[:5])


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b"odd"),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
    ],
    ids=["missing", "empty", "ill-sized", "zeros", "ones", "reversed"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_or_corrupt_index_changes_no_answer(
    tmp_path: Path, suffix: str, damage: object, clean: bool
) -> None:
    config = LogConfig(segment_bytes=2048, index_interval_bytes=64)
    log = open_log(tmp_path / "log", config=config)
    batches = []
    for number in range(60):
        batch = make_batch(2, timestamps=[1000 + 10 * number, 1005 + 10 * number])
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
        batches.append(bytes(batch))
    log.close(clean=True)
    paths = sorted((tmp_path / "log").glob("*" + suffix))
    assert len(paths) > 2
    for path in paths:
        damage(path)  # type: ignore[operator]
    again = open_log(
        tmp_path / "log", config=config, clean=clean, recovery_point=log.flushing.recovery_point
    )
    for offset in range(0, 120, 7):
        found = begin_search(again, up_to=120).first_at_or_after(1000 + 5 * offset)
        assert found is not None
        assert found.offset == offset
    latest = begin_search(again, up_to=120).first_with_max_timestamp()
    assert latest is not None
    assert latest.offset == 119
    for size in (1, 150, 400):
        assert read_all(again, max_bytes=size) == b"".join(batches)
    assert_usable(again, batches)


@pytest.mark.parametrize("clean", [True, False])
def test_zero_length_files_are_an_empty_log(tmp_path: Path, clean: bool) -> None:
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        (tmp_path / f"{7:020d}{suffix}").write_bytes(b"")
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"")
    log = open_log(tmp_path, clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1).base_offset == 7


def test_a_log_that_ends_before_its_start_is_emptied_and_starts_there(tmp_path: Path) -> None:
    fill(tmp_path, 3, INDEXED)
    log = open_log(tmp_path, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.recovery.segments_deleted == 1
    assert open_log(tmp_path, log_start_offset=50).log_end_offset == 50


def test_leftovers_of_interrupted_work_are_removed_or_finished(tmp_path: Path) -> None:
    batches = fill(tmp_path, 4, INDEXED)
    for name in ("5.log.deleted", "5.index.cleaned", "leader-epoch-checkpoint.tmp", "9.timeindex"):
        (tmp_path / name.replace("5.", f"{5:020d}.").replace("9.", f"{9:020d}.")).touch()
    # Compaction had replaced the segment, but died before it could give it its name.
    (tmp_path / f"{0:020d}.log.swap").write_bytes(b"".join(batches[1:]))
    log = open_log(tmp_path, config=LogConfig(cleanup_policy="compact"))
    assert read_all(log) == b"".join(batches[1:])
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]
    assert f"{9:020d}.timeindex" not in names


def test_epochs_are_found_again_in_the_batches(tmp_path: Path) -> None:
    fill(tmp_path, 12, SMALL)
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n3\n0 0\n1 8\n2 16\n"
    for damage in (b"", b"0\n3\n0 0\n", b"0\n2\n1 0\n0 9\n", b"\xff\xfe", b"0\nx\n"):
        path.write_bytes(damage)
        log = open_log(tmp_path, config=SMALL)
        assert log.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    path.unlink()
    assert open_log(tmp_path, config=SMALL).epochs.entries == [(0, 0), (1, 8), (2, 16)]


def test_epochs_that_began_before_the_scan_keep_their_beginning(tmp_path: Path) -> None:
    fill(tmp_path, 12, SMALL)
    before = [(0, 0), (1, 8), (2, 16)]
    for recovery_point in range(25):
        log = open_log(tmp_path, config=SMALL, recovery_point=recovery_point)
        assert log.epochs.entries == before, recovery_point
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 8\n2 16\n"


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_epoch_checkpoint_is_rebuilt_from_all_segments(
    tmp_path: Path, clean: bool
) -> None:
    fill(tmp_path, 12, SMALL)
    open_log(tmp_path, config=SMALL).close(clean=True)
    (tmp_path / "leader-epoch-checkpoint").unlink()
    log = open_log(tmp_path, config=SMALL, clean=clean, recovery_point=24)
    assert log.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    assert len(log.recovery.reasons) == 1


def test_an_epoch_that_a_power_loss_brought_back_gives_way_to_the_records(tmp_path: Path) -> None:
    """This replica led in epoch 2 without a record, then followed: what came was of epoch 1."""
    log = open_log(tmp_path)
    for _ in range(4):
        log.append_as_leader(make_batch(2), leader_epoch=1, now_ms=1000)
    log.append_as_leader(make_batch(2), leader_epoch=5, now_ms=1000)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 4\n")
    assert open_log(tmp_path).epochs.entries == [(1, 0), (5, 8)]


def test_a_log_whose_records_are_all_deleted_keeps_its_last_segment(tmp_path: Path) -> None:
    fill(tmp_path, 2, SMALL)
    (tmp_path / "00000000000000000000.index").unlink(missing_ok=True)
    log = open_log(tmp_path, config=SMALL, log_start_offset=4)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert log.segments[-1].size > 0
    assert [segment.base_offset for segment in log.segments] == [0]


def test_deleted_records_that_are_back_have_their_epochs_again(tmp_path: Path) -> None:
    """The epochs were stored after the log start had moved, which was not on the disk yet."""
    log = open_log(tmp_path)
    for epoch in (1, 2, 3):
        log.append_as_leader(make_batch(), leader_epoch=epoch, now_ms=0, opened=True)
    expected = log.epochs.entries
    end = log.log_end_offset
    log.high_watermark = end
    log.advance_log_start_offset(expected[1][1] + 1)
    log.local.assign_epoch(4)
    log.flushing.flush()
    log.close(clean=False)

    again = open_log(tmp_path)
    assert again.log_start_offset == 0
    assert again.epochs.entries == expected
    again.close(clean=False)
    kept = open_log(tmp_path, log_start_offset=expected[2][1])
    assert kept.epochs.entries == expected[2:]


def test_a_log_that_begins_anew_further_on_has_no_former_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(make_batch(), leader_epoch=1, now_ms=0, opened=True)
    log.truncate_fully_and_start_at(100)
    assert log.epochs.entries == []
    assert log.epochs.latest_epoch == -1
    log.append_as_leader(make_batch(), leader_epoch=2, now_ms=0, opened=True)
    log.close(clean=False)
    assert open_log(tmp_path).epochs.entries == [(2, 100)]


def test_a_deleted_file_beside_its_log_takes_no_index_of_it(tmp_path: Path) -> None:
    """Compaction has put a new file in the place of the deleted one."""
    config = LogConfig(segment_bytes=2048, index_interval_bytes=64)
    fill(tmp_path, 60, config)
    index = tmp_path / f"{0:020d}.index"
    (tmp_path / f"{0:020d}.log.deleted").touch()
    (tmp_path / "kept").hardlink_to(index)
    log = open_log(tmp_path, config=config, clean=True)
    assert index.samefile(tmp_path / "kept")
    assert not (tmp_path / f"{0:020d}.log.deleted").exists()
    log.close(clean=True)


def test_missing_indexes_of_closed_segments_are_made_again_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=2048, index_interval_bytes=64)
    fill(tmp_path, 100, config)
    found = [path for kind in ("index", "timeindex") for path in tmp_path.glob(f"*.{kind}")]
    active = max(path.stem for path in found)
    closed = [path for path in found if path.stem != active]
    before = {path: path.read_bytes() for path in closed}
    assert len(before) >= 4
    for path in closed:
        path.unlink()
    open_log(tmp_path, config=config, clean=True).close(clean=True)
    assert {path: path.read_bytes() for path in closed} == before

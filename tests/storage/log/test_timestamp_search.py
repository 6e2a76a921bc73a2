"""Is a look-up by time, which runs in a thread, undisturbed by what the log does meanwhile?"""

import threading
from pathlib import Path

import pytest

from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.records.record_batch import build_batch
from bradbury.storage.disk.file_system import OsFile
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log.timestamp_search import begin_search
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=0)


def filled(folder: Path, count: int = 100) -> PartitionLog:
    log = open_log(folder, config=CONFIG)
    for number in range(count):
        append(log, number)
    return log


def append(log: PartitionLog, number: int) -> None:
    batch = make_batch(timestamps=[1000 + 10 * number], value=b"x" * 100)
    log.append_as_leader(batch, leader_epoch=0, now_ms=1000)


def test_it_answers_for_the_moment_in_which_it_was_begun(tmp_path: Path) -> None:
    log = filled(tmp_path)
    search = begin_search(log, up_to=100)
    for number in range(100, 150):
        append(log, number)
    assert search.first_at_or_after(1500) == (1500, 50, 0)
    assert search.first_at_or_after(2000) is None
    assert search.first_with_max_timestamp() == (1990, 99, 0)
    assert begin_search(log, up_to=150).first_at_or_after(2000) == (2000, 100, 0)


def test_indexes_that_are_gone_or_lie_make_it_slower_not_wrong(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close(clean=True)
    log = open_log(tmp_path, config=CONFIG, clean=True)
    expected = [begin_search(log, up_to=100).first_at_or_after(1000 + 10 * n) for n in range(100)]
    search = begin_search(log, up_to=100)
    for path in tmp_path.glob("*.timeindex"):
        path.write_bytes(bytes(path.stat().st_size))
    for path in tmp_path.glob("*.index"):
        path.unlink()
    assert [search.first_at_or_after(1000 + 10 * n) for n in range(100)] == expected
    assert search.first_with_max_timestamp() == (1990, 99, 0)
    assert not list(tmp_path.glob("*.index"))  # a look-up repairs nothing: the log does


def test_where_the_index_is_right_the_log_is_hardly_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=0)
    log = open_log(tmp_path, config=config)
    for number in range(400):
        append(log, number)
    log.close(clean=True)
    log = open_log(tmp_path, config=config, clean=True)
    frozen = log.segments[0].frozen()
    assert frozen.size > 50_000

    read: list[int] = []
    read_at = OsFile.read_at

    def counted(self: OsFile, size: int, position: int) -> bytes:
        read.append(size)
        return read_at(self, size, position)

    monkeypatch.setattr(OsFile, "read_at", counted)
    last = log.segments[1].base_offset - 1
    assert frozen.largest() == (1000 + 10 * last, last)
    assert 0 < sum(read) < 10_000


def test_segments_that_are_deleted_meanwhile_are_still_read(tmp_path: Path) -> None:
    log = filled(tmp_path)
    search = begin_search(log, up_to=100)
    assert search.first_at_or_after(1000) == (1000, 0, 0)
    log.high_watermark = 100
    log.advance_log_start_offset(90)
    apply_retention(log, 10_000)
    assert search.first_at_or_after(1100) == (1100, 10, 0)


def test_many_look_ups_beside_appends_find_what_was_there(tmp_path: Path) -> None:
    """One thread appends, as the event loop does; others look up, and nothing is out of place."""
    log = filled(tmp_path, 50)
    wrong: list[object] = []
    searches = [begin_search(log, up_to=50) for _ in range(4)]

    def look_up(number: int) -> None:
        for round_ in range(100):
            offset = (number * 37 + round_) % 50
            found = searches[number].first_at_or_after(1000 + 10 * offset)
            if found != (1000 + 10 * offset, offset, 0):
                wrong.append((offset, found))

    threads = [threading.Thread(target=look_up, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for number in range(50, 400):
        append(log, number)
        log.read(number // 2, max_bytes=500, up_to=number, min_one_batch=True)
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [
        begin_search(log, up_to=400).first_at_or_after(1000 + 10 * n)[1] for n in range(400)
    ] == list(range(400))


def test_a_batch_of_nonsense_is_an_error_only_where_it_must_be_opened(tmp_path: Path) -> None:
    config = LogConfig(bradbury_validate_records="none")
    log = open_log(tmp_path, config=config)
    nonsense = build_batch(b"\xff" * 30, record_count=1, base_timestamp=500, max_timestamp=900)
    append(log, 0)
    log.append_as_leader(bytearray(nonsense), leader_epoch=0, now_ms=1000)
    append(log, 10)
    assert begin_search(log, up_to=3).first_at_or_after(1000) == (1000, 0, 0)
    assert begin_search(log, up_to=3).first_at_or_after(1001) == (1100, 2, 0)
    log = open_log(tmp_path / "second", config=config)
    log.append_as_leader(nonsense, leader_epoch=0, now_ms=1000)
    with pytest.raises(CorruptMessage):
        begin_search(log, up_to=3).first_at_or_after(600)

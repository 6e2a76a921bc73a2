"""Does the list of closed segments ever miss one that was deleted, compacted or cut off by right?

A log lives (appends, flushes, compactions, retention, truncations, unlinking), dies at any call to
its disk, in every way that a disk may be left, and is opened again, twice.
"""

import random
from collections.abc import Callable

import pytest

from bradbury.protocol.config_key import LONG_MAX
from bradbury.storage.log.log_damage import segments_to_examine
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.retention import apply_retention
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.closed_segments import CLOSED_SEGMENTS, read_closed_segments
from bradbury.storage.segments.lost_segments import LOST
from tests.storage.cleaner.test_cleaner_crash import CRASHES
from tests.support.storage.disk_deaths import Death, Died
from tests.support.storage.keyed_logs import append, clean, keyed_batch
from tests.support.storage.logs import open_log
from tests.support.storage.memory_file_system import MemoryFileSystem

PATH = "/data/t-0"
KINDS = {
    policy: LogConfig(
        segment_bytes=700,
        index_interval_bytes=100,
        cleanup_policy=policy,
        delete_retention_ms=0,
        file_delete_delay_ms=0,
    )
    for policy in ("compact", "delete")
}


class LogLife:
    """What a node does with a log, and what its checkpoints say of it."""

    def __init__(self, log: PartitionLog, seed: int) -> None:
        self.log = log
        self.random = random.Random(seed)
        self.recovery_point = 0
        self.start = 0

    def step(self) -> None:
        log, now_ms = self.log, 2000
        what = self.random.choice("aaaaaaffccruutt")
        if what == "a":
            for _ in range(3):
                key = b"%d" % self.random.randrange(6)
                append(log, keyed_batch([(key, b"v" * self.random.randrange(20, 120))] * 2))
        elif what == "f":
            log.flushing.flush()
            self.recovery_point = log.flushing.recovery_point
        elif what == "c" and log.config.is_compacted:
            log.flushing.flush()
            self.recovery_point = log.flushing.recovery_point
            clean(log)
        elif what == "r" and not log.config.is_compacted:
            log.high_watermark = log.flushing.recovery_point
            start = self.random.randint(log.log_start_offset, log.high_watermark)
            log.advance_log_start_offset(start)
            apply_retention(log, now_ms)
        elif what == "u":
            self.start = max(log.log_start_offset, log.segments[0].base_offset)
            listing = log.local.closed.begin_deletion(log.directory, log.segments, LONG_MAX)
            if listing is not None and self.random.random() < 0.5:
                listing.run()
            log.local.delete_old_files(LONG_MAX)
        elif what == "t" and self.random.random() < 0.5:
            least = max(log.log_start_offset, log.high_watermark)
            offset = self.random.randint(least, log.log_end_offset)
            self.recovery_point = min(self.recovery_point, offset)
            log.truncate_to(offset)


def examine(log: PartitionLog) -> None:
    for segment in segments_to_examine(log.damage.ends()):
        examination = log.damage.begin_examination(segment)
        assert examination is not None
        examination.run()
        log.damage.complete_examination(examination)


def lives(disk: MemoryFileSystem, config: LogConfig, seed: int) -> LogLife:
    return LogLife(open_log(PATH, file_system=disk, config=config), seed)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", KINDS)
@pytest.mark.parametrize("crash", CRASHES)
def test_what_went_by_right_is_not_missed_wherever_it_dies(policy: str, crash: str) -> None:
    leave: Callable[[MemoryFileSystem], MemoryFileSystem] = CRASHES[crash]
    listed = 0
    for seed in range(60):
        disk = MemoryFileSystem()
        life = lives(disk, KINDS[policy], seed)
        at = random.Random(seed).randrange(200, 1500)
        Death(disk, at)
        try:
            for _ in range(60):
                life.step()
        except Died:
            pass
        disk = leave(disk)
        for again in range(2):
            is_known = read_closed_segments(disk, PATH)
            listed += len(is_known)
            log = open_log(
                PATH,
                file_system=disk,
                config=KINDS[policy],
                recovery_point=life.recovery_point,
                log_start_offset=life.start if seed % 2 else None,
                cleaner_offset=0 if policy == "compact" else None,
                keeps_places=True,
            )
            examine(log)
            assert log.damage.ranges == (), (seed, again, log.recovery.reasons)
            names = [name for name in disk.list_directory(PATH) if name.endswith(".log")]
            lost = [name for name in names if disk.size(f"{PATH}/{name}") == len(LOST)]
            assert lost == [], (seed, again, log.recovery.reasons)
            assert not any("txnindex" in each for each in log.recovery.reasons)
            life.start = max(log.log_start_offset, log.segments[0].base_offset)
            log.local.delete_old_files(LONG_MAX)
            log.close(clean=False)
            disk = leave(disk)
    assert listed > 100


def test_a_log_that_was_never_rolled_has_no_list() -> None:
    disk = MemoryFileSystem()
    log = open_log(PATH, file_system=disk, config=KINDS["delete"])
    append(log, keyed_batch([(b"key", b"value")]))
    log.close(clean=True)
    assert CLOSED_SEGMENTS not in disk.list_directory(PATH)


def test_a_roll_waits_for_no_disk() -> None:
    disk = MemoryFileSystem()
    log = open_log(PATH, file_system=disk, config=KINDS["delete"])
    append(log, keyed_batch([(b"key", b"value")]))
    death = Death(disk, 10**9)
    log.local.roll(now_ms=1000)
    calls = [operation for operation, path in death.calls]
    assert ("write", f"{PATH}/{CLOSED_SEGMENTS}.tmp") in death.calls
    assert "sync" not in calls
    log.flushing.flush()
    assert ("sync", f"{PATH}/{CLOSED_SEGMENTS}") in death.calls

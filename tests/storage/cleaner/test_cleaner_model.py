"""Compaction against a dictionary: random writes, clocks, rolls, restarts and cleanings."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bradbury.protocol import kernel_loading
from bradbury.storage.log.cleaner_manager import find_cleanable
from bradbury.storage.log_config import LogConfig
from tests.support.storage.keyed_logs import (
    Found,
    append,
    clean,
    keyed_batch,
    last_values,
    read_records,
)
from tests.support.storage.logs import open_log

pytestmark = pytest.mark.thorough

RETENTION_MS = 100
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=64,
    cleanup_policy="compact",
    delete_retention_ms=RETENTION_MS,
)
KEYS = st.sampled_from([b"", b"a", b"bb", b"a much longer key than the others"])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)


class CompactedLog(RuleBasedStateMachine):
    """`appended` is every record ever written, by offset."""

    plain_records = 1 << 40

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1000
        self.appended: dict[int, Found] = {}
        self.sequences: dict[int, int] = {}
        self.last_batches: dict[int, tuple[bytearray, int]] = {}
        self.first_met: dict[int, int] = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(kernel_loading, "PLAIN_RECORDS", self.plain_records)

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bradbury-model-"))
        self.log = open_log(self.folder / "log", config=CONFIG)

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    @rule(
        records=RECORDS,
        codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
        producer_id=st.sampled_from([-1, 1, 2]),
    )
    def append(
        self, records: list[tuple[bytes, bytes | None]], codec: int, producer_id: int
    ) -> None:
        sequence = self.sequences.get(producer_id, 0)
        batch = keyed_batch(
            records,
            codec=codec,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else sequence,
        )
        base_offset = append(self.log, bytearray(batch), now_ms=self.now_ms)
        for number, (key, value) in enumerate(records):
            offset = base_offset + number
            self.appended[offset] = Found(offset, self.now_ms + number, key, value)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
            self.last_batches[producer_id] = batch, base_offset

    @rule(ms=st.integers(1, 2 * RETENTION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.log.local.roll(now_ms=self.now_ms)

    @rule(most_keys=st.sampled_from([1, 2, 3, 1000]))
    def clean(self, most_keys: int) -> None:
        before = find_cleanable(self.log, self.now_ms)
        cleaning = clean(
            self.log,
            now_ms=self.now_ms,
            dedupe_buffer_size=most_keys * 24,
            io_buffer_load_factor=1.0,
            io_buffer_size=8192,
        )
        if cleaning is None:
            return
        assert before.first_dirty_offset < cleaning.end_offset <= before.end_offset
        left = read_records(self.log)
        cleaned = [record for record in left if record.offset < cleaning.end_offset]
        assert len({record.key for record in cleaned}) == len(cleaned)
        untouched = [record for record in left if record.offset >= before.end_offset]
        assert untouched == [
            record for record in self.appended.values() if record.offset >= before.end_offset
        ]
        for record in left:
            # Above the cleaning's end, too: a batch has one horizon for all of its records.
            if record.value is None and record.offset < before.end_offset:
                self.first_met.setdefault(record.offset, self.now_ms)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.log.close(clean=is_clean)
        self.log = open_log(
            self.folder / "log",
            config=CONFIG,
            clean=is_clean,
            recovery_point=self.log.flushing.recovery_point if is_clean else 0,
            high_watermark=self.log.log_end_offset,
            cleaner_offset=self.log.compaction.cleaner_offset,
            log_start_offset=self.log.log_start_offset,
            now_ms=self.now_ms,
        )

    @rule(producer_id=st.sampled_from([1, 2]))
    def retry(self, producer_id: int) -> None:
        if producer_id in self.last_batches:
            batch, base_offset = self.last_batches[producer_id]
            result = self.log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=self.now_ms)
            assert result.duplicate
            assert result.base_offset == base_offset

    @invariant()
    def nothing_is_lost_or_changed(self) -> None:
        if not hasattr(self, "log"):
            return
        left = read_records(self.log)
        for record in left:
            assert record == self.appended[record.offset]
        offsets = [record.offset for record in left]
        assert offsets == sorted(offsets)
        assert last_values(left) == last_values(self.appended.values())
        assert self.log.log_end_offset == len(self.appended)

    @invariant()
    def a_deletion_can_be_seen_for_its_time(self) -> None:
        if not hasattr(self, "log"):
            return
        left = {record.offset for record in read_records(self.log)}
        for record in {record.key: record for record in self.appended.values()}.values():
            if record.value is None and record.offset not in left:
                assert self.now_ms >= self.first_met[record.offset] + RETENTION_MS


class CompactedLogWithCompiledLoops(CompactedLog):
    plain_records = 0


LIMITS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPlain = CompactedLog.TestCase
TestPlain.settings = LIMITS
TestCompiled = CompactedLogWithCompiledLoops.TestCase
TestCompiled.settings = settings(LIMITS, max_examples=30)

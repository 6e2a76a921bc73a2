"""Speed of log compaction. Prints a line for each kind of log.

    python -m bradbury.benchmarks.compaction [--megabytes 150]

One thread, no throttle, batches of 140 records of about 110 bytes with keys of 12; the log is in
the page cache, what is written is fsynced.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from typing import NamedTuple

from bradbury.protocol import kernel_loading
from bradbury.protocol.records.compression import compress
from bradbury.protocol.records.record_batch import build_batch
from bradbury.protocol.varint import encode_varint
from bradbury.storage.cleaner.cleaner_config import CleanerConfig
from bradbury.storage.cleaner.cleaner_rows import SEED_BYTES
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.cleaner_manager import find_cleanable
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig

RECORDS = 140
VARIANTS = 64
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Case(NamedTuple):
    codec: int
    keys: int
    is_compiled: bool
    share: float
    """Share of the megabytes asked for: the plain loops are slow."""


CASES = (
    Case(0, 5_000, False, 0.02),
    Case(0, 5_000, True, 1.0),
    Case(0, 10_000_000, True, 1.0),
    Case(3, 5_000, True, 1.0),
    Case(4, 5_000, True, 1.0),
)


def make_batch(codec: int, keys: int) -> bytearray:
    records = bytearray()
    for delta in range(RECORDS):
        key = b"key-%08d" % random.randrange(keys)
        value = random.randbytes(44).hex().encode()
        body = b"".join(
            (
                b"\0\0",
                encode_varint(delta),
                encode_varint(len(key)),
                key,
                encode_varint(len(value)),
                value,
                b"\0",
            )
        )
        records += encode_varint(len(body)) + body
    return build_batch(
        compress(codec, records),
        record_count=RECORDS,
        base_timestamp=1000,
        max_timestamp=1000,
        attributes=codec,
    )


def run(case: Case, directory: str, size: float) -> str:
    kernel_loading.PLAIN_RECORDS = 0 if case.is_compiled else 1 << 60
    config = LogConfig(cleanup_policy="compact", segment_bytes=64 * 1024**2)
    log = PartitionLog.open(
        OsFileSystem(),
        directory,
        topic_id=None,
        config=config,
        recovery_point=0,
        clean=False,
        cleaner_offset=0,  # a checkpoint says so, before the first cleaning
        now_ms=1000,
    )
    batches = [make_batch(case.codec, case.keys) for _ in range(VARIANTS)]
    count = max(1, int(size * case.share / (RECORDS * 110)))
    for number in range(count):
        batch = bytearray(batches[number % VARIANTS])
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000, opened=True)
    log.high_watermark = log.log_end_offset
    log.local.roll(now_ms=1000)
    found = find_cleanable(log, 2000)
    cleaning = log.compaction.begin_cleaning(
        CleanerConfig(),
        first_dirty_offset=found.first_dirty_offset,
        end_offset=found.end_offset,
        now_ms=2000,
        seed=os.urandom(SEED_BYTES),
    )
    started, started_cpu = time.perf_counter(), time.process_time()
    cleaning.build_offset_map(lambda size: None)
    for group in cleaning.groups():
        log.compaction.replace_segments(
            cleaning, cleaning.clean_group(group, lambda size: None), 2000
        )
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    log.compaction.complete_cleaning(cleaning)
    report = cleaning.report
    log.close(clean=False)
    return (
        f"{CODECS[case.codec]:7} {'compiled' if case.is_compiled else 'plain':8} "
        f"{report.bytes_read / 1e6:6.0f} MB  "
        f"{report.records_read / 1e6 / seconds:5.2f} M records/s "
        f"{report.bytes_read / 1e6 / seconds:6.0f} MB/s  {cpu:5.2f} s CPU  "
        f"{report.records_read} records to {report.records_written}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=150.0)
    size = parser.parse_args().megabytes * 1e6
    from ..storage.cleaner import cleaner_compiled  # noqa: F401 -- loading it is not what is measured

    for case in CASES:
        with tempfile.TemporaryDirectory() as directory:
            print(run(case, directory, size))


if __name__ == "__main__":
    main()

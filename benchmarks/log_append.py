"""Speed of one log without sockets. Run by hand: python -m bradbury.benchmarks.log_append

Appends batches as a leader, half of them with a check of every record (by the compiled loop, as in
a broker that has loaded it) and half without, locates slices as for a consumer's fetches (and
copies their bytes, which a broker leaves to sendfile), and recovers the log as after a crash.
`floor` is a CRC and a pwrite of the same bytes.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable

from bradbury.protocol.columns.record_check import load_record_check
from bradbury.protocol.records.record_batch import compute_crc
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig

ROUND = 2000
RECORDS = 100
"""Number of records in a batch."""


def timed(name: str, count: int, size: int, work: Callable[[], None]) -> None:
    best = float("inf")
    start = time.perf_counter()
    for _ in range(max(1, count // ROUND)):
        before = time.perf_counter()
        work()
        best = min(best, (time.perf_counter() - before) / ROUND)
    mean = (time.perf_counter() - start) / (max(1, count // ROUND) * ROUND)
    print(
        f"{name:<28} mean {mean * 1e6:8.2f} us {size / mean / 1e6:9.0f} MB/s"
        f"   best {best * 1e6:8.2f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-bytes", type=int, default=16384, help="largest size of a batch")
    parser.add_argument("--batches", type=int, default=40_000)
    parser.add_argument("--directory", help="directory to write to; default: a temporary one")
    options = parser.parse_args()
    root = tempfile.mkdtemp(dir=options.directory)
    try:
        measure(root, options.batch_bytes, options.batches)
    finally:
        shutil.rmtree(root)


def largest_batch(most_bytes: int) -> bytearray:
    """A batch of at most so many bytes, unless its records are that large without any value."""
    for value_bytes in range(most_bytes // RECORDS, -1, -1):
        batch = encode_records((1000, None, os.urandom(value_bytes), ()) for _ in range(RECORDS))
        if len(batch) <= most_bytes:
            break
    return batch


def measure(root: str, most_bytes: int, count: int) -> None:
    batch = largest_batch(most_bytes)
    size = len(batch)
    raw = os.open(f"{root}/raw", os.O_RDWR | os.O_CREAT)
    position = 0

    def floor() -> None:
        nonlocal position
        for _ in range(ROUND):
            compute_crc(batch)
            os.pwrite(raw, batch, position)
            position += size

    timed("floor: CRC and pwrite", count, size, floor)
    os.close(raw)
    os.unlink(f"{root}/raw")
    log = PartitionLog.open(
        OsFileSystem(),
        f"{root}/bench-0",
        topic_id=None,
        config=LogConfig(),
        recovery_point=0,
        clean=False,
        now_ms=1000,
    )

    def append(opened: bool = False) -> None:
        for _ in range(ROUND):
            batch[0:8] = bytes(8)
            log.append_as_leader(batch, leader_epoch=0, now_ms=1000, opened=opened)

    load_record_check()
    log.append_as_leader(batch, leader_epoch=0, now_ms=1000)  # the loop's first call is slow
    timed("append_as_leader", count // 2, size, append)
    timed("append, records not opened", count // 2, size, lambda: append(opened=True))
    end = log.log_end_offset
    sink = os.open("/dev/null", os.O_WRONLY)

    def tail() -> None:
        for _ in range(ROUND):
            log.read(end - RECORDS, max_bytes=1 << 20, up_to=end, min_one_batch=True)

    timed("read at the end (no send)", 5 * ROUND, 0, tail)
    for max_bytes in (most_bytes, 1 << 20):
        offset, slices, sent = 0, 0, 0
        start = time.perf_counter()
        locating = 0.0
        while offset < end:
            before = time.perf_counter()
            piece = log.read(offset, max_bytes=max_bytes, up_to=end, min_one_batch=True)
            locating += time.perf_counter() - before
            assert piece.file is not None
            sent += os.write(sink, os.pread(piece.file.fileno(), piece.size, piece.position))
            slices += 1
            offset = piece.next_offset
        took = time.perf_counter() - start
        print(
            f"read all by {max_bytes >> 10:5} KiB          mean {locating / slices * 1e6:8.2f} us"
            f" {sent / took / 1e6:9.0f} MB/s with a copy"
        )
    log.close(clean=False)
    start = time.perf_counter()
    again = PartitionLog.open(
        OsFileSystem(),
        f"{root}/bench-0",
        topic_id=None,
        config=LogConfig(),
        recovery_point=0,
        clean=False,
        now_ms=1000,
    )
    took = time.perf_counter() - start
    scanned = again.recovery.bytes_scanned
    print(f"recovery scan                {took:8.3f} s  {scanned / took / 1e6:9.0f} MB/s")


if __name__ == "__main__":
    main()

"""Throughput of the column codec, and of codecs that handle records one at a time.

    python -m bradbury.benchmarks.columns [--records 500000] [--batch-bytes 16384 1048576]

Values are JSON-like text, half of each random; keys are 12 bytes. One thread; best of five runs.
The one-by-one columns decode and encode a tenth of the records, with kafka-python and with our own
plain records.py.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from bradbury.protocol.columns import columns
from bradbury.protocol.records.compression import CompressionType
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records, iterate_records

CODECS = (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD)


def best_seconds(work: Callable[[], Any], runs: int = 5) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(runs):
        started = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - started)
    return best, result


def values_of(size: int, count: int) -> list[bytes]:
    source = random.Random(1)
    noise = source.randbytes(1 << 20).hex()
    template = '{"carrier":"UA","origin":"EWR","dest":"IAH","delay":12,"id":"'
    text = (template * (size // (2 * len(template)) + 1))[: size // 2]
    starts = (source.randrange(len(noise) - size) for _ in range(count))
    return [(text + noise[start : start + size - len(text)]).encode() for start in starts]


def one_batch(values: list[bytes]) -> bytes:
    builder = MemoryRecordsBuilder(2, 0, 1 << 30)
    for index, value in enumerate(values):
        builder.append(1_700_000_000_000 + index, b"%012d" % index, value, [])
    builder.close()
    return bytes(builder.buffer())


def measure_one_by_one(size: int, count: int) -> None:
    values = values_of(size, count)
    rows = [(1_700_000_000_000 + i, b"%012d" % i, value, ()) for i, value in enumerate(values)]
    encode_theirs, batch = best_seconds(lambda: one_batch(values), 2)
    decode_theirs, _ = best_seconds(
        lambda: [
            (r.offset, r.timestamp, r.key, r.value) for r in MemoryRecords(batch).next_batch()
        ],
        2,
    )
    encode_plain, _ = best_seconds(lambda: encode_records(rows), 2)
    decode_plain, _ = best_seconds(lambda: list(iterate_records(batch)), 2)
    for name, encode, decode in (
        ("kafka-python", encode_theirs, decode_theirs),
        ("records.py", encode_plain, decode_plain),
    ):
        print(
            f"{size:6} {name:>12} {'':>9} {count / encode / 1e6:8.2f} {count / decode / 1e6:8.2f}"
        )


def measure_columns(size: int, count: int, batch_bytes: int) -> None:
    values = pa.array(values_of(size, count), pa.binary())
    keys = pa.array([b"%012d" % index for index in range(count)], pa.binary())
    timestamps = np.arange(count, dtype=np.int64) + 1_700_000_000_000
    for codec in CODECS:
        encode, batches = best_seconds(
            lambda codec=codec: columns.encode_batches(
                keys, values, timestamps, codec=codec, max_bytes=batch_bytes
            )
        )
        offset = 0
        for batch in batches:
            stamp(batch.batch, base_offset=offset, leader_epoch=0)
            offset += batch.record_count
        fetched = b"".join(batch.batch for batch in batches)
        decode, decoded = best_seconds(
            lambda fetched=fetched: columns.decode_batches(
                fetched, topic="flights", partition=0, fetch_offset=0
            )
        )
        assert decoded.values.equals(values)
        table, _ = best_seconds(lambda decoded=decoded: decoded.table)
        print(
            f"{size:6} {codec.name.lower():>12} {batch_bytes // 1024:5} KiB"
            f" {count / encode / 1e6:8.2f} {count / decode / 1e6:8.2f}"
            f" {count / (decode + table) / 1e6:8.2f} {count * size / len(fetched):8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--records", type=int, default=500_000, help="records of 100 bytes; of 1 KB a fifth"
    )
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[16 * 1024, 1024 * 1024])
    arguments = parser.parse_args()
    started = time.perf_counter()
    columns.warm_up()
    print(f"kernels loaded in {time.perf_counter() - started:.2f} s")
    print("M records/s:                    encode   decode  +table    ratio")
    for size, count in ((100, arguments.records), (1000, arguments.records // 5)):
        measure_one_by_one(size, count // 10)
        for batch_bytes in arguments.batch_bytes:
            measure_columns(size, count, batch_bytes)


if __name__ == "__main__":
    main()

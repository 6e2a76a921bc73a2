"""Does Apache Kafka's own dump tool read every file that we write, and see what is in it?

slow: each run of the tool is a Java process of about a second. Needs java and mvn; see kafka_jars.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bradbury.protocol.records.records import encode_records
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java
from bradbury.tests.support.storage.logs import open_log
from bradbury.tests.support.storage.transactions import end, send

pytestmark = pytest.mark.slow

DUMP = "kafka.tools.DumpLogSegments"
COMPLAINT = re.compile(
    r"(?i)mismatch|non-?consecutive|out of order|corrupt|invalid|not found|exception|error|missing"
)
SMALL = LogConfig(segment_bytes=8192, index_interval_bytes=256)


def dump(paths: Iterable[Path], *options: str) -> str:
    """What the tool says of these files. It must not complain."""
    require_kafka()
    files = ",".join(str(path) for path in paths)
    said = run_java(DUMP, "--files", files, *options).stdout
    assert not COMPLAINT.search(said), said[-3000:]
    return said


def files(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob("*" + suffix))
    assert found
    return found


def fill(log: PartitionLog, count: int, *, codec: int = 0, start: int = 0) -> None:
    """Batches of three records, of idempotent producers 40 and 41 by turns."""
    for number in range(start, start + count):
        batch = encode_records(
            [
                (1_000_000 + 10 * number + record, b"key %d" % number, b"value %d" % record, ())
                for record in range(3)
            ],
            codec=codec,
            producer_id=40 + number % 2,
            producer_epoch=7,
            base_sequence=3 * (number // 2),
        )
        log.append_as_leader(batch, leader_epoch=number // 20, now_ms=1_000_000)


def records_in(said: str) -> list[tuple[int, int, int, str, str]]:
    """(offset, timestamp, sequence, key, value) of every record in a deep dump."""
    pattern = (
        r"offset: (\d+) CreateTime: (\d+) keySize: \d+ valueSize: \d+ sequence: (-?\d+) "
        r"headerKeys: \[\] key: (.*) payload: (.*)"
    )
    return [
        (int(offset), int(timestamp), int(sequence), key, value)
        for offset, timestamp, sequence, key, value in re.findall(pattern, said)
    ]


def expected_records(count: int) -> list[tuple[int, int, int, str, str]]:
    return [
        (
            3 * number + record,
            1_000_000 + 10 * number + record,
            3 * (number // 2) + record,
            f"key {number}",
            f"value {record}",
        )
        for number in range(count)
        for record in range(3)
    ]


def check_everything(directory: Path, count: int) -> None:
    """All files of a log that holds `count` batches of fill()."""
    said = dump(files(directory, ".log"), "--deep-iteration", "--print-data-log")
    assert records_in(said) == expected_records(count)
    assert set(re.findall(r"isvalid: (\w+)", said)) == {"true"}
    epochs = [int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", said)]
    assert epochs == [number // 20 for number in range(count)]
    for option in ("--verify-index-only", "--index-sanity-check"):
        dump([*files(directory, ".index"), *files(directory, ".timeindex")], option)
    entries = re.findall(r"offset: (\d+) position: (\d+)", dump(files(directory, ".index")))
    assert len(entries) > 3
    times = re.findall(r"timestamp: (\d+) offset: (\d+)", dump(files(directory, ".timeindex")))
    assert len(times) > 3


def no_crash(directory: Path, log: PartitionLog) -> None:
    log.close(clean=True)


def torn_tail(directory: Path, log: PartitionLog) -> None:
    log.flushing.flush()
    with files(directory, ".log")[-1].open("ab") as file:
        file.write(b"\0" * 100)
    open_log(directory, config=SMALL).close(clean=True)


def lost_indexes(directory: Path, log: PartitionLog) -> None:
    log.close(clean=True)
    for path in [*files(directory, ".index"), *files(directory, ".timeindex")]:
        path.unlink()
    open_log(directory, config=SMALL).close(clean=True)


@pytest.mark.parametrize(
    "codec",
    [
        pytest.param(number, id=name, marks=() if name == "zstd" else pytest.mark.long)
        for number, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
    ],
)
def test_a_log_of_every_codec(tmp_path: Path, codec: int) -> None:
    require_kafka()
    log = open_log(tmp_path, config=SMALL)
    fill(log, 200, codec=codec)
    assert len(log.segments) > 1
    no_crash(tmp_path, log)
    check_everything(tmp_path, 200)


@pytest.mark.parametrize("end", [torn_tail, pytest.param(lost_indexes, marks=pytest.mark.long)])
def test_a_log_that_was_recovered(
    tmp_path: Path, end: Callable[[Path, PartitionLog], None]
) -> None:
    require_kafka()
    log = open_log(tmp_path, config=SMALL)
    fill(log, 200)
    end(tmp_path, log)
    check_everything(tmp_path, 200)


def test_snapshots_of_producers(tmp_path: Path) -> None:
    require_kafka()
    log = open_log(tmp_path, config=SMALL)
    fill(log, 200)
    log.close(clean=True)
    newest = files(tmp_path, ".snapshot")[-1]
    said = dump([newest])
    found = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
        r"currentTxnFirstOffset: (\S+) lastTimestamp: (\d+) firstSequence: (\d+) "
        r"lastSequence: (\d+) lastOffset: (\d+) offsetDelta: (\d+) timestamp: (\d+)",
        said,
    )
    assert found == [
        ("40", "7", "-1", "OptionalLong.empty", "1001982", "297", "299", "596", "2", "1001982"),
        ("41", "7", "-1", "OptionalLong.empty", "1001992", "297", "299", "599", "2", "1001992"),
    ], said
    for path in files(tmp_path, ".snapshot"):
        dump([path])


def test_markers_aborted_transactions_and_open_ones(tmp_path: Path) -> None:
    require_kafka()
    log = open_log(tmp_path, config=SMALL)
    send(log, 0, 2)
    end(log, is_commit=True, coordinator_epoch=4)
    send(log, 2, 3, producer_id=7)
    send(log, 0, 1, producer_id=8, epoch=1)
    end(log, is_commit=False, coordinator_epoch=5)
    end(log, is_commit=False, epoch=2, producer_id=8, coordinator_epoch=5)
    send(log, 5)
    log.close(clean=True)
    said = dump(files(tmp_path, ".log"), "--deep-iteration", "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", said) == [
        ("COMMIT", "4"),
        ("ABORT", "5"),
        ("ABORT", "5"),
    ]
    said = dump(files(tmp_path, ".txnindex"))
    found = re.findall(
        r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
        r"lastStableOffset: (\d+)",
        said,
    )
    assert found == [("7", "3", "7", "6"), ("8", "6", "8", "9")], said
    said = dump([files(tmp_path, ".snapshot")[-1]])
    found = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
        r"currentTxnFirstOffset: (\S+) lastTimestamp: (\d+)",
        said,
    )
    assert found == [
        ("7", "0", "5", "OptionalLong[9]", "1000"),
        ("8", "2", "5", "OptionalLong.empty", "1000"),
    ], said

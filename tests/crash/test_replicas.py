"""Are differences between replicas found in their files, and is nothing found where there is none?"""

from pathlib import Path
from uuid import UUID

import pytest

from bradbury.protocol.records.records import encode_records
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log_config import LogConfig
from bradbury.tests.crash.history import History, Send
from bradbury.tests.crash.replicas import Comparison, compare, read_replicas

NODES = ("n1", "n2", "n3")
TOPIC_ID = UUID(int=7)


def write_replica(data: Path, node: str, values: list[int], *, high_watermark: int) -> None:
    path = data / node / "partitions-0"
    path.mkdir(parents=True)
    directory = LogDirectory.open(OsFileSystem(), str(path), directory_id=node)
    directory.load_logs(lambda _: LogConfig(), now_ms=0)
    log = directory.create_log("t", 0, topic_id=TOPIC_ID, config=LogConfig())
    log.local.assign_epoch(0)
    for value in values:
        batch = encode_records([(0, None, b"%d" % value, ())])
        log.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=0)
    log.high_watermark = high_watermark
    directory.close(clean=True)


def compared(data: Path, acknowledged: list[int]) -> Comparison:
    history = History(partitions=1)
    history.sends = [
        Send("w/0", 0, value, 0, 1, "ok", offset) for offset, value in enumerate(acknowledged)
    ]
    return compare(read_replicas(data, "t"), history, len(NODES))


def test_equal_replicas_have_no_differences(tmp_path: Path) -> None:
    for node in NODES:
        write_replica(tmp_path, node, [10, 11, 12], high_watermark=3)
    found = compared(tmp_path, [10, 11, 12])
    assert found == Comparison(replicas=3, offsets=3)


def test_another_record_below_the_high_watermark_is_a_difference(tmp_path: Path) -> None:
    for node in NODES:
        values = [10, 99, 12] if node == "n2" else [10, 11, 12]
        write_replica(tmp_path, node, values, high_watermark=3)
    found = compared(tmp_path, [10, 11, 12])
    assert len(found.divergent) == 1
    assert "batch 1" in found.divergent[0]
    assert len(found.misplaced) == 1
    assert "n2" in found.misplaced[0]


def test_what_is_not_committed_may_differ(tmp_path: Path) -> None:
    for node in NODES:
        values = [10, 11, 99] if node == "n2" else [10, 11, 12]
        write_replica(tmp_path, node, values, high_watermark=2)
    assert compared(tmp_path, [10, 11]).divergent == []


def test_an_acknowledged_record_that_one_replica_lacks_is_misplaced(tmp_path: Path) -> None:
    for node in NODES:
        values = [10, 11] if node == "n3" else [10, 11, 12]
        write_replica(tmp_path, node, values, high_watermark=2)
    found = compared(tmp_path, [10, 11, 12])
    assert found.divergent == []
    assert len(found.misplaced) == 1


def test_a_replica_that_is_not_there_is_missing(tmp_path: Path) -> None:
    for node in NODES[:2]:
        write_replica(tmp_path, node, [10], high_watermark=1)
    assert len(compared(tmp_path, [10]).missing) == 1


def test_a_damaged_file_is_no_replica(tmp_path: Path) -> None:
    for node in NODES:
        write_replica(tmp_path, node, [10, 11], high_watermark=2)
    path = tmp_path / "n1" / "partitions-0" / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"CRC|crc"):
        compared(tmp_path, [10, 11])

"""Can others read our files, and do we read theirs? kafka-python and kio are the oracles."""

from pathlib import Path

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from kio.records.readers import read_batch

from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_a_log_file_is_a_sequence_of_batches_to_kafka_python(tmp_path: Path, codec: int) -> None:
    log = open_log(tmp_path)
    sent = []
    for number in range(5):
        builder = MemoryRecordsBuilder(2, codec, 1 << 20)
        for record in range(number + 1):
            key, value = b"k%d" % number, b"value %d" % record
            builder.append(1000 + record, key, value, headers=[("h", b"x")])
            sent.append((len(sent), 1000 + record, key, value))
        builder.close()
        log.append_as_leader(bytearray(builder.buffer()), leader_epoch=2, now_ms=1000)
    records = MemoryRecords(
        log.segments[0].files.path_prefix and Path(log.segments[0].files.path).read_bytes()
    )
    read = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        assert batch.leader_epoch == 2
        read += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert read == sent


def test_a_log_file_is_a_sequence_of_batches_to_kio(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(5):
        log.append_as_leader(make_batch(number + 1), leader_epoch=3, now_ms=1000)
    content = Path(log.segments[0].files.path).read_bytes()
    position, offset = 0, 0
    while position < len(content):
        batch, size = read_batch(content, position)
        assert (batch.base_offset, batch.partition_leader_epoch) == (offset, 3)
        assert [record.value for record in batch.records] == [b"value"] * len(batch.records)
        offset += len(batch.records)
        position += size
    assert offset == 15


def test_indexes_have_kafkas_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=0), log_start_offset=40)
    size = len(make_batch(2))
    for number in range(3):
        batch = make_batch(timestamps=[1000 + number, 999])
        log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
    log.close(clean=True)
    # The first batch has no entry: less than index.interval.bytes came before it.
    offsets = [(3, size), (5, 2 * size)]
    times = [(1001, 3), (1002, 5)]
    index = b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in offsets)
    time_index = b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in times)
    assert (tmp_path / f"{40:020d}.index").read_bytes() == index
    assert (tmp_path / f"{40:020d}.timeindex").read_bytes() == time_index

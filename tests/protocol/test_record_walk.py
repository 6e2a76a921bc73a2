"""The offsets and timestamps in a batch; kafka-python's builder and reader are the oracle."""

import pytest
from hypothesis import given, strategies as st
from kafka.record import MemoryRecords

from bradbury.protocol.errors import CorruptMessage, InvalidRecord, KafkaError
from bradbury.protocol.records.record_batch import build_batch
from bradbury.protocol.records.record_walk import walk_records
from bradbury.tests.support.storage.batches import make_batch


@given(
    timestamps=st.lists(st.integers(0, 2**62), min_size=1, max_size=20),
    codec=st.sampled_from([0, 1, 2]),
    value=st.binary(max_size=200),
)
def test_records_are_where_kafka_python_sees_them(
    timestamps: list[int], codec: int, value: bytes
) -> None:
    batch = make_batch(timestamps=timestamps, codec=codec, value=value)
    batch[0:8] = (500).to_bytes(8, "big")
    expected = [(r.offset, r.timestamp) for r in MemoryRecords(bytes(batch)).next_batch()]
    assert list(walk_records(batch, limit=1 << 20)) == expected


@given(records=st.binary(max_size=60), count=st.integers(1, 5))
def test_garbage_is_corrupt_or_invalid_and_nothing_else(records: bytes, count: int) -> None:
    batch = build_batch(records, record_count=count, base_timestamp=0, max_timestamp=0)
    try:
        assert len(list(walk_records(batch, limit=1000))) == count
    except (CorruptMessage, InvalidRecord):
        pass


def test_a_bomb_is_not_opened_beyond_the_limit() -> None:
    batch = make_batch(value=bytes(100_000), codec=1)
    assert len(batch) < 1000
    with pytest.raises(KafkaError):
        list(walk_records(batch, limit=50_000))


def test_a_record_that_runs_out_of_its_batch_is_invalid() -> None:
    batch = make_batch(2)
    del batch[-1]
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(InvalidRecord):
        list(walk_records(batch, limit=1000))

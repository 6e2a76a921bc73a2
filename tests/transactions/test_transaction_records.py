"""Are the records of `__transaction_state` Kafka's own, and are other bytes refused?"""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bradbury.protocol.errors import CorruptMessage
from bradbury.protocol.records.records import encode_records
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java
from bradbury.tests.support.storage.logs import open_log
from bradbury.transactions.transaction_metadata import NO_PARTITIONS, TransactionMetadata
from bradbury.transactions.transaction_records import (
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)
from bradbury.transactions.transaction_state import TransactionState

NEVER_WRITTEN = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
WRITTEN = [state for state in TransactionState if state not in NEVER_WRITTEN]
longs = st.integers(-1, 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def metadata(draw: st.DrawFn, version: int) -> TransactionMetadata:
    state = draw(st.sampled_from(WRITTEN))
    partitions = st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=5)
    tagged = {
        "previous_producer_id": draw(longs),
        "next_producer_id": draw(longs),
        "client_version": draw(st.integers(0, 2)),
    }
    return TransactionMetadata(
        producer_id=draw(longs),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=NO_PARTITIONS if state is TransactionState.EMPTY else draw(partitions),
        last_update_ms=draw(longs),
        start_ms=draw(longs),
        **(tagged if version else {}),
    )


@given(st.data(), names, st.integers(0, 2))
def test_what_is_written_is_read(data: st.DataObject, transactional_id: str, version: int) -> None:
    record = TransactionRecord(transactional_id, data.draw(metadata(version)))
    key, value = encode_transaction_record(record, transaction_version=version)
    assert decode_transaction_record(key, value) == record


def test_an_expired_id_has_a_tombstone() -> None:
    key, value = encode_transaction_record(TransactionRecord("id", None), transaction_version=2)
    assert value is None
    assert decode_transaction_record(key, None) == TransactionRecord("id", None)


@pytest.mark.parametrize("state", NEVER_WRITTEN)
def test_a_state_that_is_only_pending_is_never_written(state: TransactionState) -> None:
    record = TransactionRecord("id", TransactionMetadata(1, 60_000, 0, state=state))
    with pytest.raises(ValueError, match="never written"):
        encode_transaction_record(record, transaction_version=2)


def test_a_key_of_a_newer_version_is_left_to_newer_brokers() -> None:
    assert decode_transaction_record(b"\0\1\0\2id", b"\0\0") is None


@given(st.binary(max_size=30), st.binary(max_size=80))
def test_other_bytes_are_refused_and_nothing_else_happens(rest: bytes, value: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        decode_transaction_record(b"\0\0" + rest, value)


@pytest.mark.long  # a JVM for each
@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("version", [0, 2])
def test_kafkas_dump_tool_reads_them(tmp_path: Path, version: int) -> None:
    require_kafka()
    ongoing = TransactionMetadata(
        producer_id=17,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({("paid", 0), ("paid", 2), ("sent", 1)}),
        last_update_ms=2_000,
        start_ms=1_000,
        client_version=version,
    )
    records = [TransactionRecord("payments", ongoing), TransactionRecord("gone", None)]
    log = open_log(tmp_path / "__transaction_state-7")
    encoded = [encode_transaction_record(each, transaction_version=version) for each in records]
    batch = encode_records([(2_000, key, value, ()) for key, value in encoded])
    log.append_as_leader(batch, leader_epoch=0, now_ms=2_000)
    log.close(clean=True)
    (segment,) = (tmp_path / "__transaction_state-7").glob("*.log")
    said = run_java(
        "kafka.tools.DumpLogSegments",
        "--files",
        str(segment),
        "--transaction-log-decoder",
        "--print-data-log",
    ).stdout
    print(said)
    assert "payments" in said
    assert re.search(r'producerId"?[=:] ?17', said)
    assert re.search(r'producerEpoch"?[=:] ?3', said)
    assert "paid" in said
    assert "sent" in said
    assert "gone" in said
    assert not re.search(r"(?i)exception|error|corrupt", said)

"""Is the log of offsets in transactions Kafka's own, and does compaction leave what it means?"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.groups.group_records import entries_in
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.storage.producers.verification_guard import UNVERIFIED
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java
from bradbury.tests.support.groups.group_driver import START_MS, GroupDriver
from bradbury.tests.support.storage.keyed_logs import clean, stored_bytes
from bradbury.tests.support.storage.logs import open_log

DAY_MS = 24 * 60 * 60 * 1000
P0, P1 = ("t", 0), ("t", 1)
COMPACTED = LogConfig(cleanup_policy="compact", segment_bytes=200, min_cleanable_dirty_ratio=0.0)


def append(log: PartitionLog, batches: Iterable[bytearray], now_ms: int) -> None:
    """Each committed when the next one comes, as a coordinator writes them."""
    for batch in batches:
        log.append_as_leader(
            bytearray(batch),
            leader_epoch=0,
            now_ms=now_ms,
            opened=True,
            is_own=True,
            guard=UNVERIFIED,
        )
        log.high_watermark = log.log_end_offset


def loaded(log: PartitionLog, driver: GroupDriver) -> GroupDriver:
    """A coordinator that has read the log, at the time of `driver`."""
    other = GroupDriver(now_ms=driver.now_ms)
    for entry in entries_in(stored_bytes(log), 0)[0]:
        other.coordinator.apply(entry)
    return other


@dataclass(frozen=True)
class Commit:
    partition: TopicPartitionPair
    offset: int
    producer_id: int | None


@dataclass(frozen=True)
class End:
    producer_id: int
    is_commit: bool


@dataclass(frozen=True)
class Delete:
    partition: TopicPartitionPair | None
    """None: the whole group."""


@dataclass(frozen=True)
class Clean:
    """Everything that is not open is compacted; tombstones and markers go a day later."""

    days: int


partitions = st.sampled_from([P0, P0, P1])
producers = st.sampled_from([7, 8])
steps = st.one_of(
    st.builds(Commit, partitions, st.integers(0, 99), producers | st.none()),
    st.builds(Commit, partitions, st.integers(0, 99), producers),
    st.builds(End, producers, st.booleans()),
    st.builds(Delete, partitions | st.none()),
    st.builds(Clean, st.integers(0, 2)),
)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=8, max_size=25))
def test_a_coordinator_that_reads_the_compacted_log_knows_what_the_living_one_does(
    tmp_path_factory: pytest.TempPathFactory, script: list[object]
) -> None:
    """With our own cleaner, in any order of commits, ends, deletions and cleanings."""
    driver = GroupDriver()
    log = open_log(tmp_path_factory.mktemp("log") / "__consumer_offsets-0", config=COMPACTED)
    now_ms = START_MS
    for step in script:
        match step:
            case Commit(partition, offset, None):
                driver.commit({partition: offset})
            case Commit(partition, offset, producer_id):
                driver.commit_in_transaction({partition: offset}, producer_id=producer_id)
            case End(producer_id, is_commit):
                driver.end_transaction(producer_id, is_commit=is_commit)
            case Delete(None):
                driver.delete("orders")
            case Delete(partition):
                driver.delete_offsets(partition)
            case Clean(days):
                now_ms += days * DAY_MS
                clean(log, now_ms=now_ms)
        append(log, driver.log, now_ms)
        driver.log.clear()
        other = loaded(log, driver)
        assert other.all_offsets() == driver.all_offsets()
        for topic, partition in (P0, P1):
            assert other.fetch(topic, partition, require_stable=True) == driver.fetch(
                topic, partition, require_stable=True
            )
    log.close(clean=True)


@pytest.mark.slow
@pytest.mark.java
def test_kafkas_dump_tool_reads_commits_in_transactions_and_their_ends(tmp_path: Path) -> None:
    require_kafka()
    driver = GroupDriver()
    driver.commit({P0: 41})
    driver.commit_in_transaction({P0: 42, P1: 43}, producer_id=17, metadata="beside")
    driver.end_transaction(17)
    driver.commit_in_transaction({P0: 44}, producer_id=18)
    driver.end_transaction(18, is_commit=False)
    driver.delete_offsets(P0)
    log = open_log(tmp_path / "__consumer_offsets-0")
    append(log, driver.log, START_MS)
    log.close(clean=True)
    (segment,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    said = run_java(
        "kafka.tools.DumpLogSegments", "--files", str(segment), "--offsets-decoder"
    ).stdout
    print(said)
    lines = said.splitlines()
    batches = [line for line in lines if "baseOffset" in line]
    assert [
        (
            re.search(r"producerId: (-?\d+)", line)[1],
            "isTransactional: true" in line,
            "isControl: true" in line,
        )
        for line in batches
    ] == [
        ("-1", False, False),
        ("17", True, False),
        ("17", True, True),
        ("18", True, False),
        ("18", True, True),
        ("-1", False, False),
    ]
    assert "endTxnMarker: COMMIT" in said
    assert "endTxnMarker: ABORT" in said
    assert all(f'"offset":{offset}' in said for offset in (41, 42, 43, 44))
    assert said.count('"metadata":"beside"') == 2
    assert not re.search(r"(?i)exception|error|corrupt|invalid", said)

"""Are the same records read from a broker's files as from the broker, whatever is in them?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bradbury
from bradbury.pipelines.ranges.local_segments import _is_here, local_directories, read_segments
from bradbury.pipelines.ranges.partition_range import DataLoss, PartitionRange, ReadLimits
from bradbury.pipelines.ranges.range_reader import RangeReader
from bradbury.pipelines.ranges.read_arguments import read_limits
from bradbury.pipelines.ranges.reading_client import reading_client
from bradbury.pipelines.ranges.topic_columns import topic_table
from bradbury.protocol.errors import KafkaError

RECORDS = 3_000
SMALL_SEGMENTS = {"segment.bytes": "40000", "index.interval.bytes": "1000"}
KEY = bradbury.TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(str(tmp_path / "data")) as cluster:
        yield cluster


def fill(cluster: bradbury.LocalCluster, **configs: str) -> None:
    """Many segments, of batches of 50 records."""
    with cluster.admin() as admin:
        admin.create_topic("t", 1, configs={**SMALL_SEGMENTS, **configs})
    send(cluster, 0, RECORDS)


def send(cluster: bradbury.LocalCluster, start: int, end: int) -> None:
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range(start, end, 50):
            values = [b"%050d" % each for each in range(number, number + 50)]
            producer.send_batch("t", values).result(60)


def limits(isolation_level: str = "read_uncommitted", *, local_files: bool) -> ReadLimits:
    return read_limits(
        isolation_level,
        "test",
        poll_timeout_ms=5_000,
        fail_on_data_loss=True,
        local_files=local_files,
    )


def rows(cluster: bradbury.LocalCluster, wanted: PartitionRange, how: ReadLimits) -> Any:
    client = reading_client(cluster.bootstrap_servers, how.fetch)
    with RangeReader(client, how) as reader:
        tables = [topic_table(found, ["offset", "value"]) for found in reader.read([wanted])]
    return pa.concat_tables(tables).to_pylist() if tables else []


def directory_of(cluster: bradbury.LocalCluster, start: int = 0) -> Path | None:
    client = reading_client(cluster.bootstrap_servers, limits(local_files=True).fetch)
    return local_directories(client, [PartitionRange("t", 0, start, start + 1)]).get(KEY)


def known_directory(cluster: bradbury.LocalCluster) -> Path:
    directory = directory_of(cluster)
    assert directory is not None
    return directory


def from_files(directory: Path, wanted: PartitionRange, *, read_committed: bool = False) -> int:
    """How many offsets of it the files alone have shown."""
    position = wanted.start
    for found in read_segments(directory, wanted, read_committed=read_committed, check_crcs=True):
        assert len(found) == 0 or int(found.offsets[0]) >= position
        position = max(position, found.next_offset)
    return position - wanted.start


@pytest.mark.parametrize(
    ("start", "end"),
    [(0, RECORDS), (0, 1), (1, 2), (49, 51), (777, 1_501), (RECORDS - 1, RECORDS), (50, 50)],
)
def test_any_range_is_read_from_the_files_alone(
    cluster: bradbury.LocalCluster, start: int, end: int
) -> None:
    fill(cluster)
    wanted = PartitionRange("t", 0, start, end)
    directory = known_directory(cluster)
    assert len(list(directory.glob("*.log"))) > 4
    found = rows(cluster, wanted, limits(local_files=True))
    assert found == rows(cluster, wanted, limits(local_files=False))
    assert [row["offset"] for row in found] == list(range(start, end))
    assert from_files(directory, wanted) == end - start


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 80, bytes(4_000)])
def test_an_index_is_a_hint(cluster: bradbury.LocalCluster, content: bytes | None) -> None:
    fill(cluster)
    directory = known_directory(cluster)
    for index in directory.glob("*.index"):
        if content is None:
            index.unlink()
        else:
            index.write_bytes(content)
    assert from_files(directory, PartitionRange("t", 0, 777, 2_000)) == 2_000 - 777


def test_a_damaged_batch_and_all_behind_it_are_the_brokers_business(
    cluster: bradbury.LocalCluster,
) -> None:
    fill(cluster)
    directory = known_directory(cluster)
    third = sorted(directory.glob("*.log"))[2]
    content = bytearray(third.read_bytes())
    content[len(content) // 2] ^= 1
    third.write_bytes(content)
    everything = PartitionRange("t", 0, 0, RECORDS)
    shown = from_files(directory, everything)
    assert int(third.stem) <= shown < RECORDS
    with pytest.raises(KafkaError):
        rows(cluster, everything, limits(local_files=True))


def test_a_segment_that_is_gone_is_the_brokers_business(cluster: bradbury.LocalCluster) -> None:
    fill(cluster)
    directory = known_directory(cluster)
    second, third = sorted(directory.glob("*.log"))[1:3]
    second.rename(second.with_suffix(".gone"))
    assert from_files(directory, PartitionRange("t", 0, 0, RECORDS)) == int(second.stem)
    assert from_files(directory, PartitionRange("t", 0, int(third.stem) - 1, RECORDS)) == 0
    second.with_suffix(".gone").rename(second)


def test_gaps_of_compaction_are_read_from_the_broker(cluster: bradbury.LocalCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topic("t", 1, configs=SMALL_SEGMENTS)
    with bradbury.Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
        for number in range(20):  # each leaves a marker, which takes an offset
            with producer.transaction():
                producer.send("t", b"%d" % number)
    wanted = PartitionRange("t", 0, 0, 40)
    for level in ("read_uncommitted", "read_committed"):
        found = rows(cluster, wanted, limits(level, local_files=True))
        assert found == rows(cluster, wanted, limits(level, local_files=False))
        assert len(found) == 20


def test_what_was_aborted_is_not_shown(cluster: bradbury.LocalCluster) -> None:
    fill(cluster)
    with bradbury.Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
        producer.begin()
        producer.send("t", b"aborted").result(60)
        producer.abort()
    send(cluster, RECORDS, RECORDS + 50)
    wanted = PartitionRange("t", 0, 0, RECORDS + 52)
    found = rows(cluster, wanted, limits("read_committed", local_files=True))
    assert found == rows(cluster, wanted, limits("read_committed", local_files=False))
    assert len(found) == RECORDS + 50
    assert from_files(known_directory(cluster), wanted, read_committed=True) == RECORDS


def test_deleted_records_are_not_read_from_what_is_left_of_their_files(
    cluster: bradbury.LocalCluster,
) -> None:
    fill(cluster)
    with cluster.admin() as admin:
        admin.delete_records({KEY: 10})
    assert directory_of(cluster, start=9) is None
    assert directory_of(cluster, start=10) is not None
    with pytest.raises(DataLoss):
        rows(cluster, PartitionRange("t", 0, 0, 20), limits(local_files=True))


def test_files_of_another_cluster_or_topic_are_not_read(cluster: bradbury.LocalCluster) -> None:
    fill(cluster)
    directory = known_directory(cluster)
    metadata = directory / "partition.metadata"
    before = metadata.read_text()
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert directory_of(cluster) is None
    metadata.write_text(before)
    identity = directory.parent / "meta.properties"
    before = identity.read_text()
    identity.write_text(before.replace("cluster.id=", "cluster.id=x"))
    assert directory_of(cluster) is None
    identity.write_text(before)
    assert directory_of(cluster) == directory


def test_only_an_address_of_this_machine_is_here() -> None:
    assert _is_here("127.0.0.1")
    assert _is_here("localhost")
    assert not _is_here("203.0.113.77")
    assert not _is_here("no-such-host.invalid")


def test_an_end_behind_what_is_committed_shows_nothing_of_that(
    cluster: bradbury.LocalCluster,
) -> None:
    """As with endingOffsets that name an offset of an open transaction."""
    fill(cluster)
    with bradbury.Producer(cluster.bootstrap_servers, transactional_id="open") as producer:
        producer.begin()
        producer.send_batch("t", [b"not committed"] * 50).result(60)
        how = limits("read_committed", local_files=True)
        client = reading_client(cluster.bootstrap_servers, how.fetch)
        shown = 0
        with RangeReader(client, how) as reader, pytest.raises(DataLoss):
            for found in reader.read([PartitionRange("t", 0, 0, RECORDS + 50)]):
                shown += len(found)
        assert shown == RECORDS
        producer.abort()

"""Are ranges left out whose records are older than a filter wants?"""

from collections.abc import Iterator

import pytest
from ray.data.expressions import col

import bradbury
from bradbury.pipelines.ranges.partition_range import PartitionRange
from bradbury.pipelines.ranges.read_arguments import read_limits
from bradbury.pipelines.ranges.value_decoder import ValueDecoder
from bradbury.pipelines.ray_data.topic_datasource import TopicDatasource, TopicRead

TIMES = (1_000, 3_000, 2_000, 4_000)
"""Not in order, as producers may have it."""


@pytest.fixture(scope="module")
def datasource(cluster: bradbury.LocalCluster) -> Iterator[TopicDatasource]:
    servers = cluster.bootstrap_servers
    with cluster.admin() as admin:
        admin.create_topic("timed", 2, configs={"retention.ms": "-1"})
    with bradbury.Producer(servers) as producer:
        for time in TIMES:
            producer.send("timed", b"", partition=0, timestamp_ms=time).result(60)
        producer.send("timed", b"", partition=1, timestamp_ms=1_500).result(60)
    limits = read_limits("read_committed", "timed", poll_timeout_ms=9_000, fail_on_data_loss=True)
    read = TopicRead(
        bootstrap=servers,
        limits=limits,
        decoder=ValueDecoder("raw"),
        record_bytes=10.0,
        topic_ids={},
    )
    ranges = [PartitionRange("timed", 0, 0, 4), PartitionRange("timed", 1, 0, 1)]
    yield TopicDatasource(read, ranges, ["offset", "timestamp"])


@pytest.mark.parametrize(
    ("least", "pieces", "offsets"),
    [
        (2_000, ["timed-0[1, 4)"], [1, 2, 3]),
        (1_500, ["timed-0[1, 4)", "timed-1[0, 1)"], [1, 2, 3, 0]),
        (4_000, ["timed-0[3, 4)"], [3]),
        (4_001, [], []),  # one task, whose table has the columns
    ],
)
def test_tasks_begin_at_the_first_record_that_may_be_wanted(
    datasource: TopicDatasource, least: int, pieces: list[str], offsets: list[int]
) -> None:
    tasks = datasource.apply_predicate(col("timestamp") >= least).get_read_tasks(1)
    assert tasks
    assert all(table.column_names == ["offset", "timestamp"] for task in tasks for table in task())
    assert [name for task in tasks for name in task.metadata.input_files] == pieces
    found = [row["offset"] for task in tasks for table in task() for row in table.to_pylist()]
    assert found == offsets

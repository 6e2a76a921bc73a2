"""Do the rows of Ray Datasets get into topics, each once?"""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray.data
from confluent_kafka import Producer as ConfluentProducer
from ray.data._internal.execution.interfaces import TaskContext
from ray.data.block import Block

import bradbury
from bradbury.pipelines.ray_data.topic_datasink import TopicDatasink
from bradbury.protocol.errors import UnknownTopicOrPartition

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROWS = 2_000
BLOCKS = 4


@pytest.fixture
def topic(cluster: bradbury.Cluster) -> str:
    name = f"write-topic-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, 4)
    return name


@pytest.fixture
def dataset() -> ray.data.Dataset:
    """Rows 0 to ROWS, in several blocks."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    table = pa.table(
        {
            "number": pa.array(range(ROWS)),
            "name": pa.array([f"name-{number % 100}" for number in range(ROWS)]),
            "payload": pa.array([b"payload %d" % number for number in range(ROWS)]),
        }
    )
    return ray.data.from_arrow(table).repartition(BLOCKS)


def read(topic: str, **settings: Any) -> list[dict[str, Any]]:
    rows = bradbury.read_topic(topic, **settings).take_all()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def payloads(topic: str, **settings: Any) -> list[bytes]:
    return sorted(row["value"] for row in read(topic, **settings))


EXPECTED = sorted(b"payload %d" % number for number in range(ROWS))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_every_row_is_a_record(topic: str, dataset: ray.data.Dataset, guarantee: str) -> None:
    bradbury.write_topic(dataset, topic, value="payload", delivery_guarantee=guarantee)
    assert payloads(topic) == EXPECTED
    bradbury.write_topic(dataset, topic, value="payload", delivery_guarantee=guarantee)
    assert payloads(topic) == sorted(EXPECTED * 2), "called again, it is written again"


def test_keys_go_to_the_partitions_that_other_clients_choose(
    topic: str, dataset: ray.data.Dataset, cluster: bradbury.Cluster
) -> None:
    bradbury.write_topic(dataset, topic, value="payload", key="name", timestamp="number")
    ours = {row["key"]: row["partition"] for row in read(topic)}
    theirs: dict[bytes, int] = {}
    other = ConfluentProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in ours:
        other.produce(
            topic,
            b"",
            key,
            on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
        )
    assert other.flush(30) == 0
    assert ours == theirs
    assert len(ours) == 100


def test_timestamps_and_partitions_of_columns(topic: str, dataset: ray.data.Dataset) -> None:
    def more(table: pa.Table) -> pa.Table:
        numbers = table.column("number").to_numpy()
        table = table.append_column("where", pa.array(numbers % 3, pa.int32()))
        return table.append_column("when", pa.array(1_700_000_000_000 + numbers, pa.int64()))

    bradbury.write_topic(
        dataset.map_batches(more, batch_format="pyarrow"),
        topic,
        value="payload",
        partition="where",
        timestamp="when",
    )
    rows = read(topic)
    assert len(rows) == ROWS
    for row in rows:
        number = int(row["value"].split()[1])
        assert row["partition"] == number % 3
        assert row["timestamp"] == 1_700_000_000_000 + number


def test_whole_blocks_are_records_and_are_read_as_they_were(
    topic: str, dataset: ray.data.Dataset
) -> None:
    bradbury.write_topic(dataset, topic, value_encoder="arrow")
    assert len(read(topic)) <= BLOCKS
    found = bradbury.read_topic(topic, columns=["value"], value_decoder="arrow")
    key = [("number", "ascending")]
    assert pa.concat_tables(ray.get(found.to_arrow_refs())).sort_by(key) == pa.concat_tables(
        ray.get(dataset.to_arrow_refs())
    ).sort_by(key)


def test_large_blocks_are_cut_into_records_that_brokers_take(topic: str) -> None:
    table = pa.table({"text": pa.array([os.urandom(1_000) for _ in range(3_000)])})
    bradbury.write_topic(ray.data.from_arrow(table), topic, value_encoder="arrow")
    sizes = [len(row["value"]) for row in read(topic)]
    assert sum(sizes) > 3_000_000
    assert max(sizes) < 600_000
    found = bradbury.read_topic(topic, columns=["value"], value_decoder="arrow")
    assert found.count() == 3_000


# --- tasks that run again ------------------------------------------------------------------------


class ManyTasks(TopicDatasink):
    """A block a task."""

    @property
    def min_bytes_per_write(self) -> None:  # type: ignore[override]
        return None


def die_once(flag: Path) -> None:
    """As an executor that the kernel kills: nothing is cleaned up."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return
    os._exit(1)


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_a_task_that_dies_while_it_writes_leaves_nothing(
    topic: str, dataset: ray.data.Dataset, tmp_path: Path
) -> None:
    flag = tmp_path / "died"

    class DiesAtTheEnd(ManyTasks):
        def write(self, blocks: Iterable[Block], ctx: TaskContext) -> int:
            def then_die() -> Iterable[Block]:
                yield from blocks
                if ctx.task_idx == 1:
                    die_once(flag)

            return super().write(then_die(), ctx)

    write_with(DiesAtTheEnd, dataset, topic)
    assert flag.exists()
    assert payloads(topic) == EXPECTED


def test_a_task_that_dies_after_it_has_committed_does_not_write_again(
    topic: str, dataset: ray.data.Dataset, tmp_path: Path
) -> None:
    flag = tmp_path / "died"

    class DiesBehindTheCommit(ManyTasks):
        def write(self, blocks: Iterable[Block], ctx: TaskContext) -> int:
            count = super().write(blocks, ctx)
            if ctx.task_idx == 1:
                die_once(flag)
            return count

    write_with(DiesBehindTheCommit, dataset, topic)
    assert flag.exists()
    assert payloads(topic, isolation_level="read_uncommitted") == EXPECTED


def write_with(sink: type[TopicDatasink], dataset: ray.data.Dataset, topic: str) -> None:
    """write_topic, by another Datasink."""
    from bradbury.pipelines.ray_data import topic_datasink as module

    ordinary = module.TopicDatasink
    module.TopicDatasink = sink  # type: ignore[misc]
    try:
        bradbury.write_topic(dataset, topic, value="payload")
    finally:
        module.TopicDatasink = ordinary  # type: ignore[misc]


def test_what_tasks_had_done_is_not_kept_behind_the_write(
    topic: str, dataset: ray.data.Dataset, cluster: bradbury.Cluster
) -> None:
    bradbury.write_topic(dataset, topic, value="payload")
    with cluster.admin() as admin:
        assert not [one for one in admin.list_groups() if one.group_id.startswith("ray-data-")]


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"delivery_guarantee": "most"}, "use exactly-once or at-least-once"),
        ({"value_encoder": "json"}, "use raw or arrow"),
        ({"value_encoder": "arrow", "key": "name"}, "cannot have a key by row"),
        ({"producer_config": {"transactional_id": "x"}}, "which write_topic sets itself"),
        ({"producer_config": {"compression.type": "lz4"}}, "did you mean 'compression_type'"),
        ({"key_field": "name"}, "key_field is an argument of write_kafka; use key"),
        ({"value": "nothing"}, "there is no column 'nothing'; there are number, name, payload"),
        ({}, "there is no column 'value'"),
    ],
)
def test_what_cannot_be_is_refused(
    topic: str, dataset: ray.data.Dataset, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        bradbury.write_topic(dataset, topic, **settings)
    assert payloads(topic) == []
    with pytest.raises(TypeError, match="dataset is a list; use a ray.data.Dataset"):
        bradbury.write_topic([1], topic)  # type: ignore[arg-type]


@pytest.mark.long  # waits as long as a new topic may be unknown; tests/clients has it
def test_a_topic_that_there_is_not(dataset: ray.data.Dataset, cluster: bradbury.Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="bradbury topics create nowhere"):
        bradbury.write_topic(dataset, "nowhere", value="payload")


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_missing_topic_is_created_where_the_producers_may(
    dataset: ray.data.Dataset, guarantee: str
) -> None:
    topic = f"write-topic-{uuid.uuid4().hex[:8]}"
    bradbury.write_topic(
        dataset,
        topic,
        value="payload",
        delivery_guarantee=guarantee,
        producer_config={"allow_auto_create_topics": True},
    )
    assert payloads(topic) == EXPECTED


def test_the_column_of_partitions_may_have_any_name(topic: str, dataset: ray.data.Dataset) -> None:
    """Not even that of a column which means something else in a record."""
    rows = dataset.map_batches(
        lambda batch: {"payload": batch["payload"], "timestamp": batch["number"] % 4}
    )
    bradbury.write_topic(rows, topic, value="payload", partition="timestamp")
    found = read(topic)
    assert all(row["partition"] == int(row["value"].split()[1]) % 4 for row in found)
    assert min(row["timestamp"] for row in found) > 1_600_000_000_000, "the time of the write"

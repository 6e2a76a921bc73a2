"""Do Datasets without an end have every record once, whatever dies meanwhile?"""

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
import ray.data

import bradbury
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.protocol.errors import ProducerFenced

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    ray.data.DataContext.get_current().enable_progress_bars = False


@pytest.fixture
def topic(cluster: bradbury.Cluster) -> str:
    name = f"continuous-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, 4)
    return name


def produce(topic: str, numbers: range) -> None:
    with bradbury.Producer() as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % 4)


def continuous(topic: str, **settings: Any) -> ray.data.Dataset:
    settings = {"columns": ["partition", "offset", "value"], **settings}
    return bradbury.read_topic(topic, trigger="continuous", group_id=topic, **settings)


def batches(dataset: ray.data.Dataset) -> Iterator[pa.Table]:
    return bradbury.committed_batches(dataset, batch_size=None, batch_format="pyarrow")


def numbers_of(table: pa.Table) -> list[int]:
    return [int(value) for value in table.column("value").to_pylist()]


def read_until(found: Iterator[pa.Table], count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += numbers_of(next(found))
    return numbers


def lag(cluster: bradbury.Cluster, group: str) -> dict[Any, int]:
    with cluster.admin() as admin:
        committed = admin.group_offsets(group)
    return {key: one.offset for key, one in sorted(committed.items())}


def test_what_is_produced_comes_out_and_is_committed(topic: str, cluster: bradbury.Cluster) -> None:
    produce(topic, range(100))
    with closing(batches(continuous(topic))) as found:
        assert sorted(read_until(found, 100)) == list(range(100))
        produce(topic, range(100, 200))
        assert sorted(read_until(found, 100)) == list(range(100, 200))
        produce(topic, range(200, 204))
        assert sorted(read_until(found, 4)) == list(range(200, 204))
    assert set(lag(cluster, topic).values()) <= {50, 51}, "the last batch was not asked behind"
    committed = sum(lag(cluster, topic).values())
    with closing(batches(continuous(topic))) as found:
        assert len(read_until(found, 204 - committed)) == 204 - committed, "goes on where it was"


@pytest.mark.long  # how Ray Data is used, and no promise
def test_actors_of_a_pipeline_live_on_from_batch_to_batch(topic: str) -> None:
    class Model:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, batch: pa.Table) -> pa.Table:
            self.calls += 1
            calls = pa.array([self.calls] * len(batch), pa.int64())
            return batch.append_column("calls", calls)

    dataset = continuous(topic).map_batches(
        Model, batch_format="pyarrow", batch_size=None, compute=ray.data.ActorPoolStrategy(size=1)
    )
    with closing(batches(dataset)) as found:
        for call in (1, 2, 3):
            produce(topic, range(call, call + 1))
            assert next(found).column("calls").to_pylist() == [call]


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_a_worker_that_dies_doubles_nothing(topic: str, tmp_path: Path) -> None:
    flag = tmp_path / "died"

    def dies_once(batch: pa.Table) -> pa.Table:
        try:
            flag.touch(exist_ok=False)
        except FileExistsError:
            return batch
        os._exit(1)

    produce(topic, range(400))
    dataset = continuous(topic).map_batches(dies_once, batch_format="pyarrow", batch_size=None)
    with closing(batches(dataset)) as found:
        assert sorted(read_until(found, 400)) == list(range(400))
        produce(topic, range(400, 500))
        assert sorted(read_until(found, 100)) == list(range(400, 500))
    assert flag.exists()


@ray.remote(num_cpus=0, max_retries=0)
def pipeline(topic: str, output: str, guarantee: str) -> None:
    """As a driver of its own: it ends when its process is killed."""

    def even(batch: pa.Table) -> pa.Table:
        return batch.filter([number % 2 == 0 for number in numbers_of(batch)])

    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = continuous(topic).map_batches(even, batch_format="pyarrow", batch_size=None)
    bradbury.write_topic(dataset, output, value="value", delivery_guarantee=guarantee)


@pytest.mark.parametrize(
    "guarantee", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.long)]
)
def test_a_killed_driver_goes_on_with_the_next_record(
    topic: str, cluster: bradbury.Cluster, guarantee: str
) -> None:
    output = f"{topic}-out"
    with cluster.admin() as admin:
        admin.create_topic(output, 1)
    written: list[int] = []
    with bradbury.Consumer(isolation_level="read_committed") as consumer:
        consumer.assign([(output, 0)])
        consumer.seek_to_beginning((output, 0))
        for life in range(3):
            running = pipeline.remote(topic, output, guarantee)
            produce(topic, range(life * 300, life * 300 + 300))
            while len(set(written)) < (life + 1) * 150 - 40:
                written += numbers_of(consumer.poll(1_000))
            produce(topic, range(900 + life * 10, 910 + life * 10))  # on its way when it dies
            ray.cancel(running, force=True)
            with pytest.raises(ray.exceptions.RayError):
                ray.get(running)
        running = pipeline.remote(topic, output, guarantee)
        expected = list(range(0, 930, 2))
        while set(written) != set(expected):
            written += numbers_of(consumer.poll(1_000))
        ray.cancel(running, force=True)
        if guarantee == "exactly-once":
            assert sorted(written) == expected


@pytest.mark.long  # tests/ray/test_producer_actor_transactions.py fences, too
def test_of_two_drivers_the_later_one_writes(topic: str, cluster: bradbury.Cluster) -> None:
    output = f"{topic}-out"
    with cluster.admin() as admin:
        admin.create_topic(output, 1)
    with bradbury.Consumer(isolation_level="read_committed") as consumer:
        consumer.assign([(output, 0)])
        consumer.seek_to_beginning((output, 0))
        written: list[int] = []
        first = pipeline.remote(topic, output, "exactly-once")
        produce(topic, range(20))
        while len(written) < 10:
            written += numbers_of(consumer.poll(1_000))
        second = pipeline.remote(topic, output, "exactly-once")
        number = 20
        while ray.wait([first], timeout=0)[1]:  # its next transaction after that is refused
            produce(topic, range(number, number + 2))
            number += 2
            written += numbers_of(consumer.poll(500))
        with pytest.raises(ProducerFenced, match="fenced as the writer of group"):
            ray.get(first)
        while len(written) < number // 2:
            written += numbers_of(consumer.poll(1_000))
        ray.cancel(second, force=True)
    assert sorted(written) == list(range(0, number, 2))


def test_partitions_that_are_added_are_read(topic: str, cluster: bradbury.Cluster) -> None:
    with closing(batches(continuous(topic))) as found:
        produce(topic, range(8))
        read_until(found, 8)
        with cluster.admin() as admin:
            admin.create_partitions(topic, 5)
        with bradbury.Producer() as producer:
            producer.send(topic, "77", partition=4)
        assert read_until(found, 1) == [77]


def test_records_that_are_gone_are_told(topic: str, cluster: bradbury.Cluster) -> None:
    produce(topic, range(80))
    with closing(batches(continuous(topic))) as found:
        read_until(found, 80)
        produce(topic, range(80, 84))
        next(found)  # commits
    with cluster.admin() as admin:
        produce(topic, range(84, 120))
        admin.delete_records({(topic, 0): 28})
    with (
        pytest.raises(DataLoss, match="set fail_on_data_loss to false"),
        closing(batches(continuous(topic))) as found,
    ):
        next(found)
    with closing(batches(continuous(topic, fail_on_data_loss=False))) as found:
        assert 116 in read_until(found, 28)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"trigger": "always"}, "use 'once' or 'continuous'"),
        ({"trigger": "once"}, "group_id needs trigger='continuous'"),
        ({"end_offset": 5}, "has no end; leave end_offset out"),
        ({"override_num_blocks": 5}, "leave override_num_blocks out, and use concurrency"),
    ],
)
def test_arguments_that_cannot_be(topic: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        bradbury.read_topic(topic, **{"trigger": "continuous", "group_id": "g", **settings})


def test_what_cannot_be_committed_is_refused(topic: str) -> None:
    produce(topic, range(4))
    dataset = continuous(topic)
    ended = bradbury.read_topic(topic)
    ungrouped = bradbury.read_topic(topic, trigger="continuous")
    tolerant = continuous(topic)
    tolerant.context.max_errored_blocks = 1
    for refused, text in [
        (dataset.sort("offset"), "Sort cannot be applied to a continuous Dataset"),
        (dataset.union(ended), "Union cannot be applied"),
        (ended, "read it with trigger='continuous'"),
        (ungrouped, "give read_topic a group_id"),
        (tolerant, "set it to 0"),
        (dataset.drop_columns(["offset"]), "there is no column 'offset'"),
        (dataset.flat_map(lambda row: [row, row]), "none may become several"),
    ]:
        with pytest.raises(ValueError, match=text), closing(batches(refused)) as found:
            next(found)
    with pytest.raises(ValueError, match="give read_topic a group_id"):
        bradbury.write_topic(ungrouped, topic)

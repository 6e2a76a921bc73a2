"""Does a training loop get every record once, wherever it was stopped?"""

import itertools
import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bradbury

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROWS = 5_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def topic(cluster: bradbury.Cluster) -> str:
    """ROWS JSON objects; also transactions, whose markers take offsets."""
    name = f"samples-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, PARTITIONS)
    with bradbury.Producer(transactional_id=name) as producer:
        for start in range(0, ROWS, 500):
            with producer.transaction():
                for number in range(start, start + 500):
                    value = json.dumps({"number": number, "vector": [number, 0.5]})
                    producer.send(name, value, partition=number % PARTITIONS)
    return name


SCHEMA = pa.schema([("number", pa.int64()), ("vector", pa.list_(pa.float64()))])


def dataset(topic: str, **options: Any) -> bradbury.TopicDataset:
    options = {"columns": ["value"], "value_decoder": "json", "value_schema": SCHEMA, **options}
    return bradbury.TopicDataset(topic, **options)


def numbers(batches: Iterator[Any]) -> list[int]:
    found: list[int] = []
    for each in batches:
        value = each["value"]["number"]
        found += [value] if isinstance(value, int) else list(value)
    return found


def test_batches_are_arrays(topic: str) -> None:
    first, *_, last = dataset(topic, batch_size=512)
    assert first["value"]["number"].shape == (512,)
    assert first["value"]["vector"].shape == (512, 2)
    assert (first["value"]["vector"][:, 0] == first["value"]["number"]).all()
    assert len(last["value"]["number"]) == ROWS % 512
    columns = next(iter(bradbury.TopicDataset(topic, batch_size=10)))
    assert columns["offset"].dtype == np.int64
    assert isinstance(columns["value"][0], bytes)
    table = next(iter(bradbury.TopicDataset(topic, batch_size=10, batch_format="pyarrow")))
    assert isinstance(table, pa.Table)
    assert len(list(dataset(topic, batch_size=512, drop_last=True))) == ROWS // 512


def test_rows_come_one_by_one_in_the_order_of_each_partition(topic: str) -> None:
    found = numbers(iter(dataset(topic)))
    assert sorted(found) == list(range(ROWS))
    for partition in range(PARTITIONS):
        mine = [number for number in found if number % PARTITIONS == partition]
        assert mine == sorted(mine)


@pytest.mark.parametrize("batch_size", [None, 1, 64, 700])
@pytest.mark.parametrize("shuffle_window", [0, 300, 10 * ROWS])
def test_stopped_anywhere_it_goes_on_with_the_next_row(
    topic: str, batch_size: int | None, shuffle_window: int
) -> None:
    options = {"batch_size": batch_size, "shuffle_window": shuffle_window, "seed": 3}
    whole = numbers(iter(dataset(topic, **options)))
    assert sorted(whole) == list(range(ROWS))
    chance = random.Random(7)
    found: list[int] = []
    state = dataset(topic, **options).state_dict()
    batches = ROWS if batch_size is None else -(-ROWS // batch_size)
    for _ in range(4):
        one = dataset(topic, **options)
        one.load_state_dict(json.loads(json.dumps(state)))
        found += numbers(itertools.islice(one, chance.randrange(batches // 4 + 1)))
        state = one.state_dict()
    last = dataset(topic, **options)
    last.load_state_dict(state)
    assert found + numbers(iter(last)) == whole
    ended = dataset(topic, **options)
    ended.load_state_dict(last.state_dict())
    assert numbers(iter(ended)) == [], "all was handed out"
    assert len(numbers(iter(ended))) == ROWS, "and then it begins again"


def test_a_shuffle_is_decided_by_seed_and_epoch(topic: str) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        one = dataset(topic, batch_size=100, shuffle_window=1_000, seed=seed)
        one.set_epoch(epoch)
        return numbers(iter(one))

    plain = numbers(iter(dataset(topic)))
    orders = [order(1, 0), order(2, 0), order(1, 1), plain]
    assert order(1, 0) == orders[0]
    for one, other in itertools.combinations(orders, 2):
        assert one != other
    for place, number in enumerate(orders[0]):
        assert abs(place - plain.index(number)) < 1_000, "within the window"


@pytest.mark.parametrize("shuffle_window", [0, 500])
def test_ranks_share_the_records(topic: str, shuffle_window: int) -> None:
    for world_size in (2, 5):
        shares = [
            numbers(
                iter(
                    dataset(topic, rank=rank, world_size=world_size, shuffle_window=shuffle_window)
                )
            )
            for rank in range(world_size)
        ]
        assert sorted(itertools.chain(*shares)) == list(range(ROWS))


def test_a_stream_goes_on_with_what_comes(cluster: bradbury.Cluster) -> None:
    name = f"stream-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, 2)
    with bradbury.Producer() as producer:
        stream = iter(bradbury.TopicDataset(name, follow=True, columns=["value"]))
        one = bradbury.TopicDataset(name, follow=True, columns=["value"])
        stream = iter(one)
        found = []
        for number in range(3):
            producer.send(name, str(number), partition=number % 2).result()
            found.append(next(stream)["value"])
        assert found == [b"0", b"1", b"2"]
        producer.send(name, "3", partition=1).result()
        next_one = bradbury.TopicDataset(name, follow=True, columns=["value"])
        next_one.load_state_dict(one.state_dict())
        assert next(iter(next_one))["value"] == b"3"
        with pytest.raises(ValueError, match="too few"):
            next(iter(bradbury.TopicDataset(name, follow=True, rank=0, world_size=3)))


def test_a_state_of_something_else_is_refused(topic: str) -> None:
    state = dataset(topic, shuffle_window=10).state_dict()
    for options, text in (
        ({"shuffle_window": 20}, "shuffle_window=10"),
        ({"shuffle_window": 10, "seed": 1}, "seed=0"),
    ):
        with pytest.raises(ValueError, match=text):
            dataset(topic, **options).load_state_dict(state)
    with pytest.raises(ValueError, match="not a state"):
        dataset(topic).load_state_dict({})
    other_rank = dataset(topic, shuffle_window=10, rank=1, world_size=2)
    other_rank.load_state_dict(state)
    with pytest.raises(ValueError, match="shard 0 of 1"):
        iter(other_rank)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "at least 1"),
        ({"batch_format": "pyarrow"}, "give a batch_size"),
        ({"batch_size": 1, "batch_format": "pandas"}, "numpy or pyarrow"),
        ({"shuffle_window": -1}, "use 0 for none"),
        ({"shuffle_window": 5, "follow": True}, "needs an end"),
        ({"end_offset": 5, "follow": True}, "no end"),
        ({"rank": 1}, "together"),
        ({"rank": 2, "world_size": 2}, "rank 2 is not in range for world_size 2"),
        ({"isolation_level": "committed"}, "read_uncommitted"),
        ({"value_decoder": "arrow"}, "use read_topic"),
        ({"columns": ["number"]}, "there is no column"),
    ],
)
def test_what_cannot_be_is_refused(topic: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        bradbury.TopicDataset(topic, **options)


PROGRAM = """
import itertools, json, os, sys
import bradbury

topic, servers, path, stop = *sys.argv[1:4], int(sys.argv[4])
samples = bradbury.TopicDataset(
    topic, columns=["partition", "offset"], batch_size=100, shuffle_window=400,
    bootstrap_servers=servers,
)
if os.path.exists(path + ".state"):
    samples.load_state_dict(json.load(open(path + ".state")))
with open(path, "a") as log:
    for step, batch in enumerate(samples):
        if step == stop:
            os.kill(os.getpid(), 9)
        rows = list(zip(batch["partition"].tolist(), batch["offset"].tolist()))
        with open(path + ".new", "w") as new:
            json.dump(samples.state_dict(), new)
        print(json.dumps(rows), file=log, flush=True)
        os.replace(path + ".new", path + ".state")
"""


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_a_killed_training_run_goes_on(
    topic: str, cluster: bradbury.Cluster, tmp_path: Any
) -> None:
    path = str(tmp_path / "rows")
    for stop in (7, 1, 13, 1_000):
        arguments = [sys.executable, "-c", PROGRAM, topic, cluster.bootstrap_servers, path]
        ended = subprocess.run([*arguments, str(stop)], check=False)
        assert ended.returncode in (-9, 0)
    rows = [tuple(row) for line in open(path) for row in json.loads(line)]
    assert len(rows) == len(set(rows)) == ROWS


@pytest.mark.deep
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_torchdata_goes_on_where_it_was(
    topic: str, cluster: bradbury.Cluster, workers: int
) -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="needs [torch]")
    found: list[int] = []
    state = None
    for stop in (3, 11, ROWS):
        one = bradbury.TopicDataset(
            topic,
            columns=["offset", "partition"],
            batch_size=64,
            shuffle_window=500,
            bootstrap_servers=cluster.bootstrap_servers,
        )
        loader = loaders.StatefulDataLoader(one, batch_size=None, num_workers=workers)
        if state is not None:
            loader.load_state_dict(state)
        for step, batch in enumerate(loader):
            places = zip(batch["partition"].tolist(), batch["offset"].tolist(), strict=True)
            found += [partition * 1_000_000 + offset for partition, offset in places]
            if step == stop:
                state = loader.state_dict()
                break
    assert len(found) == len(set(found)) == ROWS

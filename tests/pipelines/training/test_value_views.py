"""Large values without copies: are views what was sent, and do they stay what they are?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bradbury

SIZE = 100_000
VALUES = [bytes([number]) * (SIZE + number) for number in range(40)]
SMALL_SEGMENTS = {"segment.bytes": "1000000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(str(tmp_path_factory.mktemp("data"))) as cluster:
        yield cluster


@pytest.fixture(params=["none", "lz4"])
def topic(cluster: bradbury.LocalCluster, request: pytest.FixtureRequest) -> str:
    """VALUES, then one of 3 bytes, an empty one and a null one, in several segments."""
    name = f"images-{request.param}"
    with cluster.admin() as admin:
        if name not in admin.list_topics():
            admin.create_topic(name, 1, configs=SMALL_SEGMENTS)
            with bradbury.Producer(
                cluster.bootstrap_servers, compression_type=request.param
            ) as producer:
                for value in [*VALUES, b"abc", b"", None]:
                    producer.send(name, value)
    return name


def dataset(cluster: bradbury.LocalCluster, topic: str, **options: Any) -> bradbury.TopicDataset:
    options = {"columns": ["offset", "value"], "value_views": True, **options}
    return bradbury.TopicDataset(topic, bootstrap_servers=cluster.bootstrap_servers, **options)


@pytest.mark.parametrize("local_files", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 7, 1_000])
def test_views_are_what_was_sent(
    cluster: bradbury.LocalCluster, topic: str, local_files: bool, batch_size: int | None
) -> None:
    views: list[Any] = []
    for batch in dataset(cluster, topic, local_files=local_files, batch_size=batch_size):
        views += [batch["value"]] if batch_size is None else list(batch["value"])
    assert [None if view is None else view.tobytes() for view in views] == [
        *VALUES,
        b"abc",
        b"",
        None,
    ]
    assert {view.dtype for view in views if view is not None} == {np.dtype(np.uint8)}
    with pytest.raises(ValueError, match="read-only"):
        views[0][0] = 1


def test_a_table_has_them_as_binary_view(cluster: bradbury.LocalCluster, topic: str) -> None:
    tables = list(dataset(cluster, topic, batch_size=20, batch_format="pyarrow"))
    assert tables[0].schema.field("value").type == pa.binary_view()
    whole = pa.concat_tables(tables)
    assert whole["value"].to_pylist() == [*VALUES, b"abc", b"", None]
    assert whole["value"].cast(pa.binary()).to_pylist()[:40] == VALUES


def test_a_shuffle_moves_views(cluster: bradbury.LocalCluster, topic: str) -> None:
    batches = list(dataset(cluster, topic, batch_size=10, shuffle_window=25, seed=3))
    offsets = [int(offset) for batch in batches for offset in batch["offset"]]
    views = [view for batch in batches for view in batch["value"]]
    assert offsets != sorted(offsets) == list(range(43))
    for offset, view in zip(offsets, views, strict=True):
        if offset < 40:
            assert view.tobytes() == VALUES[offset]


def test_by_local_files_they_are_on_the_mapped_segments(cluster: bradbury.LocalCluster) -> None:
    """And stay so when retention has removed the segment."""
    with cluster.admin() as admin:
        admin.create_topic("mapped", 1, configs=SMALL_SEGMENTS)
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for value in VALUES:
            producer.send("mapped", value)
    (directory,) = Path(cluster.data_dir).rglob("mapped-0")
    batches = list(dataset(cluster, "mapped", local_files=True, batch_size=8))
    views = [view for batch in batches for view in batch["value"]]
    mapped = Path("/proc/self/maps").read_text()
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 3
    assert all(str(segment) in mapped for segment in segments)
    with cluster.admin() as admin:
        admin.delete_records({bradbury.TopicPartition("mapped", 0): 40})
    for segment in segments[:-1]:
        segment.unlink(missing_ok=True)
    assert [view.tobytes() for view in views] == VALUES
    del batches, views
    assert str(directory) not in Path("/proc/self/maps").read_text()


def test_values_that_are_decoded_are_no_views(cluster: bradbury.LocalCluster, topic: str) -> None:
    with pytest.raises(ValueError, match="leave value_decoder out"):
        dataset(cluster, topic, value_decoder="utf8")

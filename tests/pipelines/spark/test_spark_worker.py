"""What do Spark's Python processes keep out of the garbage collection that follows each call?"""

import gc
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

import bradbury
from bradbury.pipelines.spark.source import BradburyDataSource
from bradbury.pipelines.spark.tasks import worker
from bradbury.pipelines.spark.tasks.arrow import row_schema


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has just begun."""
    monkeypatch.setattr(worker, "_frozen", None)
    monkeypatch.setattr(worker, "_is_kept", False)
    yield
    gc.unfreeze()


def test_what_is_loaded_is_frozen_once_and_again_when_more_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frozen objects may be freed, by other threads too: the counts are told apart with room."""
    worker.freeze()
    first = gc.get_freeze_count()
    assert first > 10_000
    kept: list[list[int]] = [[] for _ in range(100_000)]
    worker.freeze()
    assert gc.get_freeze_count() < first + len(kept) / 4
    monkeypatch.setitem(sys.modules, "bradbury-of-a-test", ModuleType("bradbury-of-a-test"))
    worker.freeze()
    assert gc.get_freeze_count() > first + len(kept) / 2


def test_a_process_that_plans_is_frozen_from_its_second_query_on(
    cluster: bradbury.LocalCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    schema = row_schema(include_headers=False)
    for number in range(3):
        BradburyDataSource(options).streamWriter(schema, False)
        assert (gc.get_freeze_count() > 0) == (number > 0)

"""Do streams with state outlive their executors? The queries of examples/stateful_streams.py, on Ray.

What they write in the end is compared with a batch over the same input, as in the example, which
kills the driver instead. So does streams/test_driver_on_ray, on Ray.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import ray
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import bradbury
from bradbury.pipelines.spark.session import stop_spark

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.slow, pytest.mark.deep]

EXAMPLE = Path(bradbury.__file__).parent / "examples" / "stateful_streams.py"


@pytest.fixture(scope="module")
def streams() -> Iterator[ModuleType]:
    """The example, whose functions go to executors by value."""
    spec = importlib.util.spec_from_file_location("stateful_streams", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Of a cluster of this module's own: the example's topics are of it."""
    with bradbury.local() as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="module")
def spark(ray_cluster: str, servers: str, streams: ModuleType) -> Iterator[SparkSession]:
    session = bradbury.spark(
        "bradbury-state-test",
        executor_cores=2,
        executor_memory="1g",
        short_lived=True,
        bootstrap=servers,
        configs={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": streams.STATE_STORE,
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_spark()


def working_executors() -> list[psutil.Process]:
    """The JVMs of this Ray session that run tasks in Python workers of their own."""
    ray_session = ray._private.worker._global_node.get_session_dir_path()  # type: ignore[union-attr]
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if (
                process.name() == "java"
                and any(ray_session in argument for argument in process.cmdline())
                and any(child.cmdline()[-1:] == ["pyspark.worker"] for child in process.children())
            ):
                found.append(process)
    return found


def test_executors_that_are_killed_take_no_state_with_them(
    spark: SparkSession, streams: ModuleType, servers: str, tmp_path: Path
) -> None:
    streams.fill(servers)
    queries = streams.start(spark, tmp_path)
    at = dict.fromkeys(streams.INPUTS, streams.Progress(0, 0, 0))
    kills = 0
    deadline = time.monotonic() + 600
    while any(query.isActive for query in queries):
        assert time.monotonic() < deadline, [query.status for query in queries]
        now = streams.progress(servers, tmp_path)
        if kills < 2 and all(
            one.is_under_way and one.read > at[name].read for name, one in now.items()
        ):
            executors = working_executors()
            for executor in executors:
                os.kill(executor.pid, signal.SIGKILL)
            if executors:
                kills, at = kills + 1, now
        time.sleep(0.5)
    assert [query.exception() for query in queries] == [None] * len(queries)
    assert kills == 2
    found = streams.differences(spark, servers)
    assert set(found) == set(streams.INPUTS)
    for topic, (count, missing, more) in found.items():
        assert count > 0, topic
        assert (topic, missing, more) == (topic, 0, 0)

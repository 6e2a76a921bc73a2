"""Do queries that run all the time, with state, go on after a kill -9 as if there had been none?

Windows, an inner join of two streams, timers and expiring states of transformWithState
(standing_queries). Their process, the JVM with it, is killed twice while each of them has committed
batches, written records, and has more to read. What they have written in the end, also of records
that came while the third process ran, is compared with a batch over the same topics.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bradbury
from bradbury.examples.stateful_streams import Progress, progress as progress_of, written
from bradbury.pipelines.spark.session import local_session
from bradbury.tests.pipelines.streams import standing_queries as queries

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]  # long: four sessions, kills

ROOT = Path(bradbury.__file__).resolve().parent
PATIENCE_SECONDS = 300
SMALL, LARGE = 20, 200


@pytest.fixture
def servers() -> Iterator[str]:
    """Of a cluster of this test's own, with all topics."""
    with bradbury.local() as running:
        servers = running.bootstrap_servers
        with bradbury.Admin(servers) as admin:
            for topic in (*queries.SCHEMAS, *queries.INPUTS):
                # By the time of their records they are too old to be kept.
                admin.create_topic(topic, queries.PARTITIONS, configs={"retention.ms": "-1"})
        yield servers


@contextmanager
def running(servers: str, folder: Path, per_batch: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process of the queries, killed with all it started at the end."""
    driver = subprocess.Popen(
        [sys.executable, "-m", queries.__name__, servers, str(folder), str(per_batch)],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".path")},
        start_new_session=True,
    )
    try:
        yield driver
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def waiting_visitors(servers: str) -> set[str]:
    """Those who have come, and whose timer has not fired."""
    seen = written(servers, "seen")
    return {key for key, _ in seen} - {key for key, value in seen if value == "timer"}


def as_compared(servers: str, topic: str) -> Counter[tuple[str, str]]:
    return Counter((key, value.partition("/")[0]) for key, value in written(servers, topic))


def test_they_write_what_a_batch_makes_of_the_same_topics(servers: str, tmp_path: Path) -> None:
    def progress() -> dict[str, Progress]:
        return progress_of(servers, tmp_path, queries.INPUTS)

    with bradbury.Producer(servers) as producer:
        records = queries.Input(producer)
        records.send(queries.FIRST_PART)
        at = progress()
        for _ in range(2):
            before = at
            with running(servers, tmp_path, SMALL) as driver:
                wait_until(
                    lambda before=before: (
                        all(
                            one.is_under_way and one.read > before[name].read
                            for name, one in progress().items()
                        )
                        and waiting_visitors(servers)
                    ),
                    driver,
                )
            at = progress()
            for name, one in at.items():
                assert one.is_under_way, (name, one)
                assert one.read > before[name].read, (name, one, before[name])
            assert waiting_visitors(servers)

        with running(servers, tmp_path, LARGE) as driver:
            wait_until(lambda: has_read_all(progress()), driver)
            records.send(queries.SECOND_PART)
            wait_until(lambda: has_read_all(progress()), driver)
            records.end()
            expected = batch(servers)
            wait_until(
                lambda: all(
                    not rows - as_compared(servers, name) for name, rows in expected.items()
                ),
                driver,
            )
    assert set(expected) == set(queries.INPUTS)
    for name, rows in expected.items():
        assert rows.total() > 0, name
        there = as_compared(servers, name)
        assert (name, rows - there, there - rows) == (name, Counter(), Counter())

    # Fifteen visits before the first kill, the next one long after the second.
    assert ("visitor-0", "16/1") in written(servers, "seen")


def batch(servers: str) -> dict[str, Counter[tuple[str, str]]]:
    spark: SparkSession = local_session(master="local[2]", bootstrap=servers)
    spark.sparkContext.setLogLevel("OFF")
    try:
        return {name: Counter(rows) for name, rows in queries.computed_by_a_batch(spark).items()}
    finally:
        spark.stop()


def has_read_all(progress: dict[str, Progress]) -> bool:
    return all(one.read == one.records for one in progress.values())


def wait_until(condition: Callable[[], object], driver: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert driver.poll() is None, "the queries have ended"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.4)

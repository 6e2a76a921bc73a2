"""One in-process cluster, and one local Spark session, for the tests of this folder.

The session is made on first use and ends before a session on Ray begins: a process has one.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bradbury
from bradbury.pipelines.spark.session import local_session


@pytest.fixture(scope="session")
def cluster() -> Iterator[bradbury.LocalCluster]:
    soon = {"log.retention.check.interval.ms": 50, "log.cleaner.backoff.ms": 50}
    with bradbury.local(config=soon) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(cluster: bradbury.LocalCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[bradbury.Admin]:
    with bradbury.Admin(bootstrap) as client:
        yield client


_numbers = count()


@pytest.fixture
def new_topic(admin: bradbury.Admin) -> Callable[..., str]:
    """Makes a topic and gives its name."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        admin.create_topic(
            name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        return name

    return create


@pytest.fixture(scope="session")
def producer(bootstrap: str) -> Iterator[bradbury.Producer]:
    with bradbury.Producer(bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def spark(bootstrap: str) -> Iterator[SparkSession]:
    """Tasks that fail are run again, four times at most, as on a cluster."""
    session = local_session(master="local[2,4]", bootstrap=bootstrap)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """Properties of an Iceberg catalog of this test's own."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }

"""One in-process cluster for these tests; topics of their own."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

import bradbury
from bradbury.clients.wire.cluster_client import ClusterClient
from bradbury.tests.support.groups.group_members import Make, group_of


@pytest.fixture(scope="session")
def cluster() -> Iterator[bradbury.LocalCluster]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "auto.create.topics.enable": "false",
    }
    with bradbury.local(config=config) as running:
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


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Make]:
    with group_of(bootstrap) as make:
        yield make


@pytest.fixture
def unknown_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there is given up after 0.3 s instead of 5; test_producer waits for all."""
    monkeypatch.setitem(ClusterClient.topic.__kwdefaults__, "grace_ms", 300)

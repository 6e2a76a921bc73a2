"""A cluster in the test process: real sockets, real files, no Ray."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.tests.support.wire.raw_client import RawClient

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    with bradbury.local() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    """A fresh topic with two partitions."""
    name = f"live-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    return name


@pytest.fixture
def client(servers: str) -> Iterator[RawClient]:
    with RawClient(servers) as client:
        yield client

"""A source of its own for each module of mirrors' tests, and names that no other test has."""

from collections.abc import Iterator
from itertools import count

import pytest

import bradbury

_aliases = count()


@pytest.fixture(scope="module")
def source() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as running:
        yield running


@pytest.fixture
def alias() -> str:
    return f"west-{next(_aliases)}"


@pytest.fixture
def topic(source: bradbury.LocalCluster, alias: str) -> str:
    name = f"flights-{alias}"
    with source.admin() as admin:
        admin.create_topic(name, 3, configs={"retention.ms": "86400000"})
    return name

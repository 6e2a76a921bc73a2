"""pytest fixtures for tests of programs that use Bradbury; pytest finds them once it is installed.

    bradbury_cluster   a LocalCluster, one per test run: real brokers and sockets, no Ray
    bradbury_topic     the name of a topic that no other test has; not created yet

Loaded at every start of pytest in the environment, so nothing is imported here but pytest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..launch.local import LocalCluster

MOST_NAME = 200
"""A topic's name has at most 249 characters, and its directory's name a suffix."""

_numbers = count(1)


@pytest.fixture(scope="session")
def bradbury_cluster() -> Iterator[LocalCluster]:
    """A cluster in this process, started by the first test that asks, its data thrown away."""
    from ..launch.local import local

    with local() as cluster:
        yield cluster


@pytest.fixture
def bradbury_topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own, after the test's name."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")
    return f"{name[:MOST_NAME]}-{next(_numbers)}"

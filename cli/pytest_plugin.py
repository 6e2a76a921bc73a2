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
"""Maximum length here: a topic name has at most 249 characters, and its directory a suffix."""

_numbers = count(1)


@pytest.fixture(scope="session")
def bradbury_cluster() -> Iterator[LocalCluster]:
    """Cluster in this process, started by the first test that uses it; its data is discarded."""
    from ..launch.local import local

    with local() as cluster:
        yield cluster


@pytest.fixture
def bradbury_topic(request: pytest.FixtureRequest) -> str:
    """Unique topic name, made from the test's name."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")
    return f"{name[:MOST_NAME]}-{next(_numbers)}"

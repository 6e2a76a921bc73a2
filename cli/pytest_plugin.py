"""pytest fixtures of a real cluster in the test process. Installed with the package.

    def test_my_pipeline(bradbury_cluster, bradbury_topic):
        producer = bradbury.Producer(bootstrap=bradbury_cluster.bootstrap_servers)

Nothing heavy is imported until a test asks for the cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..actors.local import LocalCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bradbury_cluster() -> Iterator[LocalCluster]:
    """One cluster for the whole test run: real sockets, a temporary directory, no Ray."""
    from ..actors.local import local

    with local() as cluster:
        yield cluster


@pytest.fixture
def bradbury_topic() -> str:
    """The name of a topic that no other test uses; it is created by its first use."""
    return f"topic-{next(_numbers)}"

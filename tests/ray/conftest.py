"""A Bradbury cluster on the test run's Ray."""

from collections.abc import Iterator

import pytest

import bradbury
from bradbury.tests.support.ray.ray_settings import HEAD


@pytest.fixture(scope="session")
def cluster(
    ray_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bradbury.Cluster]:
    data = str(tmp_path_factory.mktemp("ray") / "data")
    # Members of a group start some 0.1 s apart; the default of 3 s is for machines that do.
    config = {"group.initial.rebalance.delay.ms": 500, "bradbury.auto.join": False}
    # Other tests' Ray nodes are not for it.
    running = bradbury.up(data, port=0, config=config, node_resource=HEAD)
    yield running
    running.down()


@pytest.fixture
def topic(cluster: bradbury.Cluster, request: pytest.FixtureRequest) -> str:
    """A new one of four partitions, which is a good name for a group, too."""
    name = f"{request.node.name.removeprefix('test_')}"[:100]
    with cluster.admin() as admin:
        admin.create_topic(name, 4)
    return name

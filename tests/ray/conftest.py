"""A Bradbury cluster on the test run's Ray."""

from collections.abc import Iterator

import pytest

import bradbury


@pytest.fixture(scope="session")
def cluster(
    ray_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bradbury.Cluster]:
    running = bradbury.up(str(tmp_path_factory.mktemp("ray") / "data"), port=0)
    yield running
    running.down()

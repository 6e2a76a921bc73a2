"""A cluster that commands find in their environment."""

import pytest

from bradbury import LocalCluster


@pytest.fixture
def found_cluster(
    bradbury_cluster: LocalCluster, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> LocalCluster:
    """For commands in this process, and in one of their own."""
    environment["BRADBURY_BOOTSTRAP"] = bradbury_cluster.bootstrap_servers
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster

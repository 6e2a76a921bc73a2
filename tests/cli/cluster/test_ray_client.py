"""Is Ray Client refused in one line, where the address of a Ray cluster is asked for?"""

import pytest

import bradbury
from bradbury.discovery.ray_connection import resolve_address
from bradbury.discovery.ray_errors import UpError

SAID = r"Ray Client \(ray://\) cannot start or manage a cluster.*ray job submit"


def test_its_address_is_no_address_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpError, match=SAID):
        resolve_address("ray://127.0.0.1:10001")
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(UpError, match=SAID):
        resolve_address("auto")
    monkeypatch.setattr("bradbury.discovery.ray_connection.is_connected", lambda: False)
    monkeypatch.setattr("bradbury.launch.cluster.is_connected", lambda: False)
    with pytest.raises(UpError, match=SAID):
        bradbury.connect("ray://127.0.0.1:10001")

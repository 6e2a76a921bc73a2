"""What is said of actors that are waited for in vain."""

import pytest
import ray
from ray.exceptions import RayActorError

from bradbury.discovery.ray_errors import UpError
from bradbury.launch import actors


def test_the_last_word_of_an_actor_that_cannot_be_made_is_said(
    ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @ray.remote(num_cpus=0)
    class Broken:
        def __init__(self) -> None:
            raise ValueError("no such thing; nor any other")

        def problem(self) -> str | None:
            return None

    handle = Broken.remote()
    with pytest.raises(RayActorError):
        ray.get(handle.problem.remote())  # a machine in use may take its time to find out
    monkeypatch.setattr(actors, "READY_SECONDS", 3.0)
    said: list[str] = []
    with pytest.raises(UpError) as refused:
        actors.wait_until_serving({"broker/x": handle}, said.append)
    why = "broker/x: is being started again (ValueError: no such thing, nor any other)"
    assert f"not ready after 3 s: {why}; Ray has its log in " in str(refused.value)
    assert why in said

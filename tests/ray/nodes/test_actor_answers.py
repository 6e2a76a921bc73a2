"""What do actors' refusals look like to who asks from a driver?"""

from typing import Any

import pytest
import ray

from bradbury.discovery.bootstrap import find_servers
from bradbury.launch.actors import ask
from bradbury.protocol.errors import ConnectionFailed, InvalidConfig, NotController

pytestmark = pytest.mark.ray


class Refusing:
    """Refuses so often with `error`; then it answers."""

    def __init__(self, error: Exception, times: int) -> None:
        self._error = error
        self._times = times

    async def bootstrap_servers(self) -> str:
        self._times -= 1
        if self._times >= 0:
            raise self._error
        return "127.0.0.1:9092"


def actor(error: Exception, times: int, **options: Any) -> Any:
    remote: Any = ray.remote(Refusing)
    return remote.options(num_cpus=0, **options).remote(error, times)


def test_a_controller_that_was_restarted_is_asked_again(ray_cluster: str) -> None:
    waiting = actor(NotController("the controller is waiting for its voters"), 3)
    assert ask(waiting.bootstrap_servers) == "127.0.0.1:9092"
    ray.kill(waiting)


def test_a_refusal_is_the_actors_own_and_not_rays_stack_of_it(ray_cluster: str) -> None:
    refusing = actor(InvalidConfig("that cannot be"), 1)
    with pytest.raises(InvalidConfig) as caught:
        ask(refusing.bootstrap_servers)
    assert (type(caught.value), str(caught.value)) == (InvalidConfig, "that cannot be")
    ray.kill(refusing)


def test_clients_say_in_one_line_what_the_controller_waits_for(
    ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRADBURY_BOOTSTRAP", raising=False)
    waiting = actor(
        NotController("the controller is waiting for its voters"),
        9,
        name="controller",
        namespace="waits",
    )
    with pytest.raises(ConnectionFailed) as caught:
        find_servers(None, "waits")
    assert str(caught.value) == ("the controller is waiting for its voters; see `bradbury status`")
    ray.kill(waiting)

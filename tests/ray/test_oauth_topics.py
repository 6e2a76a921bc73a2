"""Are Datasets and queues read and written by tasks where tokens (OAUTHBEARER) are asked for?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.tests.support.committed_records import committed_records
from tests.live.security.token_issuer import CLIENT, SECRET, TokenScene, token_scene

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COUNT = 200
OAUTH: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
URL = "sasl_oauthbearer_token_endpoint_url"
CREDENTIALS = "sasl_oauthbearer_client_credentials_client"


@pytest.fixture(scope="module")
def scene(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenScene]:
    """Not Ray's own cluster: who is given nothing does not find it, and is not let in."""
    targets = ("by-function", "by-file", "by-endpoint")
    with token_scene(tmp_path_factory.mktemp("keys"), COUNT, *targets) as running:
        yield running


@pytest.fixture(params=["function", "file", "endpoint"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def security(way: str, scene: TokenScene, tmp_path: Path) -> dict[str, Any]:
    """How tasks in other processes come by a token."""
    path = tmp_path / "token"
    path.write_text(scene.issuer.token("etl-job"))
    secrets = tmp_path / "client.properties"
    secrets.write_text(f"secret={SECRET}\n")
    ways: dict[str, dict[str, Any]] = {
        "function": {"sasl_oauth_token_provider": path.read_text},
        "file": {URL: path.as_uri()},
        "endpoint": {
            URL: scene.endpoint.url,
            f"{CREDENTIALS}_id": CLIENT,
            f"{CREDENTIALS}_secret": f"${{file:{secrets}:secret}}",
        },
    }
    return {**OAUTH, **ways[way]}


def test_tasks_read_and_write_by_a_token(
    scene: TokenScene, way: str, security: dict[str, Any]
) -> None:
    read = bradbury.read_topic(
        "numbers", bootstrap_servers=scene.servers, columns=["value"], **security
    )
    bradbury.write_topic(read, f"by-{way}", bootstrap_servers=scene.servers, **security)
    found = committed_records(scene.inside, f"by-{way}")
    assert sorted(int(each.value) for each in found) == list(range(COUNT))


def test_a_queue_is_shared_by_a_token(
    scene: TokenScene, way: str, security: dict[str, Any]
) -> None:
    name = f"tasks-{way}"
    queue = bradbury.Queue(name=name, bootstrap=scene.servers, **security)
    try:
        queue.put_nowait_batch(list(range(10)))
        assert queue.get_nowait_batch(10) == list(range(10))
    finally:
        queue.shutdown()

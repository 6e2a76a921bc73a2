"""Are Datasets and queues read and written by tasks where tokens (OAUTHBEARER) are asked for?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.tests.support.storage.numbered import numbers_in
from tests.live.security.token_issuer import (
    CLIENT,
    SECRET,
    Issuer,
    TokenEndpoint,
    config,
    token_endpoint,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COUNT = 200
OAUTH: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
URL = "sasl_oauthbearer_token_endpoint_url"
CREDENTIALS = "sasl_oauthbearer_client_credentials_client"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def endpoint(issuer: Issuer) -> Iterator[TokenEndpoint]:
    with token_endpoint(issuer) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(ray_cluster: str, issuer: Issuer) -> Iterator[bradbury.LocalCluster]:
    """Not Ray's own: who is given nothing does not find it, and is not let in."""
    with bradbury.local(config=config(issuer)) as running:
        with bradbury.Admin(running.bootstrap_servers) as admin:
            for topic in ("numbers", "by-function", "by-file", "by-endpoint"):
                admin.create_topic(topic, 2)
        with bradbury.Producer(running.bootstrap_servers) as producer:
            producer.send_batch("numbers", [b"%d" % number for number in range(COUNT)]).result(60)
        yield running


@pytest.fixture(params=["function", "file", "endpoint"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def security(way: str, issuer: Issuer, endpoint: TokenEndpoint, tmp_path: Path) -> dict[str, Any]:
    """How tasks in other processes come by a token."""
    path = tmp_path / "token"
    path.write_text(issuer.token("etl-job"))
    ways: dict[str, dict[str, Any]] = {
        "function": {"sasl_oauth_token_provider": path.read_text},
        "file": {URL: path.as_uri()},
        "endpoint": {
            URL: endpoint.url,
            f"{CREDENTIALS}_id": CLIENT,
            f"{CREDENTIALS}_secret": SECRET,
        },
    }
    return {**OAUTH, **ways[way]}


def test_tasks_read_and_write_by_a_token(
    guarded: bradbury.LocalCluster, way: str, security: dict[str, Any]
) -> None:
    target = f"by-{way}"
    servers = guarded.bootstrap_servers_of("CLIENT")
    read = bradbury.read_topic("numbers", bootstrap_servers=servers, columns=["value"], **security)
    bradbury.write_topic(read, target, bootstrap_servers=servers, **security)
    found: list[int] = []
    with bradbury.Consumer(
        target,
        bootstrap=guarded.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        while len(found) < COUNT:
            table = consumer.poll(60_000)
            assert len(table), f"only {len(found)} have come"
            found += numbers_in(table)
    assert sorted(found) == list(range(COUNT))


def test_a_queue_is_shared_by_a_token(
    guarded: bradbury.LocalCluster, way: str, security: dict[str, Any]
) -> None:
    name = f"tasks-{way}"
    servers = guarded.bootstrap_servers_of("CLIENT")
    queue = bradbury.Queue(name=name, bootstrap=servers, **security)
    try:
        queue.put_nowait_batch(list(range(10)))
        assert queue.get_nowait_batch(10) == list(range(10))
    finally:
        queue.shutdown()

"""Bradbury's own clients log in by OAUTHBEARER: with a function, a file, an endpoint of tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.discovery.state_file import CLIENT_CONFIG_VARIABLE
from bradbury.protocol.errors import AuthenticationFailed, ConnectionFailed, InvalidConfig
from tests.live.security.token_issuer import Issuer, TokenEndpoint, config, token_endpoint

OAUTH: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
CREDENTIALS = "sasl_oauthbearer_client_credentials_client"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def cluster(issuer: Issuer) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=config(issuer)) as cluster:
        yield cluster


@pytest.fixture
def servers(cluster: bradbury.LocalCluster) -> str:
    return cluster.bootstrap_servers_of("CLIENT")


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[TokenEndpoint]:
    with token_endpoint(issuer) as endpoint:
        yield endpoint


def principals(cluster: bradbury.LocalCluster) -> set[str]:
    connections = [*cluster.nodes[0].socket_server._connections]
    return {str(each.session.principal) for each in connections}


def test_a_function_gives_the_token_to_every_client(
    cluster: bradbury.LocalCluster, issuer: Issuer, servers: str
) -> None:
    def token() -> str:
        return issuer.token("alice")

    with bradbury.Admin(servers, sasl_oauth_token_provider=token, **OAUTH) as admin:
        admin.create_topic("by-a-function")
        with bradbury.Producer(servers, sasl_oauth_token_provider=token, **OAUTH) as producer:
            producer.send("by-a-function", b"a record").result(60)
        with bradbury.Consumer(
            "by-a-function",
            bootstrap=servers,
            auto_offset_reset="earliest",
            sasl_oauth_token_provider=token,
            **OAUTH,
        ) as consumer:
            assert consumer.poll(30_000).column("value").to_pylist() == [b"a record"]
        assert "User:alice" in principals(cluster)


def test_an_object_of_kafka_pythons_does_so_too(
    cluster: bradbury.LocalCluster, issuer: Issuer, servers: str
) -> None:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return issuer.token("bob")

    with bradbury.Admin(servers, sasl_oauth_token_provider=Provider(), **OAUTH) as admin:
        admin.list_topics()
        assert "User:bob" in principals(cluster)


def test_a_function_that_takes_its_time_holds_up_no_other_connection(
    issuer: Issuer, servers: str
) -> None:
    asked = threading.Event()
    go_on = threading.Event()

    def token() -> str:
        asked.set()
        assert go_on.wait(30)
        return issuer.token("alice")

    with bradbury.Admin(servers, sasl_oauth_token_provider=token, **OAUTH) as admin:
        listing = threading.Thread(target=admin.list_topics)
        listing.start()
        assert asked.wait(30)
        turned: threading.Event = threading.Event()
        admin._client.io.call_soon(turned.set)
        assert turned.wait(60)
        go_on.set()
        listing.join(30)
        assert not listing.is_alive()


def test_a_session_is_prolonged_with_another_token(issuer: Issuer, tmp_path: Path) -> None:
    given: list[float] = []

    def token() -> str:
        given.append(time.monotonic())
        return issuer.token("alice", exp=int(time.time()) + 3)

    # Without a skew of clocks: with it a token is good for half a minute more.
    short = config(issuer, **{"sasl.oauthbearer.clock.skew.seconds": "0"})
    with bradbury.local(config=short) as cluster:
        servers = cluster.bootstrap_servers_of("CLIENT")
        with bradbury.Admin(servers, sasl_oauth_token_provider=token, **OAUTH) as admin:
            until = time.monotonic() + 60
            while len(given) < 3 and time.monotonic() < until:
                admin.list_topics()
                time.sleep(0.1)
    assert len(given) >= 3


def test_a_token_that_is_refused_is_said_at_once_and_not_shown(
    issuer: Issuer, servers: str, tmp_path: Path
) -> None:
    stranger = Issuer(tmp_path, "strangers").token("alice")
    for provider, said in (
        (lambda: stranger, "invalid_token"),
        (lambda: "no token!", "is malformed"),
        (lambda: None, "returned NoneType"),
        (lambda: 1 // 0, "division"),
    ):
        began = time.monotonic()
        with bradbury.Admin(servers, sasl_oauth_token_provider=provider, **OAUTH) as admin:
            with pytest.raises(AuthenticationFailed, match=said) as caught:
                admin.list_topics()
        assert time.monotonic() - began < 30
        assert stranger not in str(caught.value)


def test_a_file_is_read_again_for_every_connection(
    cluster: bradbury.LocalCluster,
    issuer: Issuer,
    servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(CLIENT_CONFIG_VARIABLE, raising=False)
    held = tmp_path / "a token"
    url = held.as_uri()
    with pytest.raises(InvalidConfig, match="cannot be read"):
        bradbury.Admin(servers, sasl_oauthbearer_token_endpoint_url=url, **OAUTH)
    held.write_text(issuer.token("carol") + "\n")
    with bradbury.Admin(servers, sasl_oauthbearer_token_endpoint_url=url, **OAUTH) as admin:
        held.write_text(issuer.token("dave"))
        admin.list_topics()
        assert "User:dave" in principals(cluster)
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
    )
    assert run(["--client-config", str(file), "topics", "list", "--bootstrap", servers]) == 0
    assert "error" not in capsys.readouterr().err


def test_an_endpoint_is_asked_by_client_credentials_and_not_for_every_connection(
    cluster: bradbury.LocalCluster, servers: str, endpoint: TokenEndpoint
) -> None:
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="etl" clientSecret="s3:cret" scope="logs";'
    )
    for more in (
        {"sasl_jaas_config": jaas},
        {
            f"{CREDENTIALS}_id": "etl",
            f"{CREDENTIALS}_secret": "s3:cret",
            "sasl_oauthbearer_scope": "logs",
        },
    ):
        endpoint.asked.clear()
        settings: Any = {**OAUTH, **more, "sasl_oauthbearer_token_endpoint_url": endpoint.url}
        with bradbury.Admin(servers, **settings) as admin:
            admin.list_topics()
            assert "User:etl-job" in principals(cluster)
            for connection in [*admin._client._connections.values()]:
                admin._client.io.call_soon(connection.close)
            admin.list_topics()
        assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["logs"]}]


def test_an_endpoint_that_refuses_ends_it_and_one_that_is_ill_may_get_well(
    servers: str, endpoint: TokenEndpoint
) -> None:
    def admin(url: str, secret: str) -> bradbury.Admin:
        settings: Any = {f"{CREDENTIALS}_id": "etl", f"{CREDENTIALS}_secret": secret, **OAUTH}
        return bradbury.Admin(servers, sasl_oauthbearer_token_endpoint_url=url, **settings)

    with admin(endpoint.url, "another") as refused:
        with pytest.raises(AuthenticationFailed, match="client id and secret") as caught:
            refused.list_topics()
    assert "another" not in str(caught.value)
    endpoint.status = 503
    with admin(endpoint.url, "s3:cret") as later:
        with pytest.raises(ConnectionFailed, match="answers 503"):
            later.list_topics()
        endpoint.status = 200
        later.list_topics()
    with admin("http://127.0.0.1:1/token", "s3:cret") as away:
        with pytest.raises(ConnectionFailed, match="cannot be asked"):
            away.list_topics()

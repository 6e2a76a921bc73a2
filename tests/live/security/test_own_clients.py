"""Bradbury's own clients, on a listener that speaks TLS."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.discovery.state_file import CLIENT_CONFIG_VARIABLE
from bradbury.protocol.errors import AuthenticationFailed, ConnectionFailed
from bradbury.tests.support.certificates import CertificateAuthority

AT_ONCE_S = 30.0
"""Far less than a client tries when it may be worth it."""


@pytest.fixture
def trusting(authority: CertificateAuthority) -> Any:
    return {"security_protocol": "SSL", "ssl_truststore_location": authority.certificate}


def test_what_is_produced_is_consumed_whole(cluster: Any, trusting: Any) -> None:
    servers = cluster.bootstrap_servers
    with bradbury.Admin(servers, **trusting) as admin:
        admin.create_topic("whole", 2)
    values = [os.urandom(size) for size in (0, 1, 100, 16_384, 16_385, 200_000, 900_000) * 3]
    with bradbury.Producer(servers, **trusting) as producer:
        for number, value in enumerate(values):
            producer.send("whole", value, partition=number % 2)
    found: list[bytes] = []
    with bradbury.Consumer(
        "whole", bootstrap=servers, group="tls", auto_offset_reset="earliest", **trusting
    ) as consumer:
        while len(found) < len(values):
            found += consumer.poll(10_000).column("value").to_pylist()
        metrics = consumer.metrics()["consumer-metrics"]
    assert sorted(found) == sorted(values)
    assert metrics["successful-authentication-total"] == metrics["connection-creation-total"]


def test_the_clients_of_coroutines_do_so_too(cluster: Any, trusting: Any) -> None:
    servers = cluster.bootstrap_servers
    with bradbury.Admin(servers, **trusting) as admin:
        admin.create_topic("async")

    async def scene() -> list[bytes]:
        async with bradbury.AsyncProducer(servers, **trusting) as producer:
            await producer.send_and_wait("async", b"a record")
        async with bradbury.AsyncConsumer(
            "async", bootstrap=servers, auto_offset_reset="earliest", **trusting
        ) as consumer:
            found: list[bytes] = (await consumer.poll(30_000)).column("value").to_pylist()
            return found

    assert asyncio.run(scene()) == [b"a record"]


def test_an_argument_that_is_none_is_refused_at_once() -> None:
    for make in (bradbury.Producer, bradbury.AsyncProducer, bradbury.AsyncConsumer, bradbury.Admin):
        with pytest.raises(TypeError, match="ssl_cafile"):
            make(ssl_cafile="a")  # type: ignore[arg-type]


def refused(servers: str, **security: Any) -> AuthenticationFailed:
    began = time.monotonic()
    with bradbury.Admin(servers, **security) as admin:
        with pytest.raises(AuthenticationFailed) as caught:
            admin.list_topics()
    assert time.monotonic() - began < AT_ONCE_S
    return caught.value


def test_a_broker_that_nobody_vouches_for_is_not_talked_to(cluster: Any, tmp_path: Path) -> None:
    stranger = CertificateAuthority(tmp_path)
    for security in (
        {"security_protocol": "SSL"},
        {"security_protocol": "SSL", "ssl_truststore_location": stranger.certificate},
    ):
        assert "not accepted" in str(refused(cluster.bootstrap_servers, **security))
    with pytest.raises(AuthenticationFailed, match="ssl_truststore_location"):
        with bradbury.Producer(cluster.bootstrap_servers, security_protocol="SSL") as producer:
            producer.send("t", b"x").result(60)


def test_a_certificate_of_another_host_is_refused_unless_hosts_do_not_count(
    tls: Callable[..., dict[str, str]], authority: CertificateAuthority, trusting: Any
) -> None:
    config = tls() | {
        "ssl.keystore.location": authority.sign("elsewhere", host="elsewhere.example")
    }
    with bradbury.local(config=config) as cluster:
        assert "not accepted" in str(refused(cluster.bootstrap_servers, **trusting))
        anybody = {**trusting, "ssl_endpoint_identification_algorithm": ""}
        with bradbury.Admin(cluster.bootstrap_servers, **anybody) as admin:
            assert admin.list_topics() == []


def test_a_client_shows_its_certificate_where_it_is_asked_for_one(
    mutual: Any, authority: CertificateAuthority, trusting: Any
) -> None:
    assert "certificate" in str(refused(mutual.bootstrap_servers, **trusting))
    own = authority.sign("alice")
    with bradbury.Admin(mutual.bootstrap_servers, **trusting, ssl_keystore_location=own) as admin:
        assert admin.list_topics() == []
    text = Path(own).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    with bradbury.Admin(
        mutual.bootstrap_servers,
        security_protocol="SSL",
        ssl_truststore_certificates=Path(authority.certificate).read_text(),
        ssl_keystore_key=text[:start],
        ssl_keystore_certificate_chain=text[start:],
    ) as admin:
        assert admin.list_topics() == []
    with bradbury.Admin(
        mutual.bootstrap_servers,
        security_protocol="SSL",
        ssl_truststore_certificates=in_one_line(Path(authority.certificate).read_text()),
        ssl_keystore_key=in_one_line(text[:start]),
        ssl_keystore_certificate_chain=in_one_line(text[start:]),
    ) as admin:
        assert admin.list_topics() == []


def test_a_listener_takes_pem_in_one_line_as_kafka_does(
    authority: CertificateAuthority, trusting: Any
) -> None:
    text = Path(authority.sign("broker")).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    config = {
        "listeners": "SSL://:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": in_one_line(text[:start]),
        "ssl.keystore.certificate.chain": in_one_line(text[start:]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": in_one_line(Path(authority.certificate).read_text()),
    }
    with bradbury.local(config=config) as cluster:
        with bradbury.Admin(cluster.bootstrap_servers, **trusting) as admin:
            assert admin.list_topics() == []


def in_one_line(pem: str) -> str:
    """As it stands in a properties file or in an environment variable."""
    return " ".join(pem.split("\n"))


def test_a_client_and_a_listener_that_speak_past_each_other_say_so(
    cluster: Any, trusting: Any
) -> None:
    with bradbury.Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(ConnectionFailed, match="speak PLAINTEXT"):
            admin.list_topics()
    with bradbury.local() as plain:
        with bradbury.Admin(plain.bootstrap_servers, **trusting) as admin:
            with pytest.raises(ConnectionFailed, match=r"TLS|closed the connection"):
                admin.list_topics()


def test_the_commands_take_a_file_of_settings(
    cluster: Any,
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(CLIENT_CONFIG_VARIABLE, raising=False)
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={authority.certificate}\n")
    there = ["--bootstrap", cluster.bootstrap_servers]
    assert run(["topics", "list", *there]) == 1
    assert "security_protocol" in capsys.readouterr().err
    secured = ["--client-config", str(file)]
    assert run([*secured, "topics", "create", "from-a-file", *there]) == 0
    assert run([*secured, "topics", "list", *there]) == 0
    assert "from-a-file" in capsys.readouterr().out
    assert CLIENT_CONFIG_VARIABLE not in os.environ, "it was for these commands"
    assert run(["--client-config", str(tmp_path / "absent"), "topics", "list", *there]) == 2
    assert "absent" in capsys.readouterr().err


def test_a_mirror_reads_a_cluster_that_is_secured(
    cluster: Any, authority: CertificateAuthority, trusting: Any, tmp_path: Path
) -> None:
    source = cluster.bootstrap_servers
    with bradbury.Admin(source, **trusting) as admin:
        admin.create_topic("secured", 2)
    with bradbury.Producer(source, **trusting) as producer:
        for number in range(500):
            producer.send("secured", b"%d" % number, partition=number % 2)
    file = tmp_path / "source.properties"
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={authority.certificate}\n")
    with bradbury.local() as target:
        servers = target.bootstrap_servers
        done = bradbury.mirror(
            "secured", source, alias="west", bootstrap_servers=servers, source_security=trusting
        )
        assert done.records == 500
        again = ["mirror", "secured", "--from", source, "--alias", "west", "--bootstrap", servers]
        assert run([*again, "--source-config", str(file)]) == 0
        with pytest.raises(ConnectionFailed):
            bradbury.mirror("secured", source, alias="west", bootstrap_servers=servers)
        with bradbury.Consumer(
            "west.secured", bootstrap=servers, auto_offset_reset="earliest"
        ) as consumer:
            found: list[bytes] = []
            while len(found) < 500:
                found += consumer.poll(10_000).column("value").to_pylist()
    assert sorted(map(int, found)) == list(range(500))

"""Kafka's console producer logs in with what `bradbury client-config --form properties` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.tests.compatibility.support.compatibility import Ran
from bradbury.tests.compatibility.support.kafka_jars import QUICK_OPTIONS
from tests.cli.cluster.client_config_scene import TOPIC, WAYS, ClientConfigScene

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.long]

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfigScene]:
    # Java 17 decrypts no key that is encrypted as OpenSSL does it today (PBES2).
    with ClientConfigScene(tmp_path_factory.mktemp("client-config")).running() as scene:
        yield scene


@pytest.fixture(scope="module")
def java_options(scene: ClientConfigScene) -> tuple[str, ...]:
    """As the command's notes say."""
    return (*QUICK_OPTIONS, f"{ALLOWED_URLS}={scene.url},{scene.token_file.as_uri()}")


def test_kafkas_console_producer_logs_in_by_its_form(
    scene: ClientConfigScene,
    java: Callable[..., Ran],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "printed.properties"
    for way in WAYS:
        servers = scene.servers(way)
        given = str(scene.file(way))
        assert run(["--client-config", given, "client-config", "--bootstrap", servers]) == 0
        file.write_text(capsys.readouterr().out)
        words = ("--bootstrap-server", servers, "--producer.config", str(file), "--topic", TOPIC)
        ran = java(PRODUCER, *words, "--sync", "--timeout", "0", stdin=f"{way}\n".encode())
        assert ran.code == 0, (way, ran)
    with bradbury.Consumer(
        TOPIC, bootstrap=scene.cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        found: list[bytes] = []
        while len(found) < len(WAYS):
            found += consumer.poll(60_000).column("value").to_pylist()
    assert found == [way.encode() for way in WAYS]

"""`bradbury client-config`: what it prints is what the client that it is for logs in with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import bradbury
from bradbury.tests.support.command_line import Command, Outcome
from tests.cli.cluster.client_config_scene import (
    OAUTH_MODULE,
    SCRAM_MODULE,
    TOPIC,
    WAYS,
    ClientConfigScene,
)

pytestmark = pytest.mark.slow

PATIENCE = 60


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfigScene]:
    folder = tmp_path_factory.mktemp("client-config")
    with ClientConfigScene(folder, "of the key").running() as scene:
        yield scene


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def printed(command: Command, file: Path, form: str, *words: str) -> Outcome:
    servers = () if "--bootstrap" in words else ("--bootstrap", "localhost:1")
    return command("--client-config", str(file), "client-config", "--form", form, *servers, *words)


def test_librdkafka_logs_in_by_its_form(
    scene: ClientConfigScene, way: str, command: Command
) -> None:
    done = printed(command, scene.file(way), "librdkafka", "--bootstrap", scene.servers(way))
    assert done.code == 0, done
    settings: dict[str, Any] = dict(line.split("=", 1) for line in done.out.splitlines())
    texts = [name for name in settings if name.endswith(".pem")]
    for name in texts:
        settings[name] = settings[name].replace("\\n", "\n")
    assert (rf"each \n in {', '.join(texts)} is a line break" in done.err) == bool(texts)
    if way == "token in a file":
        assert "oauth_cb" in done.err
        settings["oauth_cb"] = lambda _: (scene.token_file.read_text(), 2.0**32)
    sent: list[Any] = []
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(settings | {"error_cb": errors.append, "log_level": 0})
    producer.produce(TOPIC, b"a record", on_delivery=lambda error, _: sent.append(error))
    assert producer.flush(PATIENCE) == 0, errors
    assert sent == [None]


def test_a_producer_of_ours_is_made_by_its_form(
    scene: ClientConfigScene, way: str, command: Command
) -> None:
    done = printed(command, scene.file(way), "python", "--bootstrap", scene.servers(way))
    assert (done.code, done.err) == (0, "")
    with eval(done.out, {"bradbury": bradbury}) as producer:
        assert producer.send(TOPIC, b"a record").result(PATIENCE).offset >= 0


def test_commands_log_in_by_the_form_of_kafkas_tools(
    scene: ClientConfigScene, way: str, command: Command, tmp_path: Path
) -> None:
    done = printed(command, scene.file(way), "properties", "--bootstrap", scene.servers(way))
    assert done.code == 0, done
    if "token" in way:
        assert "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" in done.err
    again = tmp_path / "printed.properties"
    again.write_text(done.out)
    words = ("topics", "list", "--bootstrap", scene.servers(way))
    listed = command("--client-config", str(again), *words)
    assert (listed.code, listed.err) == (0, "")
    assert TOPIC in listed.out
    assert printed(command, again, "properties", "--bootstrap", scene.servers(way)).out == done.out


def test_a_host_that_does_not_count_is_said_in_words_of_librdkafka(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.endpoint.identification.algorithm=\n")
    out = printed(command, file, "librdkafka").out
    assert "ssl.endpoint.identification.algorithm=none\n" in out
    confluent_kafka.Producer(dict(line.split("=", 1) for line in out.splitlines()))


SASL = "security.protocol=SASL_SSL\nsasl.mechanism="
BY_TOKEN = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";'


def test_a_delegation_token_stays_one_or_is_refused(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{SASL}SCRAM-SHA-512\nsasl.jaas.config={BY_TOKEN}\n")
    assert f"sasl.jaas.config={BY_TOKEN}\n" in printed(command, file, "properties").out
    assert f"sasl_jaas_config={BY_TOKEN!r}" in printed(command, file, "python").out
    assert "delegation token" in printed(command, file, "librdkafka").error


def test_what_nobody_logs_in_by_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{SASL}OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file:/token\n")
    refused = printed(command, file, "properties", "--user", "alice").error
    assert "the token says who the user is; omit --user" in refused
    file.write_text(f"{SASL}OAUTHBEARER\nsasl.jaas.config={OAUTH_MODULE} required;\n")
    assert "sasl_oauthbearer_token_endpoint_url" in printed(command, file, "python").usage
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    file.write_text(f"{SASL}PLAIN\nsasl.username=alice\nsasl.password=${{env:KAFKA_PASSWORD}}\n")
    assert "KAFKA_PASSWORD" in printed(command, file, "librdkafka").usage
    assert printed(command, file, "python").code == 0, "it is looked up by who uses it"

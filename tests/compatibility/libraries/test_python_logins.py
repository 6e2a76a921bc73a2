"""Clients in Python log in by everything that they have in common with us, and are refused else.

None of them logs in by delegation tokens: it takes an extension of SCRAM that they do not send.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.metadata import version

import aiokafka.errors
import kafka.errors
import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.logins import (
    CERTIFICATE,
    DELEGATION_TOKEN,
    PREFIX,
    WAYS,
    LoginScene,
)
from bradbury.tests.compatibility.support.python_logins import (
    Aiokafka,
    ConfluentKafka,
    KafkaPython,
    NotLetIn,
    PythonClient,
)

pytestmark = pytest.mark.slow

COUNT = 300
CLIENTS = {one.package: one for one in (ConfluentKafka(), KafkaPython(), Aiokafka())}
PYTHON_WAYS = [
    pytest.param(way, marks=[] if way == "SCRAM-SHA-512" else [pytest.mark.deep])
    for way in WAYS
    if way != DELEGATION_TOKEN
]
WRONG = {
    "PLAIN": "password",
    "SCRAM-SHA-256": "user",
    "SCRAM-SHA-512": "password",
    "OAUTHBEARER": "token expired",
    CERTIFICATE: "no certificate",
}
REFUSALS = (NotLetIn, kafka.errors.KafkaError, aiokafka.errors.KafkaError)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginScene]:
    with LoginScene(tmp_path_factory.mktemp("logins")).running() as scene:
        yield scene


@pytest.fixture
def topic(scene: LoginScene) -> str:
    name = f"{PREFIX}{next(_numbers)}"
    with bradbury.Admin(scene.root) as admin:
        admin.create_topic(name, 3)
    return name


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> PythonClient:
    return CLIENTS[request.param]


@pytest.fixture
def tool(client: PythonClient, recorder: Recorder) -> Tool:
    return recorder.tool(client.package, version(client.package))


@pytest.mark.parametrize("way", PYTHON_WAYS)
def test_records_go_there_and_back(
    client: PythonClient, tool: Tool, way: str, scene: LoginScene, topic: str
) -> None:
    records = [(f"key-{number % 20}", f"value-{number}") for number in range(COUNT)]
    login = scene.login(way)
    with tool.call(f"log in, produce and consume ({way})"):
        client.produce(login, topic, records)
        assert sorted(client.consume(login, topic, COUNT)) == sorted(records)


@pytest.mark.parametrize("way", PYTHON_WAYS)
def test_who_is_not_let_in_is_told_so(
    client: PythonClient, tool: Tool, way: str, scene: LoginScene, topic: str
) -> None:
    login = scene.login(way, WRONG[way])
    with tool.call(f"log in ({way}): refused, {WRONG[way]}"), pytest.raises(REFUSALS):
        client.produce(login, topic, [("key", "value")])
    with bradbury.Consumer(topic, bootstrap=scene.root) as consumer:
        assert set(consumer.end_offsets().values()) == {0}

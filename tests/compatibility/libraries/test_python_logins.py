"""Clients in Python log in by everything that they have in common with us, and are refused else.

None of them logs in by delegation tokens: it takes an extension of SCRAM that they do not send.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import aiokafka.errors
import kafka.errors
import pytest

import bradbury
from bradbury import AclFilter, AclOperation, PatternType, ResourceType
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.compatibility.support.compatibility import Recorder, Tool
from bradbury.tests.compatibility.support.logins import (
    CERTIFICATE,
    DELEGATION_TOKEN,
    EXPIRED_SERVER,
    OTHER_CA,
    PREFIX,
    WAYS,
    LoginScene,
    allow,
    principal,
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
STAYS = 20
"""Records that are acknowledged before the right to write is taken away."""
CLIENTS = {one.package: one for one in (ConfluentKafka(), KafkaPython(), Aiokafka())}
WRONG = {
    "PLAIN": ("password",),
    "SCRAM-SHA-256": ("user",),
    "SCRAM-SHA-512": ("password", OTHER_CA, EXPIRED_SERVER),
    "OAUTHBEARER": ("token expired",),
    CERTIFICATE: ("no certificate", OTHER_CA),
}


def case(package: str, way: str, *more: str) -> Any:
    """Of SCRAM-SHA-512 much is always tried; what TLS and rules refuse, with librdkafka alone."""
    is_plain = way == "SCRAM-SHA-512" and (
        not more
        or "password" in more
        or (package == "confluent-kafka" and EXPIRED_SERVER not in more)
    )
    return pytest.param(package, way, *more, marks=[] if is_plain else [pytest.mark.deep])


RIGHT = [case(package, way) for package in CLIENTS for way in WAYS if way != DELEGATION_TOKEN]
REFUSED = [
    case(package, way, wrong)
    for package in CLIENTS
    for way, each in WRONG.items()
    for wrong in each
]
REVOKED = [
    case(package, way, "revoked") for package in CLIENTS for way in ("SCRAM-SHA-512", CERTIFICATE)
]
TOLD = dict.fromkeys((OTHER_CA, EXPIRED_SERVER), "certificate verify failed")
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


@pytest.fixture
def client(request: pytest.FixtureRequest) -> PythonClient:
    """By its package, a parameter of the test."""
    return CLIENTS[request.param]


@pytest.fixture
def tool(client: PythonClient, recorder: Recorder) -> Tool:
    return recorder.tool(client.package, version(client.package))


@pytest.mark.parametrize(("client", "way"), RIGHT, indirect=["client"])
def test_records_go_there_and_back(
    client: PythonClient, tool: Tool, way: str, scene: LoginScene, topic: str
) -> None:
    records = [(f"key-{number % 20}", f"value-{number}") for number in range(COUNT)]
    login = scene.login(way)
    with tool.call(f"log in, produce and consume ({way})"):
        client.produce(login, topic, records)
        assert sorted(client.consume(login, topic, COUNT)) == sorted(records)


@pytest.mark.parametrize(("client", "way", "wrong"), REFUSED, indirect=["client"])
def test_who_is_not_let_in_is_told_so(
    client: PythonClient,
    tool: Tool,
    way: str,
    wrong: str,
    scene: LoginScene,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    login = scene.login(way, wrong)
    with tool.call(f"log in ({way}): refused, {wrong}"), pytest.raises(REFUSALS) as refused:
        client.produce(login, topic, [("key", "value")])
    if wrong in TOLD:
        # librdkafka raises what it was told; the other two log it, and raise that nobody is there.
        said = [str(refused.value), *caplog.messages]
        assert any(TOLD[wrong] in each for each in said), said
    with bradbury.Consumer(topic, bootstrap=scene.root) as consumer:
        assert set(consumer.end_offsets().values()) == {0}


@pytest.mark.parametrize(("client", "way", "_what"), REVOKED, indirect=["client"])
def test_a_right_that_is_taken_away_counts_on_connections_that_are_open(
    client: PythonClient, tool: Tool, way: str, _what: str, scene: LoginScene
) -> None:
    topic = f"of-{client.package}-{next(_numbers)}"
    rule = allow(ResourceType.TOPIC, topic, principal(way), AclOperation.WRITE)
    with (
        bradbury.Admin(scene.root) as admin,
        tool.call(f"an ACL is removed while connected ({way})"),
    ):
        admin.create_topic(topic, 1)
        admin.create_acls([rule])
        with client.sending(scene.login(way), topic) as send:
            assert {send() for _ in range(STAYS)} == {0}
            connected = scene.connected(principal(way), topic)
            admin.delete_acls([AclFilter(ResourceType.TOPIC, topic, PatternType.LITERAL)])
            assert {send() for _ in range(3)} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            still = scene.connected(principal(way), topic)
            assert still and still <= connected, "it was connected all the time"
    with bradbury.Consumer(topic, bootstrap=scene.root) as consumer:
        assert set(consumer.end_offsets().values()) == {STAYS}

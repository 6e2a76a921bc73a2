"""Clients of Go and Java log in by everything that we serve, and are told when they are not let in."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import bradbury
from bradbury import AclFilter, AclOperation, PatternType, ResourceType
from bradbury.tests.compatibility.support.compatibility import Ran, Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import (
    KAFKA,
    QUICK_OPTIONS,
    VERSION,
)
from bradbury.tests.compatibility.support.logins import (
    CERTIFICATE,
    DELEGATION_TOKEN,
    EXPIRED_SERVER,
    OLD_TOKEN,
    OTHER_CA,
    OTHERS_TOKEN,
    PREFIX,
    TOKEN,
    WAYS,
    Login,
    LoginScene,
    allow,
    principal,
)
from bradbury.tests.compatibility.support.programs import (
    Program,
    go_program,
    java_program,
    version_of,
)

pytestmark = pytest.mark.slow

COUNT = 300
PARTITIONS = 3
STAYS = 20
"""Records that are acknowledged before the right to write is taken away."""
TOOLS = "org.apache.kafka.tools."
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
Record = tuple[str, str]
_numbers = itertools.count(1)


class Client(Protocol):
    tool: Tool
    steady: Callable[[], Program]

    def produce(self, login: Login, topic: str, records: list[Record]) -> None: ...

    def consume(self, login: Login, topic: str, count: int) -> list[Record]: ...

    def refusals(self, login: Login, topic: str) -> list[str]:
        """What it says when it ends, by each way there is to begin."""
        ...

    def settings(self, login: Login, topic: str) -> dict[str, Any]:
        """Of the program that produces steadily."""
        ...


class JavaTools:
    """Apache Kafka's console tools: a producer, a consumer, an administrator."""

    def __init__(self, run: Callable[..., Ran], folder: Path, tool: Tool) -> None:
        self._run = run
        self._folder = folder
        self.tool = tool

    @staticmethod
    def steady() -> Program:
        return java_program("KafkaSteadyProducer.java", KAFKA)

    def settings(self, login: Login, topic: str) -> dict[str, Any]:
        return {"topic": topic, "config": login.in_java()}

    def _call(self, login: Login, tool: str, config: str, *words: str, stdin: bytes = b"") -> Ran:
        file = login.properties(self._folder / f"login-{next(_numbers)}")
        servers = ("--bootstrap-server", login.servers)
        return self._run(TOOLS + tool, *servers, config, file, *words, stdin=stdin)

    def _produce(self, login: Login, topic: str, records: list[Record]) -> Ran:
        stdin = "".join(f"{key}\t{value}\n" for key, value in records).encode()
        words = ("--topic", topic, "--property", "parse.key=true")
        # Or a failure would be a line of a log that is not there, and each record wait for others.
        words += ("--sync", "--timeout", "0")
        return self._call(login, "ConsoleProducer", "--producer.config", *words, stdin=stdin)

    def _consume(self, login: Login, topic: str, count: int) -> Ran:
        words = ("--topic", topic, "--group", f"{topic}-group", "--from-beginning")
        words += ("--max-messages", f"{count}", "--property", "print.key=true")
        return self._call(login, "consumer.ConsoleConsumer", "--consumer.config", *words)

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        ran = self._produce(login, topic, records)
        assert ran.code == 0, ran

    def consume(self, login: Login, topic: str, count: int) -> list[Record]:
        ran = self._consume(login, topic, count)
        assert ran.code == 0, ran
        found = [line.split("\t") for line in ran.out.splitlines()]
        described = self._call(login, "TopicCommand", "--command-config", "--describe")
        assert f"Topic: {topic}" in described.out, described
        return [(key, value) for key, value in found]

    def refusals(self, login: Login, topic: str) -> list[str]:
        # Kafka's console consumer says why in its log alone, and ends with 0.
        ended = [
            self._produce(login, topic, [("key", "value")]),
            self._call(login, "TopicCommand", "--command-config", "--list"),
        ]
        assert [ran.code for ran in ended] == [1, 1], ended
        return [ran.out + ran.err for ran in ended]


class FranzGo:
    """franz-go, in a program of ours."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._program = self.steady()

    @staticmethod
    def steady() -> Program:
        return go_program("franz_go")

    def settings(self, login: Login, topic: str) -> dict[str, Any]:
        return {"servers": login.servers.split(","), "topic": topic, "login": login.in_go()}

    def produce(self, login: Login, topic: str, records: list[Record]) -> None:
        self._program.run("produce", **self.settings(login, topic), records=records)

    def consume(self, login: Login, topic: str, count: int) -> list[Record]:
        reading = {"group": f"{topic}-group", "count": count}
        lines = self._program.run("consume", **self.settings(login, topic), **reading)
        return [(key, value) for key, value in (line["record"] for line in lines)]

    def refusals(self, login: Login, topic: str) -> list[str]:
        return [self._program.fails("produce", **self.settings(login, topic))]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginScene]:
    with LoginScene(tmp_path_factory.mktemp("logins")).running() as scene:
        yield scene


@pytest.fixture(scope="module")
def java_options(scene: LoginScene) -> tuple[str, ...]:
    """It may read tokens from these files."""
    urls = [(scene.folder / name).as_uri() for name in (TOKEN, OLD_TOKEN, OTHERS_TOKEN)]
    return (*QUICK_OPTIONS, f"{ALLOWED_URLS}={','.join(urls)}")


@pytest.fixture
def client(request: pytest.FixtureRequest, recorder: Recorder, tmp_path: Path) -> Client:
    """By its name, a parameter of the test."""
    if request.param == "java":
        tool = recorder.tool("Apache Kafka's console tools", VERSION)
        return JavaTools(request.getfixturevalue("java"), tmp_path, tool)
    return FranzGo(recorder.tool("franz-go", version_of("franz_go")))


@pytest.fixture
def topic(scene: LoginScene) -> str:
    name = f"{PREFIX}{next(_numbers)}"
    with bradbury.Admin(scene.root) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


def case(client: str, *more: str) -> Any:
    """One way for each client is always tried."""
    marks = [pytest.mark.java] if client == "java" else []
    if more[0] != "SCRAM-SHA-512" or {"user", EXPIRED_SERVER}.intersection(more):
        marks.append(pytest.mark.deep)
    return pytest.param(client, *more, marks=marks)


CLIENTS = ("java", "franz_go")
RIGHT = [case(client, way) for client in CLIENTS for way in WAYS]


@pytest.mark.parametrize(("client", "way"), RIGHT, indirect=["client"])
def test_records_go_there_and_back(client: Client, way: str, scene: LoginScene, topic: str) -> None:
    records = [(f"key-{number % 20}", f"value-{number}") for number in range(COUNT)]
    login = scene.login(way)
    with client.tool.call(f"log in, produce and consume ({way})"):
        client.produce(login, topic, records)
        found = client.consume(login, topic, COUNT)
    assert sorted(found) == sorted(records)
    sent, read = defaultdict(list), defaultdict(list)
    for key, value in records:
        sent[key].append(value)
    for key, value in found:
        read[key].append(value)
    assert read == sent, "those of a key are in order"


TOLD = {
    "java": {
        "PLAIN": "Authentication failed: Invalid username or password",
        "SCRAM": "Authentication failed during authentication due to invalid credentials with SASL",
        "OAUTHBEARER": '{"status":"invalid_token"}',
        # With TLS 1.3 the client has done its part before the server looks at its certificate.
        CERTIFICATE: "Failed to process post-handshake messages",
        OTHER_CA: "SSL handshake failed",
        EXPIRED_SERVER: "SSL handshake failed",
    },
    "franz_go": {
        "PLAIN": "SASL_AUTHENTICATION_FAILED",
        "SCRAM": "SASL_AUTHENTICATION_FAILED",
        # What is wrong comes as JSON first (RFC 7628), as from Kafka with its BrokerJwtValidator; it
        # reads none. (Kafka 4.1.1 without that setting looks at no signature.)
        "OAUTHBEARER": "unexpected data in oauth response",
        CERTIFICATE: "remote error: tls: ",
        OTHER_CA: "x509: certificate signed by unknown authority",
        EXPIRED_SERVER: "x509: certificate has expired or is not yet valid",
    },
}
WRONG = {
    "PLAIN": ("password", "user"),
    "SCRAM-SHA-256": ("password", "user"),
    "SCRAM-SHA-512": ("password", "user", OTHER_CA, EXPIRED_SERVER),
    "OAUTHBEARER": ("token expired", "token of another key"),
    DELEGATION_TOKEN: ("password", "token ended"),
    CERTIFICATE: ("certificate of another CA", "no certificate", OTHER_CA),
}
REFUSED = [
    case(client, way, wrong) for client in CLIENTS for way, each in WRONG.items() for wrong in each
]


@pytest.mark.parametrize(("client", "way", "wrong"), REFUSED, indirect=["client"])
def test_who_is_not_let_in_is_told_so(
    client: Client, way: str, wrong: str, scene: LoginScene, topic: str
) -> None:
    login = scene.login(way, wrong)
    told = TOLD["java" if isinstance(client, JavaTools) else "franz_go"]
    kind = "SCRAM" if "SCRAM" in login.mechanism else way
    words = told[wrong] if wrong in told else told[kind]
    with client.tool.call(f"log in ({way}): refused, {wrong}"):
        said = client.refusals(login, topic)
        assert all(words in each for each in said), said
        if isinstance(client, JavaTools):
            is_tls = way == CERTIFICATE or wrong in (OTHER_CA, EXPIRED_SERVER)
            error = "SslAuthenticationException" if is_tls else "SaslAuthenticationException"
            assert f"org.apache.kafka.common.errors.{error}: {words}" in said[0]


@pytest.mark.parametrize(
    ("client", "way"),
    [case(client, way) for client in CLIENTS for way in ("SCRAM-SHA-512", CERTIFICATE)],
    indirect=["client"],
)
def test_a_right_that_is_taken_away_counts_on_connections_that_are_open(
    client: Client, way: str, scene: LoginScene
) -> None:
    topic = f"of-{way}-{next(_numbers)}"
    rule = allow(ResourceType.TOPIC, topic, principal(way), AclOperation.WRITE)
    login = scene.login(way)
    with (
        bradbury.Admin(scene.root) as admin,
        client.tool.call(f"an ACL is removed while connected ({way})"),
    ):
        admin.create_topic(topic, 1)
        admin.create_acls([rule])
        with client.steady().start("steady", **client.settings(login, topic)) as producer:
            producer.wait_for(lambda one: len(one.said("acknowledged")) >= STAYS)
            connections = producer.said("connections")[-1]
            admin.delete_acls([AclFilter(ResourceType.TOPIC, topic, PatternType.LITERAL)])
            removed_ms = time.time() * 1_000
            producer.finish()
        [refused] = producer.said("refused")
        assert refused in {"TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"}
        assert max(producer.said("acknowledged")) <= removed_ms
        assert producer.said("connections")[-1] == connections, "it was connected all the time"

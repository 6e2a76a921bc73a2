"""`bradbury up --secure`, as somebody meets it who has read nothing, and those who are not meant."""

import os
import re
import socket
import ssl
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka.admin
import psutil
import pytest

import bradbury
from bradbury.clients.security.client_config_file import read_client_options
from bradbury.discovery.ray_errors import UpError
from bradbury.protocol.errors import AuthenticationFailed, KafkaError
from bradbury.tests.support.command_line import Command, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PATIENCE = 60
ACTORS = re.compile("ray::(Broker|Group|Partition)")
METADATA_OF_ALL = struct.pack(">hhihi", 3, 1, 7, -1, -1)
TASK = """
import ray, bradbury
cluster = bradbury.connect()

@ray.remote
def produce(*servers):
    with bradbury.Producer(*servers) as producer:
        return producer.send("flights", b"from a task").result(60).offset >= 0

print(ray.get([produce.remote(), produce.remote(cluster.bootstrap_servers)]))
"""


@pytest.fixture
def down_in_the_end(process: Command) -> Iterator[None]:
    yield
    process("down")


def ports_of_actors(home: Path) -> dict[int, str]:
    """What the actors of this home's cluster listen at, by the names of their processes."""
    found = {}
    for one in psutil.process_iter(["name", "uids"]):
        name = one.info["name"] or ""
        if one.info["uids"].real != os.getuid() or not ACTORS.match(name):
            continue
        try:
            # Other tests start clusters on this machine meanwhile, and some of them without TLS.
            if one.environ().get("HOME") != str(home):
                continue
            for connection in one.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found[connection.laddr.port] = name
        except psutil.NoSuchProcess:
            continue
    return found


def is_answered(host: str, port: int, *, tls: bool) -> bool:
    """Whether somebody without a certificate and a password is told what topics there are."""
    frame = struct.pack(">i", len(METADATA_OF_ALL)) + METADATA_OF_ALL
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as plain:
            sock = anybody.wrap_socket(plain) if tls else plain
            sock.sendall(frame)
            while len(answer) < 8 and (part := sock.recv(8 - len(answer))):
                answer += part
    except (ssl.SSLError, ConnectionError):
        return False
    # Ray's own ports, which these processes have, too, say something else first.
    return answer[4:8] == METADATA_OF_ALL[4:8]


@pytest.mark.long  # a whole cluster comes and goes; tests/live/security has the rules
def test_a_secured_cluster_serves_its_user_and_nobody_else(
    process: Command, environment: dict[str, str], home: Path, down_in_the_end: None
) -> None:
    up = process("up", "--detach", "--secure", "--port", "0")
    assert up.code == 0, up
    servers = re.search(r"Bradbury is up: (\S+)", up.out)
    path = re.search(r"clients   (\S+)", up.out)
    assert servers is not None and path is not None

    kept = Path(path[1]).parent
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    data = home / ".local" / "share" / "bradbury" / "tls"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700, "records and SCRAM keys are there"
    token = home / ".ray" / "auth_token"  # who has it runs code on every node
    for file in (*kept.iterdir(), *data.iterdir(), token):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    password = re.search('password="(.+?)"', Path(path[1]).read_text())
    assert password is not None
    log = (home / ".local" / "state" / "bradbury" / "up.log").read_text()
    state = (home / ".local" / "state" / "bradbury" / "cluster.json").read_text()
    assert password[1] not in log + state + up.out + up.err

    # The user's own commands, programs and Ray tasks find the password by themselves.
    assert process("topics", "create", "flights").code == 0
    assert process("produce", "flights", stdin=b"a record\n").code == 0
    consumed = process("consume", "flights", "--from-beginning", "--max", "1")
    assert consumed.out == "a record\n", consumed
    assert process("status").code == 0
    done = subprocess.run(
        [sys.executable, "-c", TASK],
        cwd=environment["HOME"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "[True, True]" in done.stdout, done.stderr

    # Another user: a password of his own, and no more than the rules give him.
    assert process("users", "add", "alice", stdin=b"a-secret\n").code == 0
    printed = process("client-config", "--form", "librdkafka", "--user", "alice").out
    settings = dict(line.split("=", 1) for line in printed.splitlines())
    alice = settings | {"sasl.password": "a-secret", "log_level": "0"}
    admin = confluent_kafka.admin.AdminClient(alice)
    assert "flights" not in admin.list_topics(timeout=PATIENCE).topics
    added = process("acls", "add", "--allow-principal", "User:alice", "--consumer",
                    "--topic", "flights", "--group", "readers")  # fmt: skip
    assert added.code == 0, added
    consumer = confluent_kafka.Consumer(
        alice | {"group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["flights"])
    message = consumer.poll(PATIENCE)
    assert message is not None and message.error() is None, message
    consumer.close()
    refused: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(alice)
    producer.produce("flights", b"x", on_delivery=lambda error, _: refused.append(error))
    producer.flush(PATIENCE)
    assert refused[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED

    # What is printed for our own clients and Kafka's tools is what they take.
    (home / "client.properties").write_text(process("client-config").out)
    shown = read_client_options(home / "client.properties")
    with bradbury.Admin(servers[1], **shown) as as_admin:
        assert as_admin.list_topics() == ["flights"]
    wrong = {**shown, "sasl_jaas_config": shown["sasl_jaas_config"].replace(password[1], "wrong")}
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        bradbury.Admin(servers[1], **wrong).list_topics()  # type: ignore[arg-type]
    with pytest.raises((KafkaError, ConnectionError, bradbury.protocol.errors.ConnectionFailed)):
        bradbury.Admin(servers[1], timeout_ms=3_000, security_protocol="PLAINTEXT").list_topics()

    # Whoever tries the ports is told nothing.
    ours = ports_of_actors(home)
    assert len(ours) >= 6, ours
    host = servers[1].rpartition(":")[0]
    for port, name in ours.items():
        for tls in (False, True):
            assert not is_answered(host, port, tls=tls), (port, name, tls)


@pytest.mark.long
def test_a_second_start_makes_nothing_anew(process: Command, down_in_the_end: None) -> None:
    up = process("up", "--detach", "--secure", "--port", "0")
    assert up.code == 0, up
    path = re.search(r"clients   (\S+)", up.out)
    assert path is not None
    password = re.search('password="(.+?)"', Path(path[1]).read_text())
    assert password is not None
    assert process("topics", "create", "flights").code == 0
    assert process("down").code == 0
    again = process("up", "--detach", "--secure", "--port", "0")
    assert again.code == 0, again
    assert password[1] in Path(path[1]).read_text()
    assert process("topics", "list").out.split()[:1] != []

    up_already = process("up", "--detach", "--secure", "--port", "0")
    assert up_already.code == 0
    assert "a changed password of admin and new certificates" in up_already.err
    assert "run `bradbury down` first" in up_already.err

    # How docs/security.md rotates the password of admin.
    assert process("down").code == 0
    client_file = Path(path[1])
    client_file.write_text(client_file.read_text().replace(password[1], "another-" + password[1]))
    rotated = process("up", "--detach", "--secure", "--port", "0")
    assert rotated.code == 0, rotated
    assert process("topics", "list").out.split()[:1] != []
    on_node = Path(data_dir_of(rotated)) / "tls" / "client.properties"
    assert f'"another-{password[1]}"' in on_node.read_text()
    client_file.write_text(client_file.read_text().replace("another-", ""))
    assert "not authenticated" in process("topics", "list").error
    client_file.write_text(client_file.read_text().replace(password[1], "another-" + password[1]))

    assert process("down").code == 0
    forgotten = process("up", "--detach", "--port", "0").error
    assert forgotten == refusal_of_secured_data(Path(data_dir_of(again)))
    assert process("up", "--detach", "--insecure", "--port", "0").code == 0
    refused = process("up", "--detach", "--secure").error
    assert ", without --secure; use it, run `bradbury down` first" in refused


def data_dir_of(up: Outcome) -> str:
    found = re.search(r"data      (\S+)", up.out)
    assert found is not None
    return found[1]


def refusal_of_secured_data(data_dir: Path) -> str:
    return (
        f"the data in {data_dir} is a secured cluster's, and listener PLAINTEXT would serve it "
        "without authentication: use --secure again or, if everyone who reaches the brokers may "
        "read and change it, --insecure"
    )


def test_secured_data_is_not_served_without_security_by_a_forgotten_option(
    process: Command, home: Path
) -> None:
    keys = home / "data" / "tls"
    keys.mkdir(parents=True)
    (keys / "node.pem").touch()
    line = ("up", "--port", "0", "--data-dir", str(home / "data"))
    refused = process(*line, "--detach").error
    assert refused == refusal_of_secured_data(home / "data")
    assert process(*line).error == refused
    with pytest.raises(UpError, match="--secure again"):
        bradbury.up(str(home / "data"), address="local", port=0, namespace="secured")


def test_without_it_nothing_is_opened_to_the_network(process: Command) -> None:
    refused = process("up", "--detach", "--host", "0.0.0.0", "--port", "0").error
    assert "has no authentication" in refused
    assert "--secure" in refused
    assert "--insecure" in refused


def test_a_secret_is_not_given_to_ray_as_it_is(process: Command) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="s3cret";'
    refused = process(
        "up", "--detach", "--port", "0",
        "--config", "listeners=SASL_PLAINTEXT://:0",
        "--config", "sasl.enabled.mechanisms=PLAIN",
        "--config", "sasl.mechanism.inter.broker.protocol=PLAIN",
        "--config", f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas}",
    ).usage  # fmt: skip
    assert "${file:" in refused
    assert "s3cret" not in refused


def test_what_only_a_node_can_find_out_is_said_at_once_and_touches_no_records(
    process: Command, down_in_the_end: None
) -> None:
    """Before it listens, and when it would join."""
    up = ("up", "--detach", "--port", "0", "--insecure")
    assert process(*up).code == 0
    process("topics", "create", "flights")
    process("produce", "flights", stdin=b"one\ntwo\n")
    process("down")
    refused = process(*up, "--config", "delegation.token.secret.key=${file:/nowhere:key}").error
    assert "${file:/nowhere:key}: cannot be read" in refused
    assert "each machine that uses it needs the file" in refused
    refused = process(
        *up, "--config", "listeners=INSIDE://:0,TOKENS://:0",
        "--config", "inter.broker.listener.name=INSIDE",
        "--config", "listener.security.protocol.map=INSIDE:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "--config", "sasl.enabled.mechanisms=OAUTHBEARER",
        "--config", "sasl.oauthbearer.jwks.endpoint.url=file:///nowhere.json",
        "--config", "sasl.oauthbearer.expected.audience=us",
    ).error  # fmt: skip
    assert "sasl.oauthbearer.jwks.endpoint.url=file:///nowhere.json cannot be used" in refused
    refused = process(*up, "--config", "bradbury.log.deletion.policy=nowhere:Policy").error
    assert "bradbury.log.deletion.policy=nowhere:Policy cannot be used" in refused
    assert process(*up).code == 0
    found = process("consume", "flights", "--from-beginning", "--until-end")
    assert found.out.split() == ["one", "two"]

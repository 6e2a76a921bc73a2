"""Users of SCRAM: clients of others add and remove them (KIP-554), and they can log in then."""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import admin as confluent

import bradbury
from bradbury.tests.compatibility.support.compatibility import Ran, Recorder, Tool

pytestmark = pytest.mark.slow

SECONDS = 60
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "s=e,c ret"
CONFIG = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def inside(secured: bradbury.LocalCluster) -> str:
    return secured.bootstrap_servers_of("INSIDE")


@pytest.fixture
def client(secured: bradbury.LocalCluster) -> str:
    return secured.bootstrap_servers_of("CLIENT")


@pytest.mark.java
def test_kafka_configs_and_a_java_client(
    java: Callable[..., Ran], kafka_tools: Tool, inside: str, client: str, tmp_path: Path
) -> None:
    user = ("--entity-type", "users", "--entity-name", "alice")
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={LOGIN} required username="alice" password="{PASSWORD}";\n'
    )

    def configs(*arguments: str) -> Ran:
        return java(CONFIGS, "--bootstrap-server", inside, *arguments)

    def as_alice() -> Ran:
        ways = ("--bootstrap-server", client, "--command-config", str(login))
        return java(TOPICS, *ways, "--list")

    with kafka_tools.call("kafka-configs --alter --add-config (users: SCRAM)"):
        for mechanism, password in (("SCRAM-SHA-512", PASSWORD), ("SCRAM-SHA-256", "other")):
            words = f"{mechanism}=[iterations=8192,password={password}]"
            ran = configs("--alter", *user, "--add-config", words)
            assert ran.code == 0, ran
    with kafka_tools.call("a client with SCRAM-SHA-512"):
        ran = as_alice()
        assert ran.code == 0, ran
    with kafka_tools.call("kafka-configs --describe (users: SCRAM)"):
        ran = configs("--describe", *user)
        assert "SCRAM credential configs for user-principal 'alice' are" in ran.out, ran
        assert "SCRAM-SHA-512=iterations=8192" in ran.out, ran
    with kafka_tools.call("kafka-configs --alter --delete-config (users: SCRAM)"):
        for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
            ran = configs("--alter", *user, "--delete-config", mechanism)
            assert ran.code == 0, ran
    ran = configs("--alter", *user, "--delete-config", "SCRAM-SHA-512")
    assert ran.code == 1
    ran = as_alice()
    assert ran.code != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in ran.out + ran.err


def test_confluent_kafka(recorder: Recorder, inside: str, client: str) -> None:
    tool = recorder.tool("confluent-kafka", version("confluent-kafka"))
    admin = confluent.AdminClient({"bootstrap.servers": inside})
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_256, 4096)
    with tool.call("AdminClient.alter_user_scram_credentials"):
        upsertion = confluent.UserScramCredentialUpsertion("bob", info, b"secret", b"salt of bob")
        admin.alter_user_scram_credentials([upsertion])["bob"].result(SECONDS)
    with tool.call("AdminClient.describe_user_scram_credentials"):
        described = admin.describe_user_scram_credentials(["bob"])["bob"].result(SECONDS)
        [found] = described.scram_credential_infos
        assert (found.mechanism, found.iterations) == (info.mechanism, 4096)
        assert "bob" in admin.describe_user_scram_credentials().result(SECONDS)
    as_bob = confluent.AdminClient(
        {
            "bootstrap.servers": client,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "bob",
            "sasl.password": "secret",
        }
    )
    assert as_bob.list_topics(timeout=SECONDS).brokers
    deletion = confluent.UserScramCredentialDeletion("bob", info.mechanism)
    admin.alter_user_scram_credentials([deletion])["bob"].result(SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        admin.alter_user_scram_credentials([deletion])["bob"].result(SECONDS)


def test_kafka_python(recorder: Recorder, inside: str, client: str) -> None:
    tool = recorder.tool("kafka-python", version("kafka-python"))
    mechanism = kafka.admin.ScramMechanism.SCRAM_SHA_512
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=inside)
    try:
        with tool.call("KafkaAdminClient.alter_user_scram_credentials"):
            upsertion = kafka.admin.UserScramCredentialUpsertion("carol", mechanism, "secret")
            assert admin.alter_user_scram_credentials([upsertion]) == {"carol": None}
        with tool.call("KafkaAdminClient.describe_user_scram_credentials"):
            described = admin.describe_user_scram_credentials(["carol"])["carol"]
            assert [each["mechanism"] for each in described["credential_infos"]] == [mechanism]
        as_carol = kafka.KafkaConsumer(
            bootstrap_servers=client,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="carol",
            sasl_plain_password="secret",
        )
        as_carol.topics()
        as_carol.close()
        deletion = kafka.admin.UserScramCredentialDeletion("carol", mechanism)
        assert admin.alter_user_scram_credentials([deletion]) == {"carol": None}
        assert admin.alter_user_scram_credentials([deletion])["carol"]
    finally:
        admin.close()

"""kafka-configs.sh sets, shows and takes back quotas of users, client ids and addresses.

Of the Python clients none has calls for quotas.
"""

from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury.clients.quotas.quotas_admin import ClientQuotaEntity
from bradbury.tests.compatibility.support.compatibility import Ran, Tool

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.deep]

Java = Callable[..., Ran]
CONFIGS = "kafka.admin.ConfigCommand"
BYTES = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}


@pytest.fixture
def admin(servers: str) -> Iterator[bradbury.Admin]:
    with bradbury.Admin(servers) as admin:
        yield admin


def _options(quotas: dict[str, float]) -> str:
    return ",".join(f"{key}={value:g}" for key, value in quotas.items())


@pytest.mark.parametrize(
    ("what", "options", "entity", "quotas"),
    [
        (
            "a client",
            ("--entity-type", "clients", "--entity-name", "loader"),
            ClientQuotaEntity(client_id="loader"),
            BYTES,
        ),
        (
            "a default client",
            ("--entity-type", "clients", "--entity-default"),
            ClientQuotaEntity(client_id=""),
            BYTES,
        ),
        (
            "a client of a user",
            (
                "--entity-type", "users", "--entity-name", "alice",
                "--entity-type", "clients", "--entity-name", "loader",
            ),
            ClientQuotaEntity(user="alice", client_id="loader"),
            BYTES,
        ),
        (
            "a default client of the default user",
            (
                "--entity-type", "users", "--entity-default",
                "--entity-type", "clients", "--entity-default",
            ),
            ClientQuotaEntity(user="", client_id=""),
            BYTES,
        ),
        (
            "an address",
            ("--entity-type", "ips", "--entity-name", "10.0.0.7"),
            ClientQuotaEntity(ip="10.0.0.7"),
            {"connection_creation_rate": 5.0},
        ),
        (
            "a default address",
            ("--entity-type", "ips", "--entity-default"),
            ClientQuotaEntity(ip=""),
            {"connection_creation_rate": 5000.0},
        ),
    ],
)  # fmt: skip
def test_quotas_by_kafka_configs(
    java: Java,
    servers: str,
    kafka_tools: Tool,
    admin: bradbury.Admin,
    what: str,
    options: tuple[str, ...],
    entity: ClientQuotaEntity,
    quotas: dict[str, float],
) -> None:
    def run(*arguments: str) -> str:
        ran = java(CONFIGS, "--bootstrap-server", servers, *arguments)
        assert ran.code == 0, f"{ran.code}\n{ran.out}\n{ran.err}"
        return ran.out

    with kafka_tools.call(f"kafka-configs --alter, --describe (quotas of {what})"):
        run("--alter", *options, "--add-config", _options(quotas))
        assert admin.describe_client_quotas()[entity] == quotas
        described = run("--describe", *options)
        assert all(f"{key}={value}" in described for key, value in quotas.items())
        run("--alter", *options, "--delete-config", ",".join(quotas))
        assert entity not in admin.describe_client_quotas()
        assert "byte_rate" not in run("--describe", *options)


@pytest.mark.parametrize("options", [("--entity-name", "alice"), ("--entity-default",)])
def test_quotas_of_users_by_kafka_configs(
    java: Java,
    servers: str,
    kafka_tools: Tool,
    admin: bradbury.Admin,
    options: tuple[str, ...],
) -> None:
    """To describe a user the tool asks for its SCRAM credentials, too: here quotas are looked at."""
    whose = ("--entity-type", "users", *options)
    entity = ClientQuotaEntity(user="alice" if "alice" in options else "")
    with kafka_tools.call(f"kafka-configs --alter (quotas of users, {options[0]})"):
        for change in (
            ("--add-config", "consumer_byte_rate=2048,controller_mutation_rate=1.5"),
            ("--delete-config", "controller_mutation_rate"),
        ):
            ran = java(CONFIGS, "--bootstrap-server", servers, "--alter", *whose, *change)
            assert ran.code == 0, ran.out + ran.err
        assert admin.describe_client_quotas()[entity] == {"consumer_byte_rate": 2048.0}
        ran = java(CONFIGS, "--bootstrap-server", servers, "--describe", *whose)
        assert "consumer_byte_rate=2048.0" in ran.out
        admin.alter_client_quotas({entity: {"consumer_byte_rate": None}})


def test_what_may_not_be_is_refused_in_kafkas_words(
    java: Java, servers: str, kafka_tools: Tool
) -> None:
    whose = ("--entity-type", "clients", "--entity-name", "loader")
    with kafka_tools.call("kafka-configs --alter: a quota that may not be"):
        ran = java(
            CONFIGS, "--bootstrap-server", servers, "--alter", *whose,
            "--add-config", "producer_byte_rate=-1",
        )  # fmt: skip
        assert "Quota producer_byte_rate must be greater than 0" in ran.out + ran.err

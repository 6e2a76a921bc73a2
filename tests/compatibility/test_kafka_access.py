"""Apache Kafka with its StandardAuthorizer refuses what ours does, with the same error codes.

What tests/live/security/test_access_matrix wants of a client without any right is asked of Kafka
itself, at the newest version that both speak.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.handlers.server.table import APIS
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.compatibility.support.kafka_jars import require_kafka
from tests.live.security.access_scene import AUTHORIZER, errors
from tests.live.security.test_access_matrix import CODES, NEEDED, REFUSED_AS, needed, request_of
from tests.support.wire.sample_requests import Sample

pytestmark = [pytest.mark.java, pytest.mark.deep]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PATIENCE = 60
SECURITY: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its listener for everybody, a super user, and the one on which alice is somebody."""
    require_kafka()
    broker = KafkaBroker(tmp_path_factory.mktemp("authorized") / "kafka", heap="256m")
    secured = broker.bootstrap_servers.rpartition(":")[2]
    controller = broker.controller_port
    plain = controller + 1
    addresses = f"SASL_PLAINTEXT://127.0.0.1:{secured},PLAINTEXT://127.0.0.1:{plain}"
    broker.config |= {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{LOGIN} required user_alice="secret";'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with broker:
        until(lambda: socket.create_connection(("127.0.0.1", plain), 1).close(), OSError)
        yield f"127.0.0.1:{plain}", broker.bootstrap_servers


def until(attempt: Any, *failures: type[Exception]) -> Any:
    """What it returns, once it does not fail."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except failures:
            assert time.monotonic() < deadline
            time.sleep(0.5)


def test_a_client_without_rights_is_told_the_same_by_kafka(kafka: tuple[str, str]) -> None:
    plain, secured = kafka
    with bradbury.Admin(plain) as root:
        for topic in ("matrix", "victim"):
            root.create_topic(topic, 2, 1)
    # Its coordinators come up with the first question for them.
    sample = until(lambda: Sample.of(plain, "matrix"), AssertionError)
    differences = []
    with bradbury.Admin(secured, **SECURITY) as alice:
        for api in APIS.values():
            if api.name not in NEEDED:
                continue
            request = request_of(api.key, api.highest, sample)
            if api.name == "DescribeUserScramCredentials":
                # All users, null, is what Kafka 4.1.1 fails to refuse: it gives no answer at all.
                request.users = []
            module = import_module(type(request).__module__)
            response = getattr(module, type(request).__name__.replace("Request", "Response"))
            client = alice._client
            found = errors(client.run(client.send_to_any(request, response), PATIENCE * 1000))
            ways = needed(api.name, api.highest)
            wanted = {CODES[resource] for way in ways for _, resource in way}
            if api.name in REFUSED_AS:
                wanted = {CODES[REFUSED_AS[api.name]]}
            if not found & wanted or found - wanted - {0, ErrorCode.OPERATION_NOT_ATTEMPTED}:
                differences.append(f"{api.name}: Kafka {sorted(found)}, ours {sorted(wanted)}")
    assert differences == []

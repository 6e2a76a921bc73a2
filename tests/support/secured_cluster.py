"""A cluster whose clients show a password over TLS, and whose nodes show each other certificates."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.tests.support.certificates import CertificateAuthority

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER: Final = "alice"
PASSWORD: Final = "hunter2-and-more"
"""Looked for where nobody must see it."""


@contextmanager
def secured_cluster(
    authority: CertificateAuthority, nodes: int = 2
) -> Iterator[tuple[bradbury.LocalCluster, dict[str, Any]]]:
    """And what alice says to be let in, by SCRAM-SHA-512."""
    config = {
        "listeners": "CLIENT://:0,INTERNAL://:0",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "listener.name.internal.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.client.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required user_admin="a-secret";'
        ),
    }
    tls = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": authority.certificate,
    }
    first = {"sasl_mechanism": "PLAIN", "sasl_username": "admin", "sasl_password": "a-secret"}
    with bradbury.local(nodes=nodes, config=config) as cluster:
        with cluster.admin(**tls, **first) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(USER, PASSWORD, "SCRAM-SHA-512")]
            )
        alice = {
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
        yield cluster, tls | alice

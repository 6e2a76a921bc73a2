"""Both brokers with listeners PLAIN (administration), TLS, and LOGIN (TLS, SCRAM-SHA-512)."""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import time
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.free_ports import free_ports

from .contestants import Bradbury, Contestant, Kafka
from .scram_logins import Login, log_in_for

USER, PASSWORD = "alice", "hunter2-and-more"
ITERATIONS = 4096
WAIT_SECONDS = 60
TLS, LOGIN = "TLS", "LOGIN"
PROTOCOLS = {"PLAIN": "PLAINTEXT", TLS: "SSL", LOGIN: "SASL_SSL"}


def secured(authority: CertificateAuthority, name: str) -> dict[str, str]:
    """Config of both brokers besides their addresses."""
    return {
        "inter.broker.listener.name": "PLAIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign(name),
    }


def add_user(broker: Contestant) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 4})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    user = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin.alter_user_scram_credentials([user])[USER].result(WAIT_SECONDS)


class SecuredBradbury(Bradbury):
    def __init__(self, folder: Path, authority: CertificateAuthority) -> None:
        config = {
            "listeners": ",".join(f"{name}://:0" for name in PROTOCOLS),
            "listener.security.protocol.map": ",".join(map(":".join, PROTOCOLS.items())),
            **secured(authority, "bradbury"),
        }
        super().__init__(folder, config=config, listeners=PROTOCOLS)

    def __enter__(self) -> Self:
        super().__enter__()
        add_user(self)
        return self


class SecuredKafka(Kafka):
    def __init__(self, folder: Path, authority: CertificateAuthority) -> None:
        super().__init__(folder)
        broker = self._broker
        first = free_ports(2)
        tls, login = (f"127.0.0.1:{port}" for port in (first, first + 1))
        self.listeners = {"PLAIN": broker.bootstrap_servers, TLS: tls, LOGIN: login}
        addresses = ",".join(f"{name}://{address}" for name, address in self.listeners.items())
        protocols = {**PROTOCOLS, "CONTROLLER": "PLAINTEXT"}
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        broker.config |= {
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
            **secured(authority, "kafka"),
        }

    def __enter__(self) -> Self:
        super().__enter__()
        add_user(self)
        return self


class LogIns(NamedTuple):
    """Measured log-ins. rate: a second. broker_cpu: milliseconds for each. client_cpu: cores."""

    rate: float
    broker_cpu: float
    client_cpu: float


class Clients:
    """Processes that log in again and again, each time with a whole TLS handshake."""

    def __init__(self, count: int, authority: CertificateAuthority) -> None:
        self._count = count
        self._authority = authority.certificate
        self._pool: Pool = multiprocessing.get_context("spawn").Pool(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def log_in(self, broker: Contestant, seconds: float) -> LogIns:
        host, _, port = broker.listeners[LOGIN].partition(":")
        login = Login((host, int(port)), self._authority, USER, PASSWORD)
        settle = self._pool.starmap(log_in_for, [(login, 0.2)] * self._count, chunksize=1)
        assert all(made.count for made in settle)
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        made = self._pool.starmap(log_in_for, [(login, seconds)] * self._count, chunksize=1)
        took = time.perf_counter() - began
        spent = broker.cpu_seconds() - cpu
        count = sum(each.count for each in made)
        return LogIns(count / took, spent * 1e3 / count, sum(each.cpu for each in made) / took)


def tls_settings(broker: Contestant, authority: CertificateAuthority) -> dict[str, str]:
    """librdkafka settings of the listener with TLS."""
    return {
        "bootstrap.servers": broker.listeners[TLS],
        "security.protocol": "ssl",
        "ssl.ca.location": authority.certificate,
    }


def cipher_of(broker: Contestant, authority: CertificateAuthority) -> str:
    """TLS version and cipher that an OpenSSL client negotiates with this broker."""
    context = ssl.create_default_context(cafile=authority.certificate)
    host, _, port = broker.listeners[TLS].partition(":")
    connected = socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)
    with context.wrap_socket(connected, server_hostname=host) as secure:
        found = secure.cipher()
        assert found is not None
        return f"{found[1]} {found[0]}"

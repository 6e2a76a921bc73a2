"""Client that authenticates by SCRAM-SHA-512 over TLS and disconnects, with minimal work.

The salted password is computed once: its thousands of hashes, which only the client computes,
would take longer than all the work of a broker. Layouts: SaslHandshake v1 and
SaslAuthenticate v0 of Kafka's message definitions.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
import time
from functools import cache
from typing import NamedTuple

from bradbury.protocol.security.scram import client_proof, salted_password
from bradbury.protocol.security.scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFirst,
    auth_message,
)

MECHANISM = "SCRAM-SHA-512"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
LONGEST_ANSWER_S = 30.0


class Login(NamedTuple):
    address: tuple[str, int]
    authority: str
    user: str
    password: str


class Made(NamedTuple):
    """Log-ins made. count: number. cpu: CPU seconds of this process."""

    count: int
    cpu: float


_salted = cache(salted_password)


@cache
def _context(authority: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority)


def log_in_for(login: Login, seconds: float) -> Made:
    """Log in with one connection after another. Raises ConnectionError: a log-in was refused."""
    cpu, ends = time.process_time(), time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < ends:
        log_in(login)
        count += 1
    return Made(count, time.process_time() - cpu)


def log_in(login: Login) -> None:
    with socket.create_connection(login.address, timeout=LONGEST_ANSWER_S) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = _context(login.authority)
        with context.wrap_socket(plain, server_hostname=login.address[0]) as secure:
            mechanism = MECHANISM.encode()
            _ask(secure, SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
            nonce = base64.b64encode(os.urandom(18)).decode()
            first = ClientFirst.of(login.user, nonce)
            challenge = _authenticate(secure, first.encode())
            asked = ServerFirst.parse(challenge)
            salted = _salted(MECHANISM, login.password, asked.salt, asked.iterations)
            final = ClientFinal.of(first.header, asked.nonce)
            message = auth_message(first, challenge, final)
            outcome = _authenticate(secure, final.encode(client_proof(MECHANISM, salted, message)))
            if not outcome.startswith(b"v="):
                raise ConnectionError(f"unexpected final SCRAM message: {outcome!r}")


def _authenticate(secure: ssl.SSLSocket, said: bytes) -> bytes:
    answer = _ask(secure, SASL_AUTHENTICATE, 0, struct.pack(">i", len(said)) + said)
    (length,) = struct.unpack_from(">h", answer, 6)
    at = 8 + max(length, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def _ask(secure: ssl.SSLSocket, api_key: int, version: int, body: bytes) -> bytes:
    """Send a request; returns the response without its frame, with its correlation id."""
    request = struct.pack(">hhih", api_key, version, 7, -1) + body
    secure.sendall(struct.pack(">i", len(request)) + request)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        more = secure.recv(1 << 14)
        if not more:
            raise ConnectionError("the broker has closed the connection")
        received += more
    (error,) = struct.unpack_from(">h", received, 8)
    if error:
        raise ConnectionError(f"request {api_key} was answered with error {error}")
    return received[4:]

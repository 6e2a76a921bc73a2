"""Hostile clients at ports with TLS, for measuring the latency of another client.

    half-open    HALF_OPEN connections that begin a handshake and never finish it, each reopened
                     when the broker closes it
    and RATE times a second one of these, in turn:
    garbage      a kilobyte of random bytes, instead of a handshake
    plaintext    a request without TLS
    broken off   a whole ClientHello, then the connection is closed
    refused      a whole handshake, then a token that is too long, of an unknown user

They run in a process of their own, so that the attack takes no time of the measured client.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from multiprocessing.synchronize import Event
from typing import Final

HALF_OPEN: Final = 1_000
RATE: Final = 100
LONG_TOKEN: Final = 60_000
WAIT_SECONDS: Final = 2.0
READY_SECONDS: Final = 60.0

Address = tuple[str, int]


def _client_hello() -> bytes:
    """ClientHello of an OpenSSL client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    talk = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


def _garbage(address: Address) -> None:
    _say(address, os.urandom(1024))


def _plaintext(address: Address) -> None:
    request = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"  # ApiVersions v0
    _say(address, len(request).to_bytes(4, "big") + request)


def _broken_off(address: Address) -> None:
    with socket.create_connection(address, timeout=WAIT_SECONDS) as sock:
        sock.sendall(_client_hello())


def _say(address: Address, said: bytes) -> None:
    with socket.create_connection(address, timeout=WAIT_SECONDS) as sock:
        sock.sendall(said)
        sock.recv(1024)


def _refused(address: Address) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(address, timeout=WAIT_SECONDS) as sock,
        context.wrap_socket(sock) as secure,
    ):
        mechanism = b"\x00\x0dSCRAM-SHA-512"
        handshake = b"\x00\x11\x00\x01\x00\x00\x00\x07\xff\xff" + mechanism
        token = b"n,,n=nobody,r=" + b"x" * LONG_TOKEN
        said = b"\x00\x24\x00\x00\x00\x00\x00\x08\xff\xff" + len(token).to_bytes(4, "big") + token
        for request in (handshake, said):
            secure.sendall(len(request).to_bytes(4, "big") + request)
            secure.recv(1024)


def _attack(tls: Address, login: Address, ready: Event, stop: Event) -> None:
    hello = _client_hello()[:40]

    def begin() -> socket.socket | None:
        with contextlib.suppress(OSError):
            sock = socket.create_connection(tls, timeout=WAIT_SECONDS)
            sock.sendall(hello)
            sock.setblocking(False)
            return sock
        return None

    def is_given_up(sock: socket.socket) -> bool:
        try:
            return not sock.recv(1024)
        except BlockingIOError:
            return False
        except OSError:
            return True

    half_open = [sock for _ in range(HALF_OPEN) if (sock := begin()) is not None]
    ready.set()
    begun = time.perf_counter()
    strikes = cycle([(_garbage, tls), (_plaintext, tls), (_broken_off, tls), (_refused, login)])
    for number, (strike, address) in enumerate(strikes):
        if stop.is_set():
            break
        with contextlib.suppress(OSError):
            strike(address)
        if number % RATE == 0:
            for sock in [each for each in half_open if is_given_up(each)]:
                sock.close()
                half_open.remove(sock)
            while len(half_open) < HALF_OPEN and (again := begin()) is not None:
                half_open.append(again)
        time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
    for sock in half_open:
        sock.close()


@contextmanager
def attacked(tls: str, login: str) -> Iterator[None]:
    """Context in which these two addresses are attacked. Raises TimeoutError: it did not start."""
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    addresses = [_address(each) for each in (tls, login)]
    process = context.Process(target=_attack, args=(*addresses, ready, stop), daemon=True)
    process.start()
    try:
        if not ready.wait(READY_SECONDS):
            raise TimeoutError("the attack did not start")
        yield
    finally:
        stop.set()
        process.join(READY_SECONDS)
        process.kill()


def _address(said: str) -> Address:
    host, _, port = said.rpartition(":")
    return host, int(port)

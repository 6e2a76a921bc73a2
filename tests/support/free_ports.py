"""Ports for processes that are told theirs.

Below those that the operating system gives to connections, and Ray to its workers: one of theirs
that was free a moment ago may be some client's when the process comes to it.
"""

import random
import socket

PORTS = range(21_000, 31_000)
UP_PORTS = 64
"""At least as many as `bradbury up` takes from its --port on."""


def free_ports(count: int, host: str = "127.0.0.1") -> int:
    """The first of so many, in a row."""
    for _ in range(200):
        first = random.choice(range(PORTS.start, PORTS.stop - count, 16))
        if all(_is_free(host, port) for port in range(first, first + count)):
            return first
    raise AssertionError(f"no {count} free ports in a row")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

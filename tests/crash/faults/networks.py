"""A network of its own for each Ray node on this machine, so that it can be cut between two of them.

A network namespace with one end of a virtual cable, whose other end is in a bridge; this process,
the clients and Ray's head are at the bridge itself.

A cut: packets to an address go to a hardware address that nobody has, so they vanish without a word,
in one direction. It takes Linux, root and `ip`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

NOBODY = "02:00:00:00:00:ff"


class NotHere(Exception):
    """Networks cannot be made on this machine. One line: why."""


class OwnNetwork(NamedTuple):
    """The network of one node: a namespace's name, and its address."""

    name: str
    address: str

    @property
    def command(self) -> list[str]:
        """What runs a command in it."""
        return ["ip", "netns", "exec", self.name]


class Networks(NamedTuple):
    here: str
    """Address of this side."""
    nodes: list[OwnNetwork]


@contextmanager
def own_networks(count: int) -> Iterator[Networks]:
    """Raises NotHere."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise NotHere("cutting a network takes root and the command `ip`")
    number = os.getpid() % 250
    prefix, subnet = f"bc{os.getpid() % 100_000}", f"10.77.{number}"
    bridge = f"{prefix}br"
    nodes = [OwnNetwork(f"{prefix}n{each}", f"{subnet}.{each + 1}") for each in range(1, count + 1)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for each, node in enumerate(nodes, 1):
            outer = f"{prefix}v{each}"
            _ip("netns", "add", node.name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", node.name)
            _ip("link", "set", outer, "master", bridge)
            _ip("link", "set", outer, "up")
            _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", "eth0")
            _ip("-n", node.name, "link", "set", "eth0", "up")
            _ip("-n", node.name, "link", "set", "lo", "up")
        yield Networks(f"{subnet}.1", nodes)
    finally:
        for node in nodes:
            _ip("netns", "del", node.name, check=False)
        _ip("link", "del", bridge, check=False)


def cut(source: OwnNetwork, target: OwnNetwork) -> None:
    """Nothing that `source` sends reaches `target` any more."""
    _ip(
        *("-n", source.name, "neigh", "replace", target.address),
        *("lladdr", NOBODY, "nud", "permanent", "dev", "eth0"),
    )


def mend_all(networks: Iterable[OwnNetwork]) -> None:
    for network in networks:
        _ip("-n", network.name, "neigh", "flush", "dev", "eth0", "nud", "permanent")


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise NotHere(f"ip {' '.join(words)}: {done.stderr.strip()}")

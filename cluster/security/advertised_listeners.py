"""Addresses at which clients and other nodes reach a node's listeners: Kafka's
advertised.listeners.

Behind a proxy, port forwarding or NAT they differ from the bound addresses. One setting is for all
nodes of a cluster, so a host may be a reference that each node resolves itself, and a port is that
of the first node of a machine: other nodes add the same offset as to the ports of `listeners`.
Source: apache/kafka core/.../server/KafkaConfig.scala (validateValues), ListenerInfo.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...protocol.errors import InvalidConfig
from ..metadata.listener_address import ListenerAddress

NAME: Final = "advertised.listeners"
LARGEST_PORT: Final = 2**16 - 1
UNROUTABLE: Final = ("0.0.0.0", "::")  # noqa: S104 -- not bound: refused
_REFERENCE: Final = r"\$\{(?:file|dir|env):[^}]*\}"
_BETWEEN: Final = re.compile(r",(?![^{]*\})")
_LISTENER: Final = re.compile(
    rf"([A-Za-z0-9_-]+)://(\[[0-9A-Za-z%._:-]*\]|(?:{_REFERENCE}|[0-9A-Za-z%._:-])*)"
    rf":(\d{{1,5}}|{_REFERENCE})"
)


class AdvertisedListener(NamedTuple):
    """An advertised address. host: "" is the node's own. port: None is a reference; 0 is the bound
    port.
    """

    name: str
    host: str
    port: int | None

    @property
    def is_fixed(self) -> bool:
        """Whether nodes with the same port offset all have this same address."""
        return bool(self.host) and "${" not in self.host and bool(self.port)


def parse_advertised(text: str, names: Sequence[str]) -> tuple[AdvertisedListener, ...]:
    """Parse the setting, in the order of its text. `names`: names of the existing listeners.

    Raises InvalidConfig: not NAME://host:port, no such listener, two of a name, or an address
    that means all interfaces.
    """
    found: dict[str, AdvertisedListener] = {}
    for part in filter(None, (each.strip() for each in _BETWEEN.split(text))):
        match = _LISTENER.fullmatch(part)
        if match is None:
            raise InvalidConfig(f"{NAME}: {part!r} is not NAME://host:port")
        name, host = match[1].upper(), match[2].removeprefix("[").removesuffix("]")
        port = int(match[3]) if match[3].isdecimal() else None
        if port is not None and port > LARGEST_PORT:
            raise InvalidConfig(f"{NAME}: {part!r} is not NAME://host:port")
        if host in UNROUTABLE:
            raise InvalidConfig(
                f"{NAME} cannot use the nonroutable meta-address {host}; use the one that clients "
                f"reach, or nothing for each node's own: {name}://:{match[3]}"
            )
        if name in found:
            raise InvalidConfig(f"{NAME}: there are two of the name {name}")
        found[name] = AdvertisedListener(name, host, port)
    if unknown := [name for name in found if name not in names]:
        raise InvalidConfig(
            f"{NAME} listener names must be equal to or a subset of the ones defined in "
            f"listeners: there is no {', '.join(unknown)}, only {', '.join(names)}"
        )
    return tuple(found.values())


def advertised_addresses(
    advertised: Sequence[AdvertisedListener],
    bound: Mapping[str, int],
    *,
    host: str,
    port_offset: int,
) -> tuple[ListenerAddress, ...]:
    """Advertised addresses of one node; the bound ones if `advertised` is empty.

    bound: the ports of all its listeners, by their names. host: its own, as others reach it.
    port_offset: what it adds to the ports of `listeners`.

    Raises:
        InvalidConfig: the port would be too large.
    """
    if not advertised:
        return tuple(ListenerAddress(name, host, port) for name, port in bound.items())
    addresses = []
    for each in advertised:
        assert each.port is not None, "references are resolved"
        port = each.port + port_offset if each.port else bound[each.name]
        if port > LARGEST_PORT:
            raise InvalidConfig(
                f"{NAME}: {each.name} begins at port {each.port}, and this node would be at "
                f"{port}, beyond {LARGEST_PORT}"
            )
        addresses.append(ListenerAddress(each.name, each.host or host, port))
    return tuple(addresses)

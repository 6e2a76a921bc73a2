"""Entities of client quotas: users, client ids, both together, or addresses; by name or default.

    (("client-id", "loader"), ("user", "alice"))     of this client id of this user
    (("user", None),)                                of every user that has none of its own

Sorted by type, so that equal entities compare equal. Names are never empty: None is the default.
Source: apache/kafka ClientQuotaEntity, ClientQuotaControlManager, QuotaConfig; KIP-546, KIP-612.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import Final

from ...protocol.config_key import INT_MAX, LONG_MAX
from ...protocol.errors import InvalidRequest

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Entity of a quota: (type, name) of each part."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_LONG: Final = (LONG_MAX, "a LONG")
_INT: Final = (INT_MAX, "an INT")
_CLIENT_QUOTA_KEYS: Final[Mapping[str, tuple[int, str] | None]] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Largest value and its type by quota key; None for keys that take fractions."""
_IP_QUOTA_KEYS: Final[Mapping[str, tuple[int, str] | None]] = {CONNECTION_CREATION_RATE: _INT}
SMALLEST_FRACTION = 1e-6


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    return tuple(sorted(parts.items()))


def show_entity(entity: QuotaEntity) -> str:
    """Text of an entity, as in Kafka's messages."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def check_entity(entity: QuotaEntity) -> None:
    """Raise InvalidRequest unless a quota can be set for this entity."""
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise InvalidRequest(f"Empty {kind} not supported")
    parts = dict(entity)
    if IP in parts:
        if len(parts) > 1:
            raise InvalidRequest(
                "Invalid quota entity combination, IP entity should"
                "not be combined with User or ClientId"
            )
        address = parts[IP]
        if address is not None and plain_address(address) is None:
            raise InvalidRequest(f"{address} is not a valid IP or resolvable host.")


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise InvalidRequest unless the entity, already checked, can have this quota."""
    allowed = _IP_QUOTA_KEYS if entity[0][0] == IP else _CLIENT_QUOTA_KEYS
    if key not in allowed:
        whose = "an address" if allowed is _IP_QUOTA_KEYS else "a user or client id"
        raise InvalidRequest(
            f"Invalid configuration key {key}: quotas of {whose} are {', '.join(allowed)}"
        )
    if math.isnan(value) or value <= 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    whole = allowed[key]
    if whole is None:
        return
    largest, kind = whole
    if value > largest:
        raise InvalidRequest(f"Proposed value for {key} is too large for {kind}.")
    if value % 1.0 > SMALLEST_FRACTION:
        raise InvalidRequest(f"{key} cannot be a fractional value.")


def plain_address(text: str) -> str | None:
    """Normalized text of an IP address: IPv4 for an IPv4-mapped IPv6 address. None: not an address.

    Unlike Kafka: names of hosts are not looked up.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)

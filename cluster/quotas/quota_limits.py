"""Effective quotas of clients: the most specific one, and the clients that share it.

In this order, the first that is set:

    1  user and client id            5  default user and default client id
    2  user and default client id    6  default user
    3  user                          7  client id
    4  default user and client id    8  default client id

A quota of 3 or 6 is shared by all clients of a user, one of 7 or 8 by all users of a client id; the
others apply to each pair. Source: ClientQuotaManager.DefaultQuotaCallback; KIP-55.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from .quota_entity import CLIENT_ID, IP, USER, QuotaEntity, plain_address

ABSENT: Final = ""
"""Marks a part that the entity does not have, in place of a name; None is the default entity."""
_Key = tuple[str | None, str | None]
"""(user, client id)."""


class Sharers(NamedTuple):
    """Group of clients measured together. "": any user or client id."""

    user: str
    client_id: str


class QuotaLimits:
    """The quotas of one key, by entity. Immutable."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._limits: dict[_Key, float] = {}
        for entity, values in quotas.items():
            parts = dict(entity)
            if key in values and IP not in parts:
                place = parts.get(USER, ABSENT), parts.get(CLIENT_ID, ABSENT)
                self._limits[place] = values[key]

    def __bool__(self) -> bool:
        return bool(self._limits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaLimits) and self._limits == other._limits

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up

    def of(self, user: str, client_id: str) -> tuple[Sharers, float | None]:
        """(clients that share the quota with this client, its value); value None: no limit."""
        sharers = self._sharers(user, client_id)
        return sharers, self._limit(sharers)

    def _sharers(self, user: str, client_id: str) -> Sharers:
        limits = self._limits
        if (client_id and (user, client_id) in limits) or (user, None) in limits:
            return Sharers(user, client_id)
        if (user, ABSENT) in limits:
            return Sharers(user, "")
        if (client_id and (None, client_id) in limits) or (None, None) in limits:
            return Sharers(user, client_id)
        if (None, ABSENT) in limits:
            return Sharers(user, "")
        return Sharers("", client_id)

    def _limit(self, sharers: Sharers) -> float | None:
        user, client_id = sharers
        places: tuple[_Key, ...]
        if user and client_id:
            places = ((user, client_id), (user, None), (None, client_id), (None, None))
        elif user:
            # As in Kafka, quotas of pairs do not apply to a client without an id.
            places = ((user, ABSENT), (None, ABSENT))
        elif client_id:
            places = ((ABSENT, client_id), (ABSENT, None))
        else:
            places = ()
        return next((self._limits[place] for place in places if place in self._limits), None)


class Limits(Protocol):
    """Limits as ClientQuotaRates needs them."""

    def of(self, user: str, client_id: str) -> tuple[Sharers, float | None]: ...


class AddressLimits:
    """Limits by address (connection_creation_rate); the address is passed as user. Immutable."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._limits = {
            name and plain_address(name): values[key]
            for ((kind, name), *_), values in quotas.items()
            if kind == IP and key in values
        }

    def __bool__(self) -> bool:
        return bool(self._limits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressLimits) and self._limits == other._limits

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up

    def of(self, user: str, client_id: str) -> tuple[Sharers, float | None]:
        """(clients that share the quota, its value); see QuotaLimits.of."""
        address = plain_address(user) or user
        limit = self._limits.get(address)
        return Sharers(address, client_id), self._limits.get(None) if limit is None else limit

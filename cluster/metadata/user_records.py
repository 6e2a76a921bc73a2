"""Records of users' credentials and tokens, and how they change their parts of the image.

Keys are in base64 and never shown: anyone who has them can try passwords, or pose as the broker.
Records do not contain passwords.
Source: UserScramCredentialRecord.json, DelegationTokenRecord.json, ScramImage in apache/kafka.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from ...protocol.security.scram import MECHANISM_TYPES, ScramCredential

ScramCredentials: TypeAlias = Mapping[str, Mapping[str, ScramCredential]]
"""SCRAM credentials by user and mechanism."""
_KEYS: Final = ("salt", "stored_key", "server_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """SCRAM credential of a user for one mechanism; replaces the former one. mechanism: KIP-554's
    number.
    """

    name: str
    mechanism: int
    iterations: int
    salt: str = field(repr=False)
    stored_key: str = field(repr=False)
    server_key: str = field(repr=False)

    @classmethod
    def of(cls, name: str, mechanism: int, value: ScramCredential) -> UserScramCredentialRecord:
        return cls(
            name=name,
            mechanism=mechanism,
            iterations=value.iterations,
            salt=base64.b64encode(value.salt).decode(),
            stored_key=base64.b64encode(value.stored_key).decode(),
            server_key=base64.b64encode(value.server_key).decode(),
        )

    @property
    def credential(self) -> ScramCredential:
        return ScramCredential(
            salt=base64.b64decode(self.salt),
            stored_key=base64.b64decode(self.stored_key),
            server_key=base64.b64decode(self.server_key),
            iterations=self.iterations,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A delegation token (KIP-48) without its HMAC; replaces the former one of this id.

    owner, requester, renewers: principals as text. Times in milliseconds since 1970; the token
    expires at expiry_timestamp, and cannot be renewed beyond max_timestamp.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    token_id: str


def apply_scram(
    users: dict[str, Mapping[str, ScramCredential]],
    record: UserScramCredentialRecord | RemoveUserScramCredentialRecord,
) -> None:
    changed = dict(users.get(record.name, {}))
    mechanism = MECHANISM_TYPES[record.mechanism]
    if isinstance(record, UserScramCredentialRecord):
        changed[mechanism] = record.credential
    else:
        changed.pop(mechanism, None)
    if changed:
        users[record.name] = MappingProxyType(changed)
    else:
        users.pop(record.name, None)


def apply_token(
    tokens: dict[str, DelegationTokenRecord],
    record: DelegationTokenRecord | RemoveDelegationTokenRecord,
) -> None:
    if isinstance(record, DelegationTokenRecord):
        tokens[record.token_id] = record
    else:
        tokens.pop(record.token_id, None)


def scram_records(users: ScramCredentials) -> Iterator[UserScramCredentialRecord]:
    """Records that build this part of an image from nothing."""
    for name, credentials in users.items():
        for number, mechanism in MECHANISM_TYPES.items():
            if mechanism in credentials:
                yield UserScramCredentialRecord.of(name, number, credentials[mechanism])


def without_keys(value: bytes | None) -> bytes | None:
    """Value of a record without secret keys; values of other record types are unchanged."""
    if value is None or not value.startswith(b'{"type":"UserScramCredentialRecord"'):
        return value
    try:
        body = json.loads(value)
    except ValueError:
        return b"[hidden]"
    shown = body | dict.fromkeys(_KEYS, "[hidden]")
    return json.dumps(shown, separators=(",", ":")).encode()

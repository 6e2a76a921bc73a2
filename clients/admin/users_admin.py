"""Users' SCRAM credentials (KIP-554): methods of Admin, and their steps.

A password never leaves this process: only its salted hash is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, error_for
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ...protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from ...protocol.security.scram import HASHES, MECHANISM_TYPES, salted_password
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient

T = TypeVar("T")

SALT_BYTES: Final = 32
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
DEFAULT_ITERATIONS: Final = 8192
UNKNOWN: Final = "UNKNOWN"
_NUMBERS: Final = {mechanism: number for number, mechanism in MECHANISM_TYPES.items()}


class ScramCredentialInfo(NamedTuple):
    """SCRAM credential. mechanism: SCRAM-SHA-256, SCRAM-SHA-512, or UNKNOWN to this client."""

    mechanism: str
    iterations: int


class UserScramCredentialsDescription(NamedTuple):
    name: str
    credential_infos: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Credential to add to a user, or to replace. The salt is random by default."""

    user: str
    password: str = field(repr=False)
    mechanism: str = DEFAULT_MECHANISM
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check(self.mechanism)
        if self.iterations < 1:  # the broker checks the bounds; fewer than 1 cannot be computed
            raise ValueError(f"iterations={self.iterations}: use 4096 to 16384")


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    user: str
    mechanism: str = DEFAULT_MECHANISM

    def __post_init__(self) -> None:
        _check(self.mechanism)


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class UsersCalls:
    """Part of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do."""

    def __init__(self, client: ClusterClient, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def describe_user_scram_credentials(
        self, users: Iterable[str] = ()
    ) -> list[UserScramCredentialsDescription]:
        """SCRAM credentials of users, sorted by name; by default of all users.

        Raises:
            ResourceNotFound: a user has no credentials.
            DuplicateResource: a user is named twice.
        """
        return self._ask(describe_user_scram_credentials(self._client, list(users)))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration]
    ) -> None:
        """Add, replace and remove credentials, at most one per user and call (KIP-554).

        The first refusal is raised at the end. Passwords are not sent.

        Raises:
            ResourceNotFound: a credential to remove does not exist.
            UnacceptableCredential: an empty name, or not 4096 to 16384 iterations.
            DuplicateResource: a user is named twice.
        """
        self._ask(alter_user_scram_credentials(self._client, list(alterations)))

    def _ask(self, steps: Steps[T]) -> T:
        return self._client.run(steps, self._timeout_ms)


def describe_user_scram_credentials(
    client: ClusterClient, users: Sequence[str]
) -> Steps[list[UserScramCredentialsDescription]]:
    """See Admin.describe_user_scram_credentials."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
    response = yield from client.send_to_any(request, DescribeUserScramCredentialsResponse)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    described = []
    for result in response.results:
        if result.error_code:
            raise _refused(result, "SCRAM credentials")
        infos = tuple(
            ScramCredentialInfo(MECHANISM_TYPES.get(info.mechanism, UNKNOWN), info.iterations)
            for info in result.credential_infos
        )
        described.append(UserScramCredentialsDescription(result.user, infos))
    return sorted(described)


def alter_user_scram_credentials(
    client: ClusterClient, alterations: Sequence[UserScramCredentialAlteration]
) -> Steps[None]:
    """See Admin.alter_user_scram_credentials."""
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=each.user, mechanism=_NUMBERS[each.mechanism])
            for each in alterations
            if isinstance(each, UserScramCredentialDeletion)
        ],
        upsertions=[
            _upsertion(each)
            for each in alterations
            if isinstance(each, UserScramCredentialUpsertion)
        ],
    )
    response = yield from client.send_to_any(
        request, AlterUserScramCredentialsResponse, repeatable=False
    )
    mechanisms = {each.user: each.mechanism for each in alterations}
    for result in response.results:
        if result.error_code:
            raise _refused(result, f"{mechanisms[result.user]} credentials")


def _refused(
    result: DescribeUserScramCredentialsResult | AlterUserScramCredentialsResult, asked: str
) -> KafkaError:
    """The broker's refusal. Kafka's words for a credential that is missing name no remedy."""
    if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
        text = f"has no {asked}; `bradbury users list` shows who has some"
        return error_for(result.error_code, f"user {result.user!r} {text}")
    return error_for(result.error_code, f"user {result.user!r}: {result.error_message}")


def _upsertion(wanted: UserScramCredentialUpsertion) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES) if wanted.salt is None else wanted.salt
    return ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=_NUMBERS[wanted.mechanism],
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted_password(wanted.mechanism, wanted.password, salt, wanted.iterations),
    )


def _check(mechanism: str) -> None:
    if mechanism not in HASHES:
        raise ValueError(f"mechanism {mechanism!r}: use one of {', '.join(HASHES)}")

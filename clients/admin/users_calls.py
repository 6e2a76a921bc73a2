"""Methods of Admin for SCRAM users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from .users_admin import (
    UserScramCredentialAlteration,
    UserScramCredentialsDescription,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)

T = TypeVar("T")


class UsersCalls:
    """Mixin of Admin. Every call raises ConnectionFailed and RequestTimedOut as Admin's do."""

    _client: ClusterClient
    _timeout_ms: int

    def describe_user_scram_credentials(
        self, users: Iterable[str] = ()
    ) -> list[UserScramCredentialsDescription]:
        """SCRAM credentials of users, sorted by name; of all, if none is named.

        Raises:
            ResourceNotFound: a user has none.
            DuplicateResource: one is named twice.
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

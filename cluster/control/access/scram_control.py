"""Requests that change users' SCRAM credentials (KIP-554).

A request may change a user once; a user that it names twice is not changed. The outcome for a user
does not depend on other users.
Source: apache/kafka metadata/.../controller/ScramControlManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....protocol.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from ....protocol.security.scram import (
    MECHANISM_TYPES,
    MIN_ITERATIONS,
    MOST_ITERATIONS,
    ScramCredential,
)
from ...metadata.metadata_image import MetadataImage
from ...metadata.metadata_records import MetadataRecord
from ...metadata.user_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ..controller_request import DONE, ConfigRules, RequestOutcome
from .access_request import AccessRequest

MOST_SALT_BYTES: Final = 1024
MOST_NAME_BYTES: Final = 4096
"""Most bytes of a user name; a client with a longer one could not log in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDeletion:
    """A SCRAM credential to delete. mechanism: KIP-554's number."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A SCRAM credential to add or replace. credential None: the given values were invalid."""

    name: str
    mechanism: int
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUserScramCredentials(AccessRequest[dict[str, RequestOutcome]]):
    """Changes SCRAM credentials; answered with an outcome per user."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], dict[str, RequestOutcome]]:
        del rules
        named: set[str] = set()
        records: dict[str, MetadataRecord] = {}
        outcomes: dict[str, RequestOutcome] = {}
        changes: tuple[ScramDeletion | ScramUpsertion, ...] = (*self.deletions, *self.upsertions)
        for change in changes:
            try:
                if change.name in named:
                    raise DuplicateResource(
                        "A user credential cannot be altered twice in the same request"
                    )
                _check_user(change)
                records |= self._records(image, change)
            except KafkaError as error:
                if outcomes.get(change.name, DONE) == DONE:
                    outcomes[change.name] = RequestOutcome.of(error)
                records.pop(change.name, None)
            else:
                outcomes[change.name] = DONE
            named.add(change.name)
        return list(records.values()), outcomes

    def _records(
        self, image: MetadataImage, change: ScramDeletion | ScramUpsertion
    ) -> dict[str, MetadataRecord]:
        if isinstance(change, ScramUpsertion):
            credential = _checked(change.credential)
            return {
                change.name: UserScramCredentialRecord.of(change.name, change.mechanism, credential)
            }
        known = image.scram_credentials.get(change.name, {})
        if MECHANISM_TYPES[change.mechanism] not in known:
            if self.is_repeated:
                return {}
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return {
            change.name: RemoveUserScramCredentialRecord(
                name=change.name, mechanism=change.mechanism
            )
        }


def _check_user(change: ScramDeletion | ScramUpsertion) -> None:
    if not change.name:
        raise UnacceptableCredential("Username must not be empty")
    if len(change.name.encode()) > MOST_NAME_BYTES:
        raise UnacceptableCredential("Username is too long")
    if change.mechanism not in MECHANISM_TYPES:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")


def _checked(credential: ScramCredential | None) -> ScramCredential:
    if credential is None:
        raise UnacceptableCredential("The salted password must not be empty")
    if credential.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if credential.iterations > MOST_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    if len(credential.salt) > MOST_SALT_BYTES:
        raise UnacceptableCredential("The salt is too long")
    return credential

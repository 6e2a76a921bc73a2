"""Requests that create, renew and expire delegation tokens (KIP-48).

The handlers have identified the client, and the token by its HMAC: requests have the token's id.
Expired tokens are removed with every creation or renewal, and periodically by the controller.
Source: apache/kafka metadata/.../controller/DelegationTokenControlManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....protocol.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
)
from ...metadata.metadata_image import MetadataImage
from ...metadata.metadata_records import MetadataRecord
from ...metadata.user_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ..controller_request import ConfigRules, ControllerRequest
from .access_request import AccessRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationToken(AccessRequest[None]):
    """Creates a delegation token. now_ms: time of the node that received the request."""

    token: DelegationTokenRecord
    now_ms: int

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], None]:
        del rules
        return [*_expired(image, self.now_ms), self.token], None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendDelegationToken(AccessRequest[int]):
    """Renews a delegation token or sets its expiry; answered with the new expiry time.

    principal: the client's. period_ms: time from now_ms to the new expiry, which is at most
    max_timestamp; negative: the token expires at once.

    Raises:
        DelegationTokenNotFound, DelegationTokenExpired
        DelegationTokenOwnerMismatch: the principal is neither the owner nor a renewer.
    """

    token_id: str
    principal: str
    period_ms: int
    now_ms: int

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], int]:
        del rules
        token = image.delegation_tokens.get(self.token_id)
        if token is None and self.is_repeated and self.period_ms < 0:
            return [], self.now_ms  # the earlier attempt removed it
        if token is None:
            raise DelegationTokenNotFound("Delegation Token is not found on server.")
        if token.expiry_timestamp < self.now_ms:
            raise DelegationTokenExpired("Delegation Token is expired.")
        if self.principal != token.owner and self.principal not in token.renewers:
            raise DelegationTokenOwnerMismatch(
                "This Principal is not the owner or renewer of the delegation token"
            )
        records: list[MetadataRecord] = [*_expired(image, self.now_ms)]
        if self.period_ms < 0:
            records.append(RemoveDelegationTokenRecord(token_id=self.token_id))
            return records, self.now_ms
        expiry_timestamp = min(token.max_timestamp, self.now_ms + self.period_ms)
        records.append(replace(token, expiry_timestamp=expiry_timestamp))
        return records, expiry_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveExpiredTokens(ControllerRequest[int]):
    """Removes expired delegation tokens; answered with their number. now_ms: wall-clock time, as
    the expiry times are.
    """

    now_ms: int

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], int]:
        del rules
        gone = _expired(image, self.now_ms)
        return [*gone], len(gone)


def _expired(image: MetadataImage, now_ms: int) -> list[RemoveDelegationTokenRecord]:
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in image.delegation_tokens.values()
        if token.expiry_timestamp < now_ms
    ]

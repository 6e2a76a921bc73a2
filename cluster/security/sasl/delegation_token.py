"""Delegation tokens (KIP-48): an id, and its HMAC that only brokers can compute.

A client logs in by SCRAM, with the id as its name, the HMAC in base64 as its password, and the
extension tokenauth=true. Brokers do not store the HMAC: they compute it from the id and
delegation.token.secret.key, which all brokers have. Source: DelegationTokenManager.
"""

from __future__ import annotations

import base64
import hmac
from functools import lru_cache
from typing import Final

from ....protocol.principal import Principal
from ....protocol.security.scram import MIN_ITERATIONS, ScramCredential
from ...metadata.metadata_image import MetadataImage
from ...metadata.user_records import DelegationTokenRecord
from .credentials import TokenCredential

CACHED_CREDENTIALS: Final = 1_000


def token_hmac(secret: bytes, token_id: str) -> bytes:
    return hmac.digest(secret, token_id.encode(), "sha512")


def find_token(
    image: MetadataImage, secret: bytes, given_hmac: bytes
) -> DelegationTokenRecord | None:
    """The token with this HMAC."""
    for token in image.delegation_tokens.values():
        if hmac.compare_digest(token_hmac(secret, token.token_id), given_hmac):
            return token
    return None


def token_credential(
    image: MetadataImage, secret: bytes, token_id: str, mechanism: str
) -> TokenCredential | None:
    """Credential of a delegation token; None: no such token. The caller checks its expiry."""
    token = image.delegation_tokens.get(token_id)
    if token is None:
        return None
    return TokenCredential(
        owner=principal_of(token.owner).name,
        credential=_credential(secret, token_id, mechanism),
        expires_at_ms=token.expiry_timestamp,
    )


def principal_of(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


@lru_cache(maxsize=CACHED_CREDENTIALS)
def _credential(secret: bytes, token_id: str, mechanism: str) -> ScramCredential:
    """SCRAM credential of a token; cached, as computing it takes milliseconds."""
    password = base64.b64encode(token_hmac(secret, token_id)).decode()
    salt = hmac.digest(secret, b"salt " + token_id.encode(), "sha256")
    return ScramCredential.of_password(mechanism, password, salt=salt, iterations=MIN_ITERATIONS)

"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the computations of both sides.

    SaltedPassword  = PBKDF2(password, salt, iterations)
    ClientKey       = HMAC(SaltedPassword, "Client Key")      StoredKey = H(ClientKey)
    ServerKey       = HMAC(SaltedPassword, "Server Key")
    AuthMessage     = client-first-bare "," server-first "," client-final-without-proof
    ClientProof     = ClientKey XOR HMAC(StoredKey, AuthMessage)
    ServerSignature = HMAC(ServerKey, AuthMessage)

A broker stores salt, iterations, StoredKey and ServerKey: an attacker who reads them cannot log in
with them, but can try passwords offline, and can impersonate the broker.

Passwords and names are used as UTF-8, without SASLprep: Kafka and its clients omit it, and a
password that only one side prepares would not match. Source: ScramFormatter and ScramMechanism in
apache/kafka.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_TYPES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by KIP-554's numbers on the wire; 0 is unknown."""
MIN_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Maximum iterations of a credential (KIP-554). Clients accept servers with more iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """Credential of one user, derived from the password. Its repr hides all of it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"

    @classmethod
    def of_salted_password(
        cls, mechanism: str, salted: bytes, *, salt: bytes, iterations: int
    ) -> ScramCredential:
        return cls(
            salt=salt,
            stored_key=stored_key(mechanism, client_key(mechanism, salted)),
            server_key=server_key(mechanism, salted),
            iterations=iterations,
        )

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, *, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Derive a credential from a password. Takes milliseconds, as does each guess at one."""
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt=salt, iterations=iterations)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", HASHES[mechanism])


def server_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", HASHES[mechanism])


def stored_key(mechanism: str, key_of_client: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], key_of_client).digest()


def signature(mechanism: str, key: bytes, auth_message: bytes) -> bytes:
    return hmac.digest(key, auth_message, HASHES[mechanism])


def client_proof(mechanism: str, salted: bytes, auth_message: bytes) -> bytes:
    key = client_key(mechanism, salted)
    return _xor(key, signature(mechanism, stored_key(mechanism, key), auth_message))


def is_proof_of(
    mechanism: str, credential: ScramCredential, proof: bytes, auth_message: bytes
) -> bool:
    """Whether the proof was made with the password. In constant time."""
    shown = signature(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(shown):
        return False
    return hmac.compare_digest(stored_key(mechanism, _xor(proof, shown)), credential.stored_key)


def escape_name(name: str) -> str:
    """Encode a user's name as a saslname."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(saslname: str) -> str:
    """Decode the user's name; ValueError: a `=` that begins neither =2C nor =3D."""
    name = saslname.replace("=2C", ",")
    if "=" in name.replace("=3D", ""):
        raise ValueError("no saslname")
    return name.replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))

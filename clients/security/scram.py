"""SCRAM-SHA-256 and SCRAM-SHA-512, the client's side (RFC 5802, RFC 7677): pure.

    client  n,,n=alice,r=<nonce>
    server  r=<nonce><more>,s=<salt>,i=<iterations>
    client  c=biws,r=<nonce><more>,p=<proof>
    server  v=<signature>

The password is never sent, and the server shows that it knows it, too: without a right signature
nothing it says is believed. Source: ScramSaslClient in apache/kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from ...protocol.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
"""Half a second of work: a server that asks for more would make clients stand still."""
_GS2_HEADER: Final = "n,,"


class ScramClient:
    """One exchange. `nonce` is random printable text, without commas."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return (_GS2_HEADER + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof, for what the server has said to `first`.

        Raises:
            AuthenticationFailed: that is no such message, or one that is not safe to answer.
        """
        fields = _fields(challenge)
        nonce, salt = fields.get("r", ""), _decode(fields.get("s", ""))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker has answered another client's SCRAM message")
        iterations = int(text) if (text := fields.get("i", "")).isdecimal() else 0
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker asks for {text or 'no'} SCRAM iterations; "
                f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={_encode(_GS2_HEADER.encode())},r={nonce}"
        message = b",".join((self._bare.encode(), challenge, without_proof.encode()))
        stored_key = hashlib.new(self._hash, client_key).digest()
        shown = self._hmac(stored_key, message)
        proof = bytes(one ^ other for one, other in zip(client_key, shown, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={_encode(proof)}".encode()

    def check(self, outcome: bytes) -> None:
        """Raises AuthenticationFailed unless the server knows the password, too."""
        fields = _fields(outcome)
        if "e" in fields:
            raise AuthenticationFailed(f"SCRAM: {fields['e']}")
        if not hmac.compare_digest(_decode(fields.get("v", "")), self._signature):
            raise AuthenticationFailed("the broker does not know the password: it is not yours")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode(errors="replace")
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("the broker's SCRAM message is not base64") from None

"""Messages of SCRAM (RFC 5802, section 7), read and written.

    client-first  n,,n=alice,r=<nonce>[,tokenauth=true]
    server-first  r=<nonce><more>,s=<salt>,i=<iterations>
    client-final  c=biws,r=<nonce><more>,p=<proof>
    server-final  v=<signature>

Messages are parsed by the grammar of ScramMessages in apache/kafka: names are ASCII, unknown
extensions are ignored. The mandatory extension `m=` is refused, as the RFC demands.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from ..errors import MalformedRequest
from .scram import escape_name, unescape_name

TOKEN_AUTH: Final = "tokenauth"  # noqa: S105 - the name of an extension: KIP-48's
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """Client-first message. header: of GS2, repeated in client-final. bare: the rest, a part of
    AuthMessage.

    authorization_id: "" if the client authenticates as itself.
    """

    header: str
    bare: str
    name: str
    nonce: str
    authorization_id: str = ""
    is_token: bool = False

    @classmethod
    def of(cls, name: str, nonce: str, *, is_token: bool = False) -> ClientFirst:
        bare = f"n={escape_name(name)},r={nonce}" + (f",{TOKEN_AUTH}=true" if is_token else "")
        return cls(header="n,,", bare=bare, name=name, nonce=nonce, is_token=is_token)

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """Parse a message. Raises MalformedRequest: it is not a client-first message."""
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise MalformedRequest("not a SCRAM client-first message")
        extensions = dict(part.split("=", 1) for part in found["extensions"].split(",") if part)
        try:
            return cls(
                header=found["header"],
                bare=found["bare"],
                name=unescape_name(found["name"]),
                nonce=found["nonce"],
                authorization_id=unescape_name(found["authzid"] or ""),
                is_token=extensions.get(TOKEN_AUTH, "").lower() == "true",
            )
        except ValueError:
            raise MalformedRequest("not a SCRAM client-first message") from None

    def encode(self) -> bytes:
        return (self.header + self.bare).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    """Server-first message. nonce: the client's, with the server's part appended."""

    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def parse(cls, message: bytes) -> ServerFirst:
        """Parse a message. Raises MalformedRequest: it is not a server-first message."""
        found = _SERVER_FIRST.fullmatch(_text(message))
        if found is None:
            raise MalformedRequest("not a SCRAM server-first message")
        return cls(
            nonce=found["nonce"],
            salt=_decode(found["salt"]),
            iterations=int(found["iterations"]),
        )

    def encode(self) -> bytes:
        return f"r={self.nonce},s={_encode(self.salt)},i={self.iterations}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    """Client-final message. unproved: all but the proof, a part of AuthMessage. binding: the GS2
    header once more.
    """

    unproved: str
    binding: bytes
    nonce: str
    proof: bytes = b""

    @classmethod
    def of(cls, header: str, nonce: str) -> ClientFinal:
        """Make a message without a proof, which has to be computed from `unproved`."""
        binding = header.encode()
        return cls(unproved=f"c={_encode(binding)},r={nonce}", binding=binding, nonce=nonce)

    @classmethod
    def parse(cls, message: bytes) -> ClientFinal:
        """Parse a message. Raises MalformedRequest: it is not a client-final message."""
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if found is None:
            raise MalformedRequest("not a SCRAM client-final message")
        return cls(
            unproved=found["unproved"],
            binding=_decode(found["binding"]),
            nonce=found["nonce"],
            proof=_decode(found["proof"]),
        )

    def encode(self, proof: bytes) -> bytes:
        return f"{self.unproved},p={_encode(proof)}".encode()


def server_final(signature: bytes) -> bytes:
    return b"v=" + base64.b64encode(signature)


def parse_server_final(message: bytes) -> tuple[bytes, str]:
    """(server's signature, its error text). Raises MalformedRequest: not a server-final message."""
    first, _, _ = _text(message).partition(",")
    if first.startswith("e=") and len(first) > 2:
        return b"", first[2:]
    if not first.startswith("v="):
        raise MalformedRequest("not a SCRAM server-final message")
    return _decode(first[2:]), ""


def auth_message(first: ClientFirst, challenge: bytes, final: ClientFinal) -> bytes:
    return b",".join((first.bare.encode(), challenge, final.unproved.encode()))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedRequest("a SCRAM message that is not UTF-8") from None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise MalformedRequest("a SCRAM message with invalid base64") from None
    if _encode(data) != text:  # non-zero unused bits: two texts would be one proof
        raise MalformedRequest("a SCRAM message with invalid base64")
    return data

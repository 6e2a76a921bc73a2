"""Who is asking: what the connection that a request came on knows of its client.

One object for each connection, made with it; its principal is that of the moment. Kafka keeps the
same in RequestContext: listenerName, securityProtocol, clientAddress, principal.
"""

from __future__ import annotations

from typing import Protocol

from ...protocol.principal import ANONYMOUS, Principal

PLAINTEXT = "PLAINTEXT"


class SaslState(Protocol):
    """How far a client of a SASL listener has proved who it is; see security/sasl_authentication.

    max_request_bytes: of one request, while it is nobody yet; None afterwards.
    takes_raw_tokens: the next frame is a token without a header (SaslHandshake 0).
    """

    @property
    def max_request_bytes(self) -> int | None: ...
    @property
    def takes_raw_tokens(self) -> bool: ...
    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """Why this request is not served now, in words for the log; None: it is."""
        ...


class ClientSession:
    """`listener` by name, `protocol` as Kafka's SecurityProtocol, `address` without a port.

    is_token: it showed a delegation token, which is no proof for getting another.
    sasl: None where clients need not prove who they are by SASL.
    ending: why the connection is closed behind its next answer; None: it goes on.
    """

    __slots__ = ("address", "ending", "is_token", "listener", "principal", "protocol", "sasl")

    def __init__(
        self,
        address: str = "",
        *,
        listener: str = PLAINTEXT,
        protocol: str = PLAINTEXT,
        principal: Principal = ANONYMOUS,
        sasl: SaslState | None = None,
    ) -> None:
        self.address = address
        self.listener = listener
        self.protocol = protocol
        self.principal = principal
        self.sasl = sasl
        self.is_token = False
        self.ending: str | None = None


INTERNAL_SESSION = ClientSession(listener="")
"""Of requests that a node handles for itself, without a connection."""

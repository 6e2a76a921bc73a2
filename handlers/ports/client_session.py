"""Session of a client: what the connection that a request came on knows of it.

One object for each connection, made with it; its principal changes with authentication. Kafka keeps
the same in RequestContext: listenerName, securityProtocol, clientAddress, principal.
"""

from __future__ import annotations

from typing import Final, Protocol

from ...protocol.principal import ANONYMOUS, Principal

PLAINTEXT: Final = "PLAINTEXT"


class SaslState(Protocol):
    """Progress of a client's SASL authentication; see security/sasl_authentication.

    max_request_bytes: limit of one request before authentication; None afterwards.
    takes_raw_tokens: whether the next frame is a token without a header (SaslHandshake 0).
    """

    @property
    def max_request_bytes(self) -> int | None: ...
    @property
    def takes_raw_tokens(self) -> bool: ...
    def refusal(self, api_key: int, now_ms: int) -> str | None:
        """Reason why this request is refused now, for the log; None: it is served."""
        ...


class ClientSession:
    """Session of one connection.

    `listener` is a name, `protocol` a name of Kafka's SecurityProtocol, `address` without a port.

    is_token: whether it authenticated with a delegation token, which may not create others.
    sasl: None where clients do not authenticate with SASL.
    ending: reason why the connection is closed after its next response; None: it stays open.
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

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the client has still to authenticate with SASL."""
        return self.sasl is not None and self.sasl.max_request_bytes is not None


INTERNAL_SESSION: Final = ClientSession(listener="")
"""Session of requests that a node handles for itself, without a connection."""

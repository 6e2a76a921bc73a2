"""Who is asking: what the connection that a request came on knows of its client.

One object for each connection, made with it; its principal is that of the moment. Kafka keeps the
same in RequestContext: listenerName, securityProtocol, clientAddress, principal.
"""

from __future__ import annotations

from ...protocol.principal import ANONYMOUS, Principal

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"


class ClientSession:
    """`listener` by name, `protocol` as Kafka's SecurityProtocol, `address` without a port."""

    __slots__ = ("address", "listener", "principal", "protocol")

    def __init__(
        self,
        address: str = "",
        *,
        listener: str = PLAINTEXT,
        protocol: str = PLAINTEXT,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.address = address
        self.listener = listener
        self.protocol = protocol
        self.principal = principal


INTERNAL_SESSION = ClientSession()
"""Of requests that a node handles for itself, without a connection."""

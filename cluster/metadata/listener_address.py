"""Address of a node's listener: Kafka's EndPoint, by listener name."""

from __future__ import annotations

from typing import NamedTuple


class ListenerAddress(NamedTuple):
    """A listener address: `CLIENT://10.0.0.5:9092`, an IPv6 host in brackets."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> ListenerAddress:
        """Parse the text that str() produces. Raises ValueError."""
        listener, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        return cls(listener, host.removeprefix("[").removesuffix("]"), int(port))

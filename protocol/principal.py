"""Identity of a client: Kafka's KafkaPrincipal, a type and a name."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A principal, such as `User:alice`. Names are compared exactly, including case."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Principal of clients of a listener without authentication."""

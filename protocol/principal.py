"""Who a client is: Kafka's KafkaPrincipal, a kind and a name."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """`User:alice`. Names are compared as they are, case and all."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Every client of a listener that asks nobody who he is."""

"""Brokers of a queue's topics, and security settings of its clients.

They are passed to the queue's actor, and with a Queue to every process that gets one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..security.security_options import ClientSecurity, as_given


@dataclass(frozen=True, slots=True)
class QueueBrokers:
    """Brokers of a queue. bootstrap: "host:port,...". security: None: found by each process."""

    bootstrap: str
    security: ClientSecurity | None

    @property
    def client_options(self) -> dict[str, Any]:
        """Options of a Producer, Consumer or Admin. Do not log them."""
        return {"bootstrap": self.bootstrap, **as_given(self.security)}

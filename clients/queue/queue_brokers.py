"""Where a queue's topics are, and how its clients show who they are there.

It goes to the queue's actor, and with a Queue to every process that is given one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..security.security_options import ClientSecurity, as_given


@dataclass(frozen=True, slots=True)
class QueueBrokers:
    """bootstrap: "host:port,...". security: None for what each process's environment names."""

    bootstrap: str
    security: ClientSecurity | None

    @property
    def client_options(self) -> dict[str, Any]:
        """Of a Producer, Consumer or Admin. Not to be shown."""
        return {"bootstrap": self.bootstrap, **as_given(self.security)}

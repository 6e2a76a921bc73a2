"""What a handler asks about the quotas of the client of a request. Implemented in actors/quotas.

Each answer is in ms: how long the client is to be left alone, 0 for not at all. Whoever gets more
than that says so in the response (throttle_time_ms) and to `hold`, upon which the connection is not
read from for so long (KIP-219).
"""

from __future__ import annotations

from typing import Protocol

from .client_session import ClientSession
from .request_metrics import RequestTrace


class AskedBy(Protocol):
    """Of a RequestContext what quotas go by."""

    @property
    def client_id(self) -> str | None: ...
    @property
    def session(self) -> ClientSession: ...
    @property
    def trace(self) -> RequestTrace | None: ...


class Quotas(Protocol):
    """A node has one while any quota is set. Soft state."""

    @property
    def counts_time(self) -> bool:
        """Whether `handled` is of any use."""
        ...

    def produced(self, context: AskedBy) -> int:
        """The request's bytes have been taken in."""
        ...

    def fetched(self, context: AskedBy, size: int) -> int:
        """A response of so many bytes is about to be sent."""
        ...

    def not_fetched(self, context: AskedBy, size: int) -> None:
        """It was not sent after all."""
        ...

    def most_fetched(self, context: AskedBy) -> int:
        """Bytes that a client which was quiet may fetch at once without being held."""
        ...

    def handled(self, context: AskedBy) -> int:
        """The request's time, up to now, counts into its client's percentage."""
        ...

    def connecting(self, address: str) -> int:
        """Somebody connects. The connection is not served if it is to wait."""
        ...

    def hold(self, context: AskedBy, quota: str, throttle_ms: int) -> None:
        """The client is told to wait. `quota`: produce, fetch, request or controller_mutation."""
        ...

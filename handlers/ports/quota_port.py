"""Port of handlers to the quotas of the client of a request. Implemented in actors/quotas.

Most methods return a throttle time in ms; 0 means none. For a positive one the caller sets
throttle_time_ms in the response and calls `hold`, which mutes the connection for it (KIP-219).
"""

from __future__ import annotations

from typing import Protocol

from .client_session import ClientSession
from .request_metrics import RequestTrace


class AskedBy(Protocol):
    """The part of a RequestContext that quotas depend on: the client, and the request's trace."""

    @property
    def client_id(self) -> str | None: ...
    @property
    def session(self) -> ClientSession: ...
    @property
    def trace(self) -> RequestTrace | None: ...


class Quotas(Protocol):
    """Quotas of a node, while any quota is set. Soft state."""

    @property
    def counts_time(self) -> bool:
        """Whether any client has a quota of request time, so that `handled` is needed."""
        ...

    def produced(self, context: AskedBy) -> int:
        """Count the request's bytes; returns the throttle time."""
        ...

    def fetched(self, context: AskedBy, size: int) -> int:
        """Count `size` bytes of a response that is about to be sent; returns the throttle time."""
        ...

    def not_fetched(self, context: AskedBy, size: int) -> None:
        """Take back the bytes of a response that was not sent."""
        ...

    def most_fetched(self, context: AskedBy) -> int:
        """Bytes that a client within its quota may fetch at once without being throttled."""
        ...

    def handled(self, context: AskedBy) -> int:
        """Count the request's time up to now; returns the throttle time."""
        ...

    def connecting(self, address: str) -> int:
        """Count a new connection; returns the ms to delay it, 0 to serve it at once."""
        ...

    def hold(self, context: AskedBy, quota: str, throttle_ms: int) -> None:
        """Mute the client's connection. `quota`: produce, fetch, request or controller_mutation."""
        ...

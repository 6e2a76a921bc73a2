"""Metrics of a client's connections, which all clients share."""

from __future__ import annotations

import time

from .sampled_stats import Average, Figures, Meter


class ConnectionMetrics:
    """Connection metrics, recorded on the I/O thread."""

    def __init__(self) -> None:
        self._created = Meter("connection-creation")
        self._closed = Meter("connection-close")
        self._sent = Meter("outgoing-byte")
        self._received = Meter("incoming-byte")
        self._requests = Meter("request")
        self._responses = Meter("response")
        self._traffic = Meter("network-io")
        self._request_size = Average("request-size")
        self._authenticated = Meter("successful-authentication")
        self._reauthenticated = Meter("successful-reauthentication")
        self._refused = Meter("failed-authentication")
        self._refused_again = Meter("failed-reauthentication")

    def on_created(self) -> None:
        self._created.record(1, time.monotonic())

    def on_closed(self) -> None:
        self._closed.record(1, time.monotonic())

    def on_authentication(self, *, again: bool, failed: bool) -> None:
        """Record the end of a TLS handshake or SASL exchange; `again`: of an open connection."""
        meters = (self._authenticated, self._refused, self._reauthenticated, self._refused_again)
        meters[2 * again + failed].record(1, time.monotonic())

    def on_request(self, size: int, now: float) -> None:
        self._sent.record(size, now)
        self._request_size.record(size, now)
        self._requests.record(1, now)
        self._traffic.record(1, now)

    def on_response(self, size: int) -> None:
        now = time.monotonic()
        self._received.record(size, now)
        self._responses.record(1, now)
        self._traffic.record(1, now)

    def figures(self, now: float) -> Figures:
        found: Figures = {"connection-count": self._created.total - self._closed.total}
        for one in (
            self._created,
            self._closed,
            self._sent,
            self._received,
            self._requests,
            self._responses,
            self._traffic,
            self._request_size,
            self._authenticated,
            self._reauthenticated,
            self._refused,
            self._refused_again,
        ):
            found |= one.figures(now)
        return found

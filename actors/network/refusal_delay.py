"""Delay before a connection is closed after a request for an API or version that is not served.

A client that did not check ApiVersions takes the closed connection for a network failure, and
reconnects and retries thousands of times a second. So the first few connections of an address are
closed at once, as clients that try versions from the highest down need, and later ones after a
growing delay: the client sees a slow peer, and we get one connection a second. The address is
forgotten after a minute without such a request.

The delay is Kafka's idea for failed authentications (connection.failed.authentication.delay.ms).
"""

from __future__ import annotations

import time
from collections.abc import Callable

AT_ONCE = 20
FIRST_SECONDS = 0.01
LONGEST_SECONDS = 1.0
FORGOTTEN_SECONDS = 60.0
MOST_ADDRESSES = 10_000


class RefusalDelay:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, float]] = {}
        """Number of refusals and time of the last one, by address, the oldest first."""

    def seconds(self, address: str) -> float:
        """Count a refusal of this address; returns the seconds until its connection is closed."""
        now = self._clock()
        count, last = self._counts.pop(address, (0, now))
        count = 1 if now - last > FORGOTTEN_SECONDS else count + 1
        self._counts[address] = count, now
        if len(self._counts) > MOST_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        if count <= AT_ONCE:
            return 0.0
        return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count - AT_ONCE - 1, 20)))

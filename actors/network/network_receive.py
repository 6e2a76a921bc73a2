"""Request that has not arrived as a whole. Kafka's NetworkReceive.

A request longer than the node's scratch buffer is filled into a buffer of its connection's own,
which grows as bytes arrive: a false length costs hardly any memory. The buffer stays for the next
long request. `began_at` is also set while the connection keeps the first bytes of a shorter one.
"""

from __future__ import annotations

from typing import Final

# A peer that announces much and sends little costs this; the buffer follows what really comes.
FIRST_BUFFER: Final = 4 * 1024
QUICK_GROWTH: Final = 64 * 1024
MIN_BYTES_PER_SECOND: Final = 16 * 1024


class NetworkReceive:
    """A request in receipt, behind the four bytes of its length. Times are the event loop's."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.size = 0
        """Bytes of the long request that is being received; 0: there is none."""
        self.filled = 0
        self.began_at = 0.0
        """Time at which the incomplete request began; 0: there is none."""
        self.paused_at = 0.0
        """Time since which it waits for memory; 0: it does not."""

    def begin(self, start: memoryview, ends_at: int, now: float) -> None:
        """Begin a long request of `size` bytes: its first ones move to where the rest will follow.

        `ends_at`: where they end in the buffer they are in.
        """
        self.filled = len(start)
        self.began_at = now
        end = 4 + self.filled
        if len(self.buffer) < end:
            self.buffer = bytearray(min(4 + self.size, max(FIRST_BUFFER, 2 * end)))
        # Received there already, as the first of what came? Then it stays where it is.
        if start.obj is not self.buffer or end != ends_at:
            memoryview(self.buffer)[4:end] = start

    def begin_short(self, now: float) -> None:
        """Note the time of a begun request that the connection keeps, unless it is noted."""
        if not self.began_at:
            self.filled = 0
            self.began_at = now

    def grow(self) -> None:
        """Make room for more, when the buffer is full."""
        capacity = len(self.buffer)
        factor = 4 if capacity < QUICK_GROWTH else 2
        grown = bytearray(min(4 + self.size, max(FIRST_BUFFER, factor * capacity)))
        grown[:capacity] = self.buffer
        self.buffer = grown

    def resume(self, now: float) -> None:
        """End the wait for memory, which is not counted against the peer."""
        self.began_at += now - self.paused_at
        self.paused_at = 0.0

    def is_slow(self, now: float, grace_seconds: float) -> bool:
        """Whether the request began longer ago than the grace, and too little of it came since."""
        if not self.began_at or self.paused_at:
            return False
        late = now - self.began_at - grace_seconds
        return late > 0 and self.filled < late * MIN_BYTES_PER_SECOND

"""Minimum of free disk space, below which clients may not append.

A disk that is really full stops everything: checkpoints, epochs, new segments, and the deletion
that would free some. So appends of clients are refused while there is still room for the broker's
own writing. They get KAFKA_STORAGE_ERROR, which every client retries until its delivery timeout;
fetches, retention, DeleteRecords and the deletion of topics go on, and appends of the broker itself
(committed offsets) do, too. Writing resumes when there is room again.

Not a throttle: one would slow down producers whose records will not fit either, and would need to
guess how fast room is made. Not a ballast file: the minimum has the same effect, and a file would
take space from the data even while the disk is not full.

Unlike Kafka: it has no such floor, and takes a full log directory offline, reads included.
"""

from __future__ import annotations

from .storage_failure import UNLIMITED

GIBIBYTE = 1024**3
DEFAULT_SHARE = 0.03
LARGEST_SHARE = 0.1
BY_SIZE = -1


class DiskGuard:
    """Guard of a disk. `min_free_bytes`: the minimum; 0: none; BY_SIZE: 1 GiB or 3 % of the disk,
    whichever is more, but never more than a tenth of a small disk.
    """

    def __init__(self, min_free_bytes: int) -> None:
        self._min_free_bytes = min_free_bytes

    def floor(self, total_bytes: int) -> int:
        """Minimum of free bytes of a disk of `total_bytes`."""
        if self._min_free_bytes != BY_SIZE:
            return self._min_free_bytes
        wanted = max(GIBIBYTE, int(DEFAULT_SHARE * total_bytes))
        return min(wanted, int(LARGEST_SHARE * total_bytes))

    def headroom(self, free_bytes: int, total_bytes: int) -> int:
        """Bytes that clients may append until the free space is measured again; none if not
        positive.

        So the minimum also holds between two measurements, except for one batch, and unless another
        process fills the disk.
        """
        floor = self.floor(total_bytes)
        return free_bytes - floor if floor else UNLIMITED

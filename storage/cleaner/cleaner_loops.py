"""Which twin of the cleaner's loops does a cleaning: the plain one until loading the other pays.

Loading numba and the kernels costs about what PLAIN_RECORDS records cost plainly, and 60 MB. So a
node whose compacted logs are small, as __consumer_offsets on a laptop, never loads them.
"""

from __future__ import annotations

from .cleaner_plain import PlainOffsetMap
from .cleaner_rows import OffsetMap

PLAIN_RECORDS = 200_000

_plain_records = 0  # threads may lose a count; it only decides when loading pays


def make_offset_map(limit: int, seed: bytes, *, record_count: int) -> OffsetMap:
    """A map for at most `limit` keys, in a cleaning of about `record_count` records.

    `seed` is SEED_BYTES random bytes.
    """
    global _plain_records
    _plain_records += record_count
    if _plain_records <= PLAIN_RECORDS:
        return PlainOffsetMap(limit, seed)
    from .cleaner_compiled import CompiledOffsetMap

    return CompiledOffsetMap(limit, seed)

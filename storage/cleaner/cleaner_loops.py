"""Choice between the plain and the compiled loops of the cleaner: plain until loading the compiled
ones pays, which protocol/kernel_loading decides.
"""

from __future__ import annotations

from ...protocol import kernel_loading
from .cleaner_plain import PlainOffsetMap
from .cleaner_rows import OffsetMap


def make_offset_map(limit: int, seed: bytes, *, record_count: int) -> OffsetMap:
    """A map for at most `limit` keys, in a cleaning of about `record_count` records.

    `seed` is SEED_BYTES random bytes.
    """
    if not kernel_loading.is_worth_waiting(record_count):
        return PlainOffsetMap(limit, seed)
    from .cleaner_compiled import CompiledOffsetMap

    return CompiledOffsetMap(limit, seed)

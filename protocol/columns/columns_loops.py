"""Choice of the loops: the compiled ones once they are loaded, the plain ones before.

kernel_loading decides when they are loaded.
"""

from __future__ import annotations

from types import ModuleType

from .. import kernel_loading
from . import columns_plain

_compiled: ModuleType | None = None


def warm_up() -> None:
    """Load numba and the kernels. Any thread may call it, at any time; other threads continue."""
    global _compiled
    from . import columns_compiled

    _compiled = columns_compiled


def kernels_ready() -> bool:
    """Whether work is done by the kernels from now on."""
    return _compiled is not None


def loops_for(record_count: int) -> ModuleType:
    """Module for this many records: columns_compiled or columns_plain, with the same functions."""
    if _compiled is None:
        if not kernel_loading.is_worth_waiting(kernel_loading.columns_work(record_count)):
            return columns_plain
        warm_up()
    assert _compiled is not None
    return _compiled

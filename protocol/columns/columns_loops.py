"""Which loops do the work: the compiled ones once they are loaded, the plain ones before.

Loading numba and its kernels takes about as long as PLAIN_RECORDS records take plainly: a process
that handles few records never pays for it, one that handles many pays once. Who has `warm_up` run
on a thread of its own says so (`load_elsewhere`): then nobody waits, all go on plainly meanwhile.
"""

from __future__ import annotations

from types import ModuleType

from . import columns_plain

PLAIN_RECORDS = 200_000
"""Records a process handles plainly before it loads the kernels: about what loading them costs."""

_compiled: ModuleType | None = None
_plain_records = 0  # threads may lose a count; it only decides when loading pays
_loading_elsewhere = False


def load_elsewhere(*, loading: bool) -> None:
    """Whether another thread is at `warm_up`, so that nobody need wait for it here."""
    global _loading_elsewhere
    _loading_elsewhere = loading


def warm_up() -> None:
    """Load numba (0.55 s) and the kernels: 0.5 s from the cache on disk, 3.2 s to compile them.

    Any thread may call it, at any time; others go on plainly meanwhile.
    """
    global _compiled
    from . import columns_compiled

    _compiled = columns_compiled


def kernels_ready() -> bool:
    """Whether work is done by the kernels from now on."""
    return _compiled is not None


def loops_for(record_count: int) -> ModuleType:
    """columns_compiled or columns_plain, which have the same functions, for this many records."""
    global _plain_records
    if _compiled is None:
        _plain_records += record_count
        if _plain_records <= PLAIN_RECORDS or _loading_elsewhere:
            return columns_plain
        warm_up()
    assert _compiled is not None
    return _compiled

"""Which loops do the work: the compiled ones once they are loaded, the plain ones before.

Loading numba and its kernels takes about as long as PLAIN_RECORDS records take plainly: a process
that handles few records never pays for it, one that handles many pays once. A client may call
`warm_up` on a thread of its own and never wait.
"""

from __future__ import annotations

from types import ModuleType

from . import columns_plain

PLAIN_RECORDS = 200_000
"""Records a process handles plainly before it loads the kernels: about what loading them costs."""

_compiled: ModuleType | None = None
_plain_records = 0  # threads may lose a count; it only decides when loading pays


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
        if _plain_records <= PLAIN_RECORDS:
            return columns_plain
        warm_up()
    assert _compiled is not None
    return _compiled

"""Loads the compiled column kernels in the background, once a process handles many records.

No poll or send should wait for it: until they are loaded the plain code runs. The number of records
is decided in protocol/kernel_loading.
"""

from __future__ import annotations

import threading

from ...protocol.columns.columns import kernels_ready, warm_up
from ...protocol.kernel_loading import columns_work, is_worth_a_thread, load_elsewhere

_lock = threading.Lock()
_begun = False


def on_records(count: int) -> None:
    """Count records that are about to be encoded or decoded. From any thread; cheap."""
    global _begun
    if _begun:
        return
    with _lock:
        if _begun or not is_worth_a_thread(columns_work(count)):
            return
        _begun = True
    if not kernels_ready():
        load_elsewhere(loading=True)
        threading.Thread(target=_load, name="bradbury-warm-up", daemon=True).start()


def _load() -> None:
    try:
        warm_up()
    finally:
        load_elsewhere(loading=False)  # if it failed, the next use raises

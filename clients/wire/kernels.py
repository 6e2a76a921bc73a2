"""Has the compiled column kernels loaded in the background, once a process handles many records.

Loading takes about a second, plain loops 3 us a record: a tool that sends ten lines should not pay
for it, and no poll or send should stand still for it: until they are there all goes on plainly.
"""

from __future__ import annotations

import threading
from typing import Final

from ...protocol.columns.columns import kernels_ready, load_elsewhere, warm_up

WARM_UP_RECORDS: Final = 20_000
"""Records of all clients of this process before loading begins: 60 ms of plain work."""

_lock = threading.Lock()
_records = 0
_begun = False


def on_records(count: int) -> None:
    """So many records are about to be encoded or decoded. From any thread; cheap."""
    global _records, _begun
    if _begun:
        return
    with _lock:
        _records += count
        if _begun or _records < WARM_UP_RECORDS:
            return
        _begun = True
    if not kernels_ready():
        load_elsewhere(loading=True)
        threading.Thread(target=_load, name="bradbury-warm-up", daemon=True).start()


def _load() -> None:
    try:
        warm_up()
    finally:
        load_elsewhere(loading=False)  # if it failed, whoever needs it next is told

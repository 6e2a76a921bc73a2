"""Ctrl-C as a wish to end, for commands that would go on forever: what is under way is finished."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_at_interrupt(*, active: bool = True) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while this lasts. Not `active`: Ctrl-C does what it always does."""
    stop = threading.Event()
    if not active:
        yield stop
        return
    former = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)

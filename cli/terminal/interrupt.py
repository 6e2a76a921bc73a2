"""Ctrl-C as a wish to end, for commands that would go on forever: what is under way is finished."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def set_in_handler(event: threading.Event) -> None:
    """Set an event from a handler of signals.

    In a thread of its own: the handler runs between two steps of the main thread, which may be in
    `event.wait` and hold the lock that `set` needs. threading.Thread has such locks, too.
    """
    _thread.start_new_thread(event.set, ())


@contextmanager
def stop_at_interrupt(*, active: bool = True) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while this lasts. Not `active`: Ctrl-C does what it always does."""
    stop = threading.Event()
    if not active:
        yield stop
        return
    former = signal.signal(signal.SIGINT, lambda *_: set_in_handler(stop))
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)

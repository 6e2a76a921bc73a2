"""Ctrl-C as a request to end, for commands that run forever: they finish their current step."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def set_in_handler(event: threading.Event) -> None:
    """Set an event from a signal handler.

    It uses a thread of its own: the handler interrupts the main thread, which may be in
    `event.wait` and hold the lock that `set` needs. threading.Thread has such locks, too.
    """
    _thread.start_new_thread(event.set, ())


@contextmanager
def stop_at_interrupt(*, active: bool = True) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets within the context. Not `active`: Ctrl-C works as usual."""
    stop = threading.Event()
    if not active:
        yield stop
        return
    former = signal.signal(signal.SIGINT, lambda *_: set_in_handler(stop))
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, former)

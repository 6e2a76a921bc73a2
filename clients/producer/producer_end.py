"""Delivery of records whose producer was not closed.

Invariants:
    A producer that is dropped loses no record: its records are delivered, or fail after
    `delivery_timeout_ms`, and then its thread ends. So a future outlives its producer.
    The end of the interpreter waits for open records, EXIT_SECONDS for all producers together; a
    warning has the number of records that are not acknowledged by then.

Unlike Kafka: Java's producer loses records that were not flushed before the process ends.

Not here: `close`, which waits as long as its caller says and fails what is left.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 -- Arrow would, too late: it cannot be when exiting
import logging
import os
import time
from typing import Final

from .sender import Sender

logger = logging.getLogger(__name__)

EXIT_SECONDS: Final = 10.0

_live: Final[set[Sender]] = set()


def watch(sender: Sender) -> None:
    """Wait for open records of `sender` when the interpreter ends."""
    _live.add(sender)
    # Exit handlers run last in, first out: this one runs before that of Ray, or of anything else
    # that was started before the producer and may stop its brokers.
    atexit.unregister(_on_exit)
    atexit.register(_on_exit)


def unwatch(sender: Sender) -> None:
    """Forget a producer that is closed."""
    _live.discard(sender)


def on_dropped(sender: Sender) -> None:
    """Handle a dropped producer. On any thread, at any time, so it does not wait for brokers."""
    if sender not in _live:
        return  # closed; or this is a forked process, in which the sender has no thread
    if sender.is_idle():
        _live.discard(sender)
        sender.client.drop()
    else:
        sender.retire(lambda: _live.discard(sender))


def _on_exit() -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    senders = [sender for sender in _live if not sender.client.closed]
    _live.clear()
    for sender in senders:
        sender.retire()
    for sender in senders:
        has_ended = sender.client.io.join(max(0.0, deadline - time.monotonic()))
        if not has_ended:
            logger.warning(
                "the program ends with %d records not acknowledged, which may be lost; "
                "close the producer, which waits until they are",
                sender.accumulator.open_record_count(),
            )


os.register_at_fork(after_in_child=_live.clear)

"""The threads of clients in a process that also runs a cluster of bradbury.local().

The pools of the brokers start another thread whenever they have more work than threads, also while
a test looks whether its client has left one behind.
"""

import gc
import threading

BROKER_POOLS = (
    "aside_",
    "bradbury-local",
    "cleaner_",
    "conversion_",
    "scrub_",
    "storage_",
    "uvloop_",
)
"""How the names of their threads begin."""


def client_threads() -> set[threading.Thread]:
    """The threads that run now, without those of the brokers."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith(BROKER_POOLS)}


def have_ended_as_garbage(threads: set[threading.Thread]) -> bool:
    """Whether threads have ended whose client was garbage. Stops the process, and the brokers in
    it, for a second late in a test run: not to be asked often.
    """
    gc.collect()
    return not any(thread.is_alive() for thread in threads)

"""Queues without a name that this process has made: they end with it, and their topics are deleted.

Ray kills their actors when the process ends, so the actors cannot delete the topics, as they do for
a queue without handles: this process does. A process that is killed leaves the topics behind.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from typing import Final

from ..admin.admin import Admin
from .queue_brokers import QueueBrokers
from .queue_log import delete_topics_by, topics_of

EXIT_MS: Final = 5_000
"""Milliseconds that a broker may take to answer when the interpreter ends."""

End = Callable[[], None]


class TemporaryQueues:
    """Temporary queues by cluster; any thread. One admin for each: none can be started at exit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[QueueBrokers, dict[str, End]] = {}
        self._admins: dict[QueueBrokers, Admin] = {}

    def add(self, brokers: QueueBrokers, name: str, end: End) -> None:
        """Add a queue. end: called at exit, ends its actor if the Queue still exists."""
        with self._lock:
            if brokers not in self._admins:
                admin = Admin(**brokers.client_options, timeout_ms=EXIT_MS)
                admin.list_topics()  # starts its thread
                self._admins[brokers] = admin
            self._queues.setdefault(brokers, {})[name] = end
        # Exit handlers run last in, first out: before those of Ray, and of a cluster started
        # earlier.
        atexit.unregister(self._on_exit)
        atexit.register(self._on_exit)

    def discard(self, brokers: QueueBrokers, name: str) -> None:
        """Forget a queue that was shut down."""
        with self._lock:
            self._queues.get(brokers, {}).pop(name, None)

    def _on_exit(self) -> None:
        for brokers, queues in self._queues.items():
            for end in queues.values():
                with contextlib.suppress(Exception):  # Ray may be gone, and the actor with it
                    end()
            admin = self._admins[brokers]
            with contextlib.suppress(Exception):  # the cluster may be down, which is no error
                there = set(admin.list_topics())
                for name in queues:
                    if not there.isdisjoint(topics_of(name)):
                        delete_topics_by(admin, name)


temporary_queues: Final = TemporaryQueues()
"""Temporary queues of this process."""

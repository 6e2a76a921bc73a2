"""What a stream has read, as committed offsets of a group: its lag is seen where that of groups is.

They are for those who look (`bradbury groups lag`, /metrics): the query goes on by its checkpoint
alone, and a commit that fails is a warning. Nothing waits for one but the end of the query.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Final

from ....clients.admin.group_offsets_admin import CommittedOffset, alter_group_offsets
from ....clients.wire.cluster_client import ClusterClient
from .offsets import Offsets

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000
CLOSE_SECONDS: Final = 5.0


class GroupCommits:
    """Of one query. Methods may be called from any thread, and never raise."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self._changed = threading.Condition()
        self._wanted: Offsets = {}
        self._sent: Offsets = {}
        self._is_sending = False
        self._warned = ""

    def commit(self, offsets: Offsets) -> None:
        """These are done. Of what comes while a commit is under way the newest counts."""
        with self._changed:
            self._wanted = dict(offsets)
            if self._is_sending or self._wanted == self._sent:
                return
            self._is_sending = True
        self._send()

    def close(self) -> None:
        """Wait a moment for what is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sending, CLOSE_SECONDS)

    def _send(self) -> None:
        sent = self._wanted
        offsets = {key: CommittedOffset(offset) for key, offset in sent.items()}
        steps = alter_group_offsets(self._client, self._group, offsets, timeout_ms=TIMEOUT_MS)
        try:
            self._client.io.spawn(steps).add_done_callback(lambda done: self._on_sent(done, sent))
        except Exception as error:  # noqa: BLE001 -- nobody who only looks may end a query
            self._on_sent(_failed(error), sent)

    def _on_sent(self, done: Future[None], sent: Offsets) -> None:
        error = done.exception()
        if error is not None and self._warned != type(error).__name__:
            logger.warning("offsets are not shown in group %s: %s", self._group, error)
        self._warned = "" if error is None else type(error).__name__
        with self._changed:
            self._sent = sent
            if self._wanted != sent:
                again = True
            else:
                again = self._is_sending = False
                self._changed.notify_all()
        if again:
            self._send()


def _failed(error: Exception) -> Future[None]:
    failed: Future[None] = Future()
    failed.set_exception(error)
    return failed

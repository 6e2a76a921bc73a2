"""Commits of a stream's offsets to a group, so that its lag is visible as that of a group.

They are for monitoring only (`bradbury groups lag`, /metrics): the query resumes from its
checkpoint, and a failed commit is a warning. Only the end of the query waits for a commit.
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
    """Commits of one query. Methods may be called from any thread, and never raise."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self._changed = threading.Condition()
        self._wanted: Offsets = {}
        self._sent: Offsets = {}
        self._is_sending = False
        self._warned = ""

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets; those given while a commit is in progress are replaced by newer ones."""
        with self._changed:
            self._wanted = dict(offsets)
            if self._is_sending or self._wanted == self._sent:
                return
            self._is_sending = True
        self._send()

    def close(self) -> None:
        """Wait up to CLOSE_SECONDS for the commit in progress."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sending, CLOSE_SECONDS)

    def _send(self) -> None:
        sent = self._wanted
        offsets = {key: CommittedOffset(offset) for key, offset in sent.items()}
        steps = alter_group_offsets(self._client, self._group, offsets, timeout_ms=TIMEOUT_MS)
        try:
            self._client.io.spawn(steps).add_done_callback(lambda done: self._on_sent(done, sent))
        except Exception as error:  # noqa: BLE001 -- monitoring must not end a query
            self._on_sent(_failed(error), sent)

    def _on_sent(self, done: Future[None], sent: Offsets) -> None:
        error = done.exception()
        if error is not None and self._warned != type(error).__name__:
            logger.warning("offsets not committed to group %s: %s", self._group, error)
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

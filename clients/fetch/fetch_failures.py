"""Log messages about partitions that cannot be fetched for some time.

A consumer retries transient errors by itself, as Kafka's does; its application only sees polls
without records.
"""

from __future__ import annotations

import logging
from typing import Final

from ...protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

SAID_AFTER_SECONDS: Final = 10.0
"""Seconds of failures until a warning: an election, or a broker's restart, takes less."""
SAID_EVERY_SECONDS: Final = 60.0


class FetchFailures:
    """Fetch failures of one consumer. now: time.monotonic()."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._said: dict[TopicPartition, float] = {}

    def failed(self, key: TopicPartition, reason: object, now: float) -> None:
        """Record a failure, which is retried; log a warning if it lasts."""
        since = self._since.setdefault(key, now)
        said = self._said.get(key)
        is_due = now - since >= SAID_AFTER_SECONDS if said is None else now >= said
        if is_due:
            self._said[key] = now + SAID_EVERY_SECONDS
            logger.warning(
                "%s cannot be fetched for %.0f s: %s; retrying", key, now - since, reason
            )

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that is not read any more."""
        self._since.pop(key, None)
        self._said.pop(key, None)

    def succeeded(self, key: TopicPartition) -> None:
        if self._since and self._since.pop(key, None) is not None and key in self._said:
            del self._said[key]
            logger.warning("%s can be fetched again", key)

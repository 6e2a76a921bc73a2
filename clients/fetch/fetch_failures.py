"""What keeps a partition from being fetched, said in the log once it has lasted.

A consumer tries again by itself whatever may pass, as Kafka's does; its application sees nothing
but polls without records.
"""

from __future__ import annotations

import logging
from typing import Final

from ..wire.record_metadata import TopicPartition

logger = logging.getLogger(__name__)

SAID_AFTER_SECONDS: Final = 10.0
"""An election, or a restart of a broker, takes less."""
SAID_EVERY_SECONDS: Final = 60.0


class FetchFailures:
    """Of one consumer. `now`: time.monotonic()."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, float] = {}
        self._said: dict[TopicPartition, float] = {}

    def failed(self, key: TopicPartition, reason: object, now: float) -> None:
        """It is tried again."""
        since = self._since.setdefault(key, now)
        said = self._said.get(key)
        is_due = now - since >= SAID_AFTER_SECONDS if said is None else now >= said
        if is_due:
            self._said[key] = now + SAID_EVERY_SECONDS
            logger.warning(
                "%s cannot be fetched since %.0f s: %s; trying again", key, now - since, reason
            )

    def forget(self, key: TopicPartition) -> None:
        """It is not read any more."""
        self._since.pop(key, None)
        self._said.pop(key, None)

    def succeeded(self, key: TopicPartition) -> None:
        if self._since and self._since.pop(key, None) is not None and key in self._said:
            del self._said[key]
            logger.warning("%s can be fetched again", key)

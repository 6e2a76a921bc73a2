"""Follower of topics: looks up log end offsets in a thread when a piece is wanted.

A piece is made when Ray Data has room for a task, of all records that arrived meanwhile: so pieces
grow with the load, and are few if they are consumed slowly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...clients.admin.group_offsets_admin import group_offsets
from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.cluster_client import ClusterClient, is_retriable
from ...clients.wire.offset_lookup import LATEST, list_offsets
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import DataLoss, PartitionRange, ReadLimits, recreated_topics
from ..ranges.reading_client import reading_client
from ..ranges.topic_offsets import Offset, resolve_ranges
from .unread_ranges import UnreadRanges

logger = logging.getLogger(__name__)

TIMEOUT_MS = 65_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Topics to follow, and where to start.

    group_id: group whose committed offsets override `start_offset`; None: no group.
    most_records: most records of one piece.
    poll_interval_ms: milliseconds between lookups while there are no new records.
    """

    bootstrap: str
    topics: tuple[str, ...]
    limits: ReadLimits
    start_offset: Offset
    group_id: str | None
    most_records: int
    poll_interval_ms: int


class TopicFollower:
    """Follower of topics: `want` a piece, then `take` it, from the thread of an execution.

    topic_ids: ids of the topics whose offsets the pieces have.
    """

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._client = reading_client(followed.bootstrap, followed.limits.fetch)
        self._unread = UnreadRanges(_starts(self._client, followed))
        self.topic_ids = self._client.view.topic_ids(followed.topics)
        self._condition = threading.Condition()
        self._is_wanted = False
        self._is_closed = False
        self._piece: list[PartitionRange] = []
        self._error: Exception | None = None
        self._failing_since = 0.0  # by time.monotonic; 0: brokers answer
        self._thread = threading.Thread(target=self._follow, name="topic-follower", daemon=True)
        self._thread.start()

    def want(self) -> None:
        with self._condition:
            if not self._is_wanted and not self._piece:
                self._is_wanted = True
                self._condition.notify_all()

    @property
    def has_piece(self) -> bool:
        """Whether a piece is ready. Raises DataLoss, KafkaError, ConnectionFailed on failure."""
        if self._error is not None:
            raise self._error
        return bool(self._piece)

    def take(self) -> list[PartitionRange]:
        with self._condition:
            piece, self._piece = self._piece, []
            return piece

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a piece, or the follower fails or is closed."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._piece or self._error is not None or self._is_closed, timeout_s
            )

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _follow(self) -> None:
        try:
            while self._wait_until_wanted():
                piece = self._unread.take(self._followed.most_records)
                if not piece and self._refresh_ends():
                    piece = self._unread.take(self._followed.most_records)
                with self._condition:
                    if piece:
                        self._piece, self._is_wanted = piece, False
                        self._condition.notify_all()
                    elif not self._is_closed:
                        self._condition.wait(self._followed.poll_interval_ms / 1000)
        except Exception as error:  # noqa: BLE001 -- raised by `has_piece`
            with self._condition:
                self._error = error
                self._condition.notify_all()

    def _refresh_ends(self) -> bool:
        """Look up end offsets; False: it failed, but may be retried. Raises permanent errors."""
        try:
            self._client.run(self._list_ends(), TIMEOUT_MS)
        except Exception as error:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            failing_ms = (now - self._failing_since) * 1000
            if not is_retriable(error) or failing_ms > self._followed.limits.poll_timeout_ms:
                raise
            logger.warning("cannot list end offsets: %s; retrying", error)
            return False
        self._failing_since = 0.0
        return True

    def _wait_until_wanted(self) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._is_wanted or self._is_closed)
            return not self._is_closed

    def _list_ends(self) -> Steps[None]:
        """Look up the log end offsets, and new partitions."""
        followed, client = self._followed, self._client
        known = set(self._unread.partitions)
        for topic in followed.topics:
            view = yield from client.topic(topic)
            for one in view.partitions:
                key = TopicPartition(topic, one.partition)
                if key not in known:
                    self._unread.add(key)
        ends = yield from self._look_up()
        if any(not self._unread.has_end(key, end) for key, end in ends.items()):
            yield from wait(client.refresh())
            if self._check_topics():
                ends = yield from self._look_up()
        for key, end in ends.items():
            if self._unread.reach(key, end):
                self._lost(key, end)

    def _look_up(self) -> Steps[dict[TopicPartition, int]]:
        ends = yield from list_offsets(
            self._client,
            dict.fromkeys(self._unread.partitions, LATEST),
            isolation_level=self._followed.limits.fetch.isolation_level,
        )
        return {key: end.offset for key, end in ends.items()}

    def _check_topics(self) -> bool:
        """Start recreated topics at their beginning, or raise DataLoss; whether there are any."""
        ids = self._client.view.topic_ids(self._followed.topics)
        anew = recreated_topics(self.topic_ids, ids)
        for topic in anew:
            text = f"topic {topic!r} was deleted and recreated while it was read"
            if self._followed.limits.fail_on_data_loss:
                raise DataLoss(f"{text}. {self._followed.limits.data_loss_remedy}")
            logger.warning("%s; reading continues with the new one", text)
            for key in self._unread.partitions:
                if key.topic == topic:
                    self._unread.go_back(key, 0)
        self.topic_ids = {**self.topic_ids, **ids}
        return bool(anew)

    def _lost(self, key: TopicPartition, end: int) -> None:
        text = f"the log of {key} ends at {end}, below the offset that was read"
        if self._followed.limits.fail_on_data_loss:
            raise DataLoss(f"{text}. {self._followed.limits.data_loss_remedy}")
        logger.warning("%s; reading continues there", text)
        self._unread.go_back(key, end)


def _starts(client: ClusterClient, followed: Followed) -> dict[TopicPartition, int]:
    committed: dict[TopicPartition, int] = {}
    if followed.group_id is not None:
        group = followed.group_id
        found = client.run(group_offsets(client, [group], timeout_ms=TIMEOUT_MS), TIMEOUT_MS)
        committed = {key: one.offset for key, one in found[group].items()}
    topics: Sequence[str] = followed.topics
    ranges = resolve_ranges(
        client,
        topics,
        followed.start_offset,
        "latest",
        followed.limits,
        keep_empty=True,
        committed=committed,
    )
    return {one.topic_partition: one.start for one in ranges}

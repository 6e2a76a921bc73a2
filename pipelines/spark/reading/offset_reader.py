"""Lookups by the driver: partitions, their start and end offsets, and waiting for new records.

Invariants:
    Results have exactly the partitions of the subscription, in order.
    An end offset below what was read before is looked up again a few times before it counts as
    data loss: a new leader may lag briefly.

Source: KafkaOffsetReaderAdmin in apache/spark connector/kafka-0-10-sql.

Not here: limits, JSON (offsets); reading records (range_reader).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from ....clients.fetch.fetch_request import PartitionFetch, build_fetch_request
from ....clients.threads.io_thread import Steps, wait
from ....clients.wire.cluster_client import DATA, ClusterClient
from ....clients.wire.connection import Address
from ....clients.wire.offset_lookup import EARLIEST, LATEST, list_offsets
from ....protocol.errors import UnknownTopicOrPartition
from ....protocol.messages.fetch import FetchResponse
from ....protocol.messages.metadata import MetadataRequest, MetadataResponse
from ....protocol.topic_partition import TopicPartition
from ...ranges.range_reader import MAX_VERSION
from ..options.spark_options import (
    Assign,
    AtEdge,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Position,
    ReadOptions,
    Subscribe,
    SubscribePattern,
)
from ..tasks.spark_failure import unknown_topic
from .offsets import Offsets

TIMEOUT_MS: Final = 60_000
LONG_POLL_MS: Final = 200


class OffsetReader:
    """Lookups of partitions and offsets. Methods block; they may raise ConnectionFailed."""

    def __init__(self, client: ClusterClient, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._asked_at = float("-inf")
        self._partitions: list[TopicPartition] = []
        self.topic_ids: dict[str, str] = {}
        """Ids of the topics whose partitions were looked up last."""

    def partitions(self, *, max_age_ms: int = 0) -> list[TopicPartition]:
        """Partitions of the subscription, from metadata not older than `max_age_ms`.

        Raises:
            UnknownTopicOrPartition: a given topic or partition does not exist.
        """
        now = time.monotonic()
        if not self._partitions or (now - self._asked_at) * 1000 >= max_age_ms:
            found = self._client.run(self._find_partitions(), TIMEOUT_MS)
            self._partitions = sorted(found)
            self._asked_at = now
        return self._partitions

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._at(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition], *, known: Offsets) -> Offsets:
        """End offset of each partition; looked up again a few times if it is below `known`."""
        wanted = dict.fromkeys(partitions, LATEST)
        for _ in range(self._options.retry_count + 1):
            ends = self._at(wanted)
            if all(ends[key] >= known.get(key, 0) for key in ends):
                break
            time.sleep(self._options.retry_interval_ms / 1000)
        return ends

    def resolve(
        self, position: Position, partitions: Iterable[TopicPartition], *, ending: bool
    ) -> Offsets:
        """Offset of each partition for a given position.

        Raises:
            ValueError: `position` does not name each partition, or no record is after its time.
        """
        partitions = list(partitions)
        if isinstance(position, AtEdge):
            return self._at(dict.fromkeys(partitions, position.edge))
        if isinstance(position, AtTimestamp):
            return self._at_times(dict.fromkeys(partitions, position.timestamp_ms), ending=ending)
        if isinstance(position, AtTimestamps):
            self._check_named(position.timestamps_ms, partitions, ending=ending)
            return self._at_times(position.timestamps_ms, ending=ending)
        return self._at_offsets(position, partitions, ending=ending)

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """First offset not before each time; -1 if there is no such record."""
        return self._at(timestamps_ms)

    def wait_beyond(self, offsets: Offsets, max_wait_ms: int = LONG_POLL_MS) -> None:
        """Return when a partition has a record at its offset, or after `max_wait_ms`."""
        self._client.run(self._wait_beyond(offsets, max_wait_ms), TIMEOUT_MS)

    def _at_offsets(
        self, position: AtOffsets, partitions: list[TopicPartition], *, ending: bool
    ) -> Offsets:
        self._check_named(position.offsets, partitions, ending=ending)
        edges = {key: offset for key, offset in position.offsets.items() if offset < 0}
        resolved = {**position.offsets, **(self._at(edges) if edges else {})}
        return dict(sorted(resolved.items()))

    def _check_named(
        self,
        named: Mapping[TopicPartition, int],
        partitions: list[TopicPartition],
        *,
        ending: bool,
    ) -> None:
        if set(named) != set(partitions):
            side = "ending" if ending else "starting"
            raise ValueError(
                f"If {side} offsets or timestamps are given by partition, all partitions must be "
                "specified. Use -1 for latest, -2 for earliest. "
                f"Specified: {_names(named)}; assigned: {_names(partitions)}"
            )

    def _at_times(self, timestamps: Mapping[TopicPartition, int], *, ending: bool) -> Offsets:
        found = self._at(timestamps)
        missing = [key for key, offset in found.items() if offset < 0]
        if not missing:
            return found
        if not ending and not self._options.latest_without_match:
            key = missing[0]
            raise ValueError(
                f"No offset matched from request of topic-partition {key} and timestamp "
                f"{timestamps[key]}. Set startingOffsetsByTimestampStrategy to 'latest' to start "
                "at the end instead"
            )
        return {**found, **self._at(dict.fromkeys(missing, LATEST))}

    def _at(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        if not timestamps:
            return {}
        level = self._options.fetch.isolation_level
        found = self._client.run(
            list_offsets(self._client, timestamps, isolation_level=level), TIMEOUT_MS + 5_000
        )
        return {key: found[key].offset for key in sorted(found)}

    # --- on the I/O thread -------------------------------------------------------------------

    def _find_partitions(self) -> Steps[list[TopicPartition]]:
        subscription = self._options.subscription
        if isinstance(subscription, SubscribePattern):
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            response = yield from self._client.send_to_any(request, MetadataResponse)
            pattern = re.compile(subscription.pattern)
            topics = [
                topic.name
                for topic in response.topics
                if topic.name and not topic.is_internal and pattern.search(topic.name)
            ]
        elif isinstance(subscription, Subscribe):
            topics = list(subscription.topics)
        else:
            topics = sorted({topic for topic, _ in subscription.partitions})
        if self._client.want(topics) or self._partitions:
            yield from wait(self._client.refresh())
        found = []
        for topic in topics:
            try:
                view = yield from self._client.topic(topic)
            except UnknownTopicOrPartition:
                raise unknown_topic(topic) from None
            found += [TopicPartition(topic, number) for number in range(len(view.partitions))]
        self.topic_ids = self._client.view.topic_ids(topics)
        if isinstance(subscription, Assign):
            missing = sorted(set(subscription.partitions) - set(found))
            if missing:
                raise UnknownTopicOrPartition(f"partition {missing[0]} does not exist")
            return list(subscription.partitions)
        return found

    def _wait_beyond(self, offsets: Offsets, max_wait_ms: int) -> Steps[None]:
        """Send one long-polling fetch to each leader, and wait for the first response."""
        by_leader: dict[Address, list[PartitionFetch]] = defaultdict(list)
        for (topic, partition), offset in offsets.items():
            leader = self._client.view.leader(topic, partition)
            if leader is not None:
                by_leader[leader.address].append(
                    PartitionFetch(TopicPartition(topic, partition), offset, max_bytes=1)
                )
        news: Future[None] = Future()

        def on_answer(_: object) -> None:
            if not news.done():
                news.set_result(None)

        for address, partitions in by_leader.items():
            request = build_fetch_request(
                partitions,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=1,
                isolation_level=self._options.fetch.isolation_level,
            )
            self._client.send(
                address,
                request,
                FetchResponse,
                lane=DATA,
                max_version=MAX_VERSION,
            ).add_done_callback(on_answer)
        self._client.io.call_later(max_wait_ms / 1000, lambda: on_answer(None))
        yield from wait(news)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(key) for key in sorted(partitions)) or "none"

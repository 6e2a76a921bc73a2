"""Steps of a poll between two waits: group membership, and taking fetched records.

Invariants:
    A step never waits for a broker. Only a listener of the application, which it calls, may.
    Taken records are not consumed yet: positions advance only with a chunk's `hand_out`, and
    records that are not handed out can be put back.

Not here: waiting, which is different for a thread (consumer) and a coroutine (async_consumer).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from typing import Final

import pyarrow as pa

from ...protocol.columns.columns import decode_batches
from ...protocol.topic_partition import TopicPartition
from ..fetch.consumer_metrics import PollMetrics
from ..fetch.fetch_state import StartAt
from ..fetch.fetcher import Fetcher
from ..fetch.record_stream import Chunk, RecordStream
from ..group.group_member import ConsumerMember
from ..wire.cluster_client import ClusterClient
from ..wire.interceptors import ConsumerInterceptors

# Not Schema.empty_table(), which imports pandas, for half a second, when the first poll ends.
EMPTY: Final[pa.Table] = decode_batches(b"", topic="", partition=0, fetch_offset=0).table
SCHEMA: Final[pa.Schema] = EMPTY.schema
"""Schema of poll's tables: topic, partition, offset, timestamp, key, value, headers."""


class PollSteps:
    """Steps of polls, used by the consumer's thread only. member: None without a group."""

    def __init__(
        self,
        client: ClusterClient,
        fetcher: Fetcher,
        stream: RecordStream,
        member: ConsumerMember | None,
        interceptors: ConsumerInterceptors | None,
        *,
        max_poll_records: int | None,
    ) -> None:
        self.condition = fetcher.condition
        self.metrics = PollMetrics()
        self._interceptors = interceptors
        self._max_poll_records = max_poll_records
        self._client = client
        self._fetcher = fetcher
        self._stream = stream
        self._member = member
        self._whole_topics: tuple[str, ...] = ()
        self._view = client.view

    def read_all_of(self, topics: Iterable[str]) -> None:
        """Read all partitions of `topics`, also those added later, without a group; () ends that.

        A partition added later is read from its beginning, as it is newer than this consumer.
        """
        self._whole_topics = tuple(topics)
        if self._whole_topics and self._fetcher.notify not in self._client.on_view:
            self._client.on_view.append(self._fetcher.notify)

    def take(self, max_records: int | None) -> list[Chunk]:
        """Take fetched records, at most `max_records`; None: `max_poll_records`.

        Raises:
            KafkaError: the group refuses this member, a broker refuses a request, or records are
                damaged or deleted.
            Exception: one raised by a listener, a commit callback or a custom assignor.
        """
        member = self._member
        if member is not None:
            member.poll()
            if member.holds_back:
                return []
        elif self._whole_topics and self._view is not self._client.view:
            self._look_for_partitions()
        chunks = self._stream.take(max_records or self._max_poll_records)
        if not chunks:
            error = self._fetcher.buffer.take_error()
            if error is not None:
                raise error
        return chunks

    def put_back(self, chunks: list[Chunk]) -> None:
        """Put back the records that are not handed out; the next `take` returns them first."""
        self._stream.put_back(chunks)

    def may_go_on(self) -> bool:
        """Whether `take` may have something to do. Needs the fetcher's condition."""
        member = self._member
        if member is not None:
            if member.needs_attention():
                return True
            if member.holds_back:
                return False
        elif self._whole_topics and self._view is not self._client.view:
            return True
        return self._fetcher.buffer.is_ready() or self._stream.is_ready()

    def longest_wait_s(self, deadline: float | None) -> float | None:
        """Maximum seconds that a poll waits for `may_go_on`; 0 after `deadline`, None forever."""
        longest = None if self._member is None else self._member.longest_wait_s()
        if deadline is None:
            return longest
        left = max(0.0, deadline - time.monotonic())
        return left if longest is None else min(left, longest)

    def check_reads_something(self) -> None:
        """Raise ValueError if nothing is subscribed or assigned, as poll would wait forever."""
        subscribed = self._member is not None and self._member.is_subscribed
        if not subscribed and not self._fetcher.states():
            raise ValueError(
                "nothing is subscribed or assigned, so poll would wait forever; use topics, "
                "subscribe or assign first"
            )

    # --- handing out -------------------------------------------------------------------------

    def table_of(self, chunks: list[Chunk]) -> pa.Table:
        """Make one table of the chunks, passed through interceptors."""
        if not chunks:
            return EMPTY
        return self._shown(pa.concat_tables([chunk.table for chunk in chunks]))

    def all_as_shown(self, chunks: list[Chunk]) -> list[Chunk]:
        return [self.as_shown(chunk) for chunk in chunks]

    def as_shown(self, chunk: Chunk) -> Chunk:
        """Chunk passed through interceptors, for records_of; `put_back` restores the original."""
        return chunk._replace(table=self._shown(chunk.table))

    def _shown(self, table: pa.Table) -> pa.Table:
        return table if self._interceptors is None else self._interceptors.on_consume(table)

    def _look_for_partitions(self) -> None:
        self._view = view = self._client.view
        known = self._fetcher.states()
        new = [
            TopicPartition(topic, partition)
            for topic in self._whole_topics
            for partition in range(view.partition_count(topic))
            if (topic, partition) not in known
        ]
        if new:
            self._fetcher.assign(chain(known, new), StartAt.EARLIEST)

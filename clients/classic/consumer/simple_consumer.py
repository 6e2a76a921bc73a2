"""SimpleConsumer: reads from one broker at given offsets, without state (0.7, A13).

    consumer = SimpleConsumer("10.0.0.5", 9092)
    offset = consumer.get_offsets_before("flights", 0, EARLIEST_TIME, 1)[0]
    for message, next_offset in consumer.fetch(FetchRequest("flights", 0, offset, 1_000_000)):
        ...  # next_offset is the offset of the next fetch; it may be stored with the output

Invariants:
    Every request goes to this broker. It answers fetches of partitions that it leads or follows,
    and tells offsets of those that it leads; others it refuses.
    The caller manages offsets: there is no group, no reset, no commit.

Fetches are answered at once, even if there are no messages, as in 0.7.

Not here: decoding of fetched batches (message_set); groups (consumer_connector).
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from ....protocol.errors import ConnectionFailed, KafkaError, error_for
from ....protocol.messages.fetch import FetchResponse, PartitionData
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ....protocol.schema import Message as WireMessage
from ....protocol.topic_partition import TopicPartition
from ...consumer.consumer_config import isolation_level as isolation_level_number
from ...fetch.fetch_request import MAX_BYTES, PartitionFetch, build_fetch_request
from ...fetch.fetcher import MAX_VERSION
from ...threads.io_thread import Steps, wait
from ...wire.cluster_client import DATA, ClientConfig, ClusterClient
from ...wire.connection import Address
from ..message.message_set import MessageSet

R = TypeVar("R", bound=WireMessage)

LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Fetch of one partition. offset: that of the first message. max_size: maximum bytes."""

    topic: str
    partition: int
    offset: int
    max_size: int

    def __post_init__(self) -> None:
        for name, least in (("partition", 0), ("offset", 0), ("max_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: use at least {least}")


class SimpleConsumer:
    """Consumer of one broker, usable from any thread; closes with `close` or `with`.

    It connects with the first request.

    Args:
        host, port: address of the broker; Admin.describe_topics shows leaders of partitions.
        so_timeout: maximum milliseconds that an answer may take.
        buffer_size: bytes of the socket's receive buffer.
        isolation_level: "read_uncommitted", or "read_committed" to leave out messages of open and
            aborted transactions. 0.7 had no transactions.

    Raises:
        InvalidConfig: there is no such isolation level.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout: int = 30_000,
        buffer_size: int = 64 * 1024,
        *,
        isolation_level: str = "read_uncommitted",
        client_id: str = "bradbury-simple-consumer",
    ) -> None:
        self._isolation = isolation_level_number(isolation_level)
        for name, value in (("so_timeout", so_timeout), ("buffer_size", buffer_size)):
            if value < 1:
                raise ValueError(f"{name}={value}: use at least 1")
        self._address = Address(host, port)
        self._so_timeout = so_timeout
        self._client = ClusterClient(
            str(self._address),
            config=ClientConfig(
                client_id=client_id,
                request_timeout_ms=so_timeout,
                connect_timeout_ms=so_timeout,
                receive_buffer_bytes=buffer_size,
            ),
        )
        self._finalizer = weakref.finalize(self, self._client.close)

    def fetch(self, request: FetchRequest) -> MessageSet:
        """Fetch messages from `offset` on, as many as fit in `max_size`; empty at the log's end.

        Raises:
            InvalidMessageSize: the next messages are larger than `max_size`; the text has the size.
            OffsetOutOfRange: the offset is not, or no longer, in the log.
            NotLeaderOrFollower: the broker has no replica of the partition.
            UnknownTopicOrPartition: there is no such topic or partition on this broker.
            ConnectionFailed: the broker does not answer within `so_timeout`.
        """
        [found] = self._fetch([request])
        if found.error is not None:
            raise found.error
        return found

    def multifetch(self, requests: Sequence[FetchRequest]) -> list[MessageSet]:
        """Fetch several partitions in one request; the sets are in the order of the requests.

        An error of one partition does not affect the others: `error` of its set is the reason, and
        iterating the set raises it.

        Raises:
            ValueError: no request, or two for one partition.
            ConnectionFailed: as `fetch`.
        """
        if not requests:
            raise ValueError("multifetch needs at least one FetchRequest")
        counts = Counter((request.topic, request.partition) for request in requests)
        for (topic, partition), count in counts.items():
            if count > 1:
                raise ValueError(
                    f"{topic}-{partition} is {count} times in one request; use it once"
                )
        found = self._fetch(requests)
        for number, (request, one) in enumerate(zip(requests, found, strict=True)):
            if one.error is None and not one.size_in_bytes and one.high_watermark > request.offset:
                # There was no room left in the response, or the next batch is larger than max_size:
                # a fetch of this partition alone returns the whole batch.
                [found[number]] = self._fetch([request])
        return found

    def get_offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int
    ) -> list[int]:
        """Offsets to start reading at, newest first, at most `max_offsets`.

        Each is the base offset of a segment, or the log end offset: not the offset of the record at
        that time, which `Admin.list_offsets` returns.

        Args:
            time_ms: milliseconds since 1970, for segments without newer records;
                LATEST_TIME: from the end of the log on; EARLIEST_TIME: only the first offset.

        Raises:
            UnsupportedVersion: the broker no longer has this version of the API (Apache Kafka 4).
            NotLeaderOrFollower: another broker leads the partition.
            UnknownTopicOrPartition, ConnectionFailed: as `fetch`.
        """
        if max_offsets < 1:
            raise ValueError(f"max_offsets={max_offsets}: use at least 1")
        if time_ms < EARLIEST_TIME:
            raise ValueError(f"time_ms={time_ms}: use milliseconds, LATEST_TIME or EARLIEST_TIME")
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition,
                            timestamp=time_ms,
                            max_num_offsets=max_offsets,
                        )
                    ],
                )
            ],
        )
        response = self._ask(request, ListOffsetsResponse, max_version=0)
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                if (topic_answer.name, answer.partition_index) == (topic, partition):
                    if answer.error_code:
                        raise _refused(answer.error_code, topic, partition, self._address)
                    return list(answer.old_style_offsets)
        raise _missing_answer(topic, partition, self._address)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- on the wire -------------------------------------------------------------------------

    def _fetch(self, requests: Iterable[FetchRequest]) -> list[MessageSet]:
        response = self._ask(
            build_fetch_request(
                (
                    PartitionFetch(
                        TopicPartition(one.topic, one.partition),
                        one.offset,
                        min(one.max_size, MAX_BYTES),
                    )
                    for one in requests
                ),
                isolation_level=self._isolation,
            ),
            FetchResponse,
            max_version=MAX_VERSION,
        )
        if response.error_code:
            raise error_for(response.error_code, f"{self._address} refuses the fetch")
        answers = {
            (topic.topic, answer.partition_index): answer
            for topic in response.responses
            for answer in topic.partitions
        }
        return [self._message_set(one, answers.get((one.topic, one.partition))) for one in requests]

    def _message_set(self, request: FetchRequest, answer: PartitionData | None) -> MessageSet:
        error: KafkaError | None = None
        if answer is None:
            error = _missing_answer(request.topic, request.partition, self._address)
        elif answer.error_code:
            error = _refused(answer.error_code, request.topic, request.partition, self._address)
        aborted = None
        if self._isolation and answer is not None:
            aborted = [
                (one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()
            ]
        return MessageSet(
            b"" if answer is None or answer.error_code else answer.records or b"",
            topic=request.topic,
            partition=request.partition,
            initial_offset=request.offset,
            max_size=request.max_size,
            high_watermark=-1 if answer is None else answer.high_watermark,
            error=error,
            aborted=aborted,
        )

    def _ask(self, request: WireMessage, response: type[R], *, max_version: int) -> R:
        """Send `request`; retry it once if the idle connection was lost."""

        def steps() -> Steps[R]:
            sent = self._client.send(
                self._address, request, response, lane=DATA, max_version=max_version
            )
            return (yield from wait(sent))

        deadline = time.monotonic() + self._so_timeout / 1000
        try:
            return self._client.run(steps())
        except ConnectionFailed:
            if self._client.closed or time.monotonic() >= deadline:
                raise
        return self._client.run(steps())


def _refused(code: int, topic: str, partition: int, address: Address) -> KafkaError:
    return error_for(code, f"{topic}-{partition} at {address}: {error_for(code)}")


def _missing_answer(topic: str, partition: int, address: Address) -> KafkaError:
    return KafkaError(f"{topic}-{partition} at {address}: it is missing in the answer")

"""Reader of exactly the records [start, end) of some partitions, in order, fetched ahead.

    with RangeReader(client, limits) as reader:
        for decoded in reader.read(ranges): ...

Invariants:
    At most BUFFER_BYTES of responses wait to be decoded; one request is in flight meanwhile.
    A gap inside a range (compacted records, transaction markers) is normal. Data loss is only
    reported if the log start offset is above the next offset, or the log end offset is below the
    range's end, or the topic has another id than when its ranges were chosen.
    A lost connection or a moved leader is retried until `poll_timeout_ms` pass without progress.

The next fetch offset is read from the batch headers of a response, so that the next request is sent
before anything is decoded.

Not here: choosing ranges, processing columns, files of brokers on this machine (local_segments).
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import groupby
from types import TracebackType
from typing import Final, NamedTuple, Self

from ...clients.fetch.fetch_request import PartitionFetch, build_fetch_request, larger_limit
from ...clients.threads.io_thread import Steps, wait
from ...clients.wire.cluster_client import DATA, ClusterClient, is_retriable
from ...clients.wire.offset_lookup import EARLIEST, LATEST, list_offsets
from ...protocol.columns.columns import AbortedProducers, DecodedBatches, decode_batches
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    CorruptMessage,
    KafkaError,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from ...protocol.messages.fetch import FetchResponse, PartitionData
from ...protocol.records.record_batch import walk_batches
from .local_segments import committed_ends, local_directories, read_segments
from .partition_range import DataLoss, PartitionRange, ReadLimits, recreated_topics

logger = logging.getLogger(__name__)

BUFFER_BYTES: Final = 16 * 1024 * 1024
_REFRESH_MS: Final = 65_000
MAX_VERSION: Final = 12
"""Highest Fetch version that names topics; from version 13 on they are given by id."""


class _Answer(NamedTuple):
    source: PartitionRange
    position: int
    records: memoryview
    aborted: AbortedProducers | None
    """Aborted transactions of the whole response; decoding it may take several calls."""


class RangeReader:
    """Reader for one use as a context manager; leaving the `with` stops fetching at any point.

    topic_ids: ids of the topics when the ranges were chosen, whose offsets they are; without them
    nothing is compared.
    """

    def __init__(
        self,
        client: ClusterClient,
        limits: ReadLimits,
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        self._client = client
        self._limits = limits
        self._topic_ids = topic_ids or {}
        self._answers: queue.SimpleQueue[_Answer | Exception | None] = queue.SimpleQueue()
        self._buffered = 0
        self._room: Future[None] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        self._client.io.call_soon(self._make_room)

    def read(self, ranges: Iterable[PartitionRange]) -> Iterator[DecodedBatches]:
        """The records, in the order of `ranges`.

        Raises:
            DataLoss: some were deleted; with `fail_on_data_loss` false the rest is read instead.
            RequestTimedOut: no progress for `poll_timeout_ms`.
            KafkaError: a broker returned an error, or a batch is corrupt.
        """
        wanted = tuple(ranges)
        if self._topic_ids:
            wanted = self._client.run(self._of_same_topics(wanted), _REFRESH_MS)
        if not self._limits.fetch.local_files:
            yield from self._read_from_brokers(wanted)
            return
        directories = local_directories(self._client, wanted)
        isolation_level = self._limits.fetch.isolation_level
        ends = committed_ends(self._client, directories, isolation_level=isolation_level)
        for is_here, part in groupby(wanted, lambda one: one.topic_partition in ends):
            if not is_here:
                yield from self._read_from_brokers(tuple(part))
                continue
            for one in part:
                position = one.start
                for decoded in read_segments(
                    directories[one.topic_partition],
                    one._replace(end=max(one.start, min(one.end, ends[one.topic_partition]))),
                    read_committed=bool(isolation_level),
                    check_crcs=self._limits.fetch.check_crcs,
                    value_views=self._limits.fetch.value_views,
                ):
                    position = max(position, decoded.next_offset)
                    yield decoded
                if position < one.end:
                    yield from self._read_from_brokers((one._replace(start=position),))

    def _read_from_brokers(self, ranges: tuple[PartitionRange, ...]) -> Iterator[DecodedBatches]:
        done = self._client.io.spawn(self._fetch_all(ranges))
        done.add_done_callback(self._on_done)
        while True:
            answer = self._answers.get()
            if answer is None:
                return
            if isinstance(answer, Exception):
                raise answer
            yield from self._decode(answer)
            size = len(answer.records)
            del answer
            self._client.io.call_soon(lambda size=size: self._make_room(size))  # type: ignore[misc]

    def _decode(self, answer: _Answer) -> Iterator[DecodedBatches]:
        source, records, position = answer.source, answer.records, answer.position
        while len(records) and position < source.end:
            decoded = decode_batches(
                records,
                topic=source.topic,
                partition=source.partition,
                fetch_offset=position,
                end_offset=source.end,
                aborted=answer.aborted,
                check_crc=self._limits.fetch.check_crcs,
                value_views=self._limits.fetch.value_views,
            )
            if not decoded.consumed_bytes:
                return
            yield decoded
            records, position = records[decoded.consumed_bytes :], decoded.next_offset

    # --- on the I/O thread -------------------------------------------------------------------

    def _on_done(self, done: Future[None]) -> None:
        error = done.exception()
        self._answers.put(error if isinstance(error, Exception) else None)

    def _make_room(self, size: int = 0) -> None:
        self._buffered -= size
        room, self._room = self._room, None
        if room is not None:
            room.set_result(None)

    def _of_same_topics(
        self, ranges: tuple[PartitionRange, ...]
    ) -> Steps[tuple[PartitionRange, ...]]:
        """Ranges whose topics were not recreated. Raises DataLoss for the others, if it matters."""
        self._client.want(self._topic_ids)
        yield from self._refresh()
        ids = self._client.view.topic_ids(self._topic_ids)
        anew = set(recreated_topics(self._topic_ids, ids))
        for one in ranges:
            if one.topic in anew:
                why = "the topic was deleted and recreated"
                self._report_data_loss(one, one.start, one.end, why)
        return tuple(one for one in ranges if one.topic not in anew)

    def _fetch_all(self, ranges: tuple[PartitionRange, ...]) -> Steps[None]:
        for one in ranges:
            try:
                yield from self._client.topic(one.topic)
            except UnknownTopicOrPartition:
                self._report_data_loss(one, one.start, one.end, "the topic does not exist")
            else:
                yield from self._fetch(one)

    def _fetch(self, source: PartitionRange) -> Steps[None]:
        position = source.start
        max_bytes = self._limits.fetch.max_partition_fetch_bytes
        progress_at = time.monotonic()
        reason: BaseException | None = None
        while position < source.end and not self._closed:
            if self._buffered and self._buffered + max_bytes > BUFFER_BYTES:
                self._room = Future()
                yield from wait(self._room)
                progress_at = time.monotonic()
                continue
            data: PartitionData | None = None
            try:
                data = yield from self._ask(source, position, max_bytes)
            except Exception as error:
                if not is_retriable(error):
                    raise
                reason = error
            if data is not None and data.error_code:
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    moved = yield from self._on_out_of_range(source, position)
                    if moved == position:
                        reason = OffsetOutOfRange(f"offset {position} is out of range")
                    position = moved
                else:
                    reason = _retriable(source, data.error_code)
                    data = None
            records = None if data is None else data.records
            if records and data is not None:
                assert isinstance(records, memoryview)
                next_offset = _next_offset(records)
                if next_offset is None:
                    max_bytes = larger_limit(records, max_bytes, source.topic_partition, position)
                    continue
                aborted = None
                if self._limits.fetch.isolation_level:
                    aborted = AbortedProducers(
                        [
                            (one.producer_id, one.first_offset)
                            for one in data.aborted_transactions or ()
                        ]
                    )
                self._buffered += len(records)
                self._answers.put(_Answer(source, position, records, aborted))
                position = max(position, next_offset)
                progress_at = time.monotonic()
                reason = None
                continue
            if position < source.end:
                waited_ms = (time.monotonic() - progress_at) * 1000
                if waited_ms >= self._limits.poll_timeout_ms:
                    yield from self._on_poll_timeout(source, position, reason)
                    return
                if data is None or data.error_code:
                    yield self._limits.fetch.retry_backoff_ms / 1000
                    yield from self._refresh()

    def _ask(
        self, source: PartitionRange, position: int, max_bytes: int
    ) -> Steps[PartitionData | None]:
        """Fetch a partition once; None if it has no leader now."""
        view = self._client.view.partition(source.topic, source.partition)
        leader = self._client.view.leader(source.topic, source.partition)
        if leader is None:
            return None
        fetch = self._limits.fetch
        request = build_fetch_request(
            [
                PartitionFetch(
                    source.topic_partition,
                    position,
                    max_bytes,
                    leader_epoch=-1 if view is None else view.leader_epoch,
                )
            ],
            max_wait_ms=fetch.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=fetch.isolation_level,
        )
        response = yield from wait(
            self._client.send(
                leader.address,
                request,
                FetchResponse,
                lane=DATA,
                timeout_ms=fetch.request_timeout_ms + fetch.fetch_max_wait_ms,
                max_version=MAX_VERSION,
            )
        )
        if response.error_code:
            raise error_for(response.error_code)
        for topic in response.responses:
            for data in topic.partitions:
                return data
        return None

    def _on_out_of_range(self, source: PartitionRange, position: int) -> Steps[int]:
        """Next offset: the log start offset, the range's end, or `position` if nothing was lost."""
        first, last = yield from self._bounds(source)
        if first > position:
            self._report_data_loss(
                source, position, min(first, source.end), f"the log begins at {first}"
            )
            return min(first, source.end)
        if last < position:
            self._report_data_loss(source, position, source.end, f"the log ends at {last}")
            return source.end
        return position

    def _on_poll_timeout(
        self, source: PartitionRange, position: int, reason: BaseException | None
    ) -> Steps[None]:
        """Fail after poll_timeout_ms: the log ends before the range, or no broker answers."""
        if reason is None:
            _, last = yield from self._bounds(source)
            if last < source.end:
                self._report_data_loss(source, position, source.end, f"the log ends at {last}")
                return
        where = f"cannot fetch record for offset {position} of {source.topic_partition} in "
        where += f"{self._limits.poll_timeout_ms} milliseconds"
        if isinstance(reason, CorruptMessage):  # no replica returned an intact copy in time
            raise CorruptMessage(f"{where}: {reason}")
        raise RequestTimedOut(
            f"{where} ({reason or 'no records received'}); "
            f"are its brokers up? {self._limits.poll_timeout_name} sets this timeout"
        )

    def _bounds(self, source: PartitionRange) -> Steps[tuple[int, int]]:
        key = source.topic_partition
        level = self._limits.fetch.isolation_level
        first = yield from list_offsets(self._client, {key: EARLIEST})
        last = yield from list_offsets(self._client, {key: LATEST}, isolation_level=level)
        return first[key].offset, last[key].offset

    def _report_data_loss(self, source: PartitionRange, start: int, end: int, why: str) -> None:
        text = f"records [{start}, {end}) of {source.topic_partition} do not exist: {why}"
        if self._limits.fail_on_data_loss:
            raise DataLoss(f"{text}. {self._limits.data_loss_remedy}")
        logger.warning("%s; reading continues without them", text)

    def _refresh(self) -> Steps[None]:
        try:
            yield from wait(self._client.refresh())
        except Exception as error:
            if not is_retriable(error):
                raise


def _retriable(source: PartitionRange, code: int) -> KafkaError:
    error = error_for(code)
    if not error.retriable:
        raise error_for(code, f"{source.topic_partition}: {error}")
    return error


def _next_offset(records: memoryview) -> int | None:
    """Offset after the last complete batch; None if there is none."""
    next_offset = None
    for _, header in walk_batches(records):
        next_offset = header.next_offset
    return next_offset

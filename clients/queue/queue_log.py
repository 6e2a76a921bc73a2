"""Log of a queue, for its actor: items, consumed positions, dead letters.

    topic           the queue's name, one partition: a record has one or more items (item_codec)
    offsets         of the group queue-<name>: what is consumed (queue_position)
    dead letters    the topic <name>-dead-letters

Invariants:
    Positions are committed in transactions of one transactional id, which the actor takes over when
    it starts: of two actors of one queue, the older is fenced. Each actor also has an epoch, which
    is in its commits: an actor that reads a greater epoch ends.
    Dead letters and the position that marks them as consumed are in one transaction.
    Consumed records are deleted only up to a position that is committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.errors import (
    ConnectionFailed,
    GroupIdNotFound,
    KafkaError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ...protocol.topic_partition import TopicPartition
from ..admin.admin import Admin
from ..admin.topics_admin import NewTopic
from ..consumer.async_consumer import AsyncConsumer
from ..producer.async_producer import AsyncProducer
from ..wire.record_metadata import OffsetAndMetadata
from .frames.item_codec import MAX_RECORD_BYTES, count_items, is_pickled
from .frames.queue_frames import PUT_HEADER
from .queue_brokers import QueueBrokers
from .queue_position import QueuePosition, decode_position, encode_position
from .queue_state import QueueEntry

logger = logging.getLogger(__name__)

MAX_LETTER_BYTES: Final = MAX_RECORD_BYTES + 64 * 1024
"""Maximum bytes of a dead letter: a record, and headers that say where it was."""
POLL_RECORDS: Final = 10_000
_KEEP_ALL: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic from which nothing is deleted but what was consumed."""


class QueueFenced(Exception):
    """Raised if another actor of the same queue has taken over."""


def group_of(name: str) -> str:
    return f"queue-{name}"


def dead_letters_of(name: str) -> str:
    return f"{name}-dead-letters"


def topics_of(name: str) -> tuple[str, str]:
    return name, dead_letters_of(name)


def create_queue_topics(brokers: QueueBrokers, name: str) -> None:
    """Create the topics of a queue, unless they exist. Items stay until they are consumed.

    Raises ValueError: one exists, but is not fit for a queue.
    """
    with Admin(**brokers.client_options) as admin:
        for topic, most in zip(topics_of(name), (MAX_RECORD_BYTES, MAX_LETTER_BYTES), strict=True):
            configs = {**_KEEP_ALL, "max.message.bytes": str(most)}
            try:
                admin.create_topics([NewTopic(topic, 1, configs=configs)])
            except TopicAlreadyExists:
                _check_topic(admin, topic)


def _check_topic(admin: Admin, topic: str) -> None:
    """Check a topic that somebody else may have created. Raises ValueError."""
    (described,) = admin.describe_topics([topic])
    if len(described.partitions) != 1:
        raise ValueError(
            f"topic {topic!r} has {len(described.partitions)} partitions, and a queue is one: give "
            "the queue another name"
        )
    try:
        configs = admin.describe_configs(topic)
    except TopicAuthorizationFailed:
        return  # who may use a queue need not see the settings of its topic
    found = {name: configs[name].value for name in _KEEP_ALL}
    if "compact" in (found["cleanup.policy"] or ""):
        raise ValueError(
            f"topic {topic!r} has cleanup.policy={found['cleanup.policy']}, which would delete "
            "items of a queue: set it to delete, or give the queue another name"
        )
    for setting in ("retention.ms", "retention.bytes"):
        if found[setting] != _KEEP_ALL[setting]:
            logger.warning(
                "topic %s has %s=%s, which deletes items that nobody has consumed; -1 keeps them",
                topic,
                setting,
                found[setting],
            )


def delete_queue_topics(brokers: QueueBrokers, name: str) -> None:
    """Delete the topics and committed offsets of a queue. Errors are logged."""
    with Admin(**brokers.client_options) as admin:
        delete_topics_by(admin, name)


def delete_topics_by(admin: Admin, name: str) -> None:
    """As delete_queue_topics, with an admin of the caller."""
    try:
        for topic in topics_of(name):
            try:
                admin.delete_topic(topic)
            except UnknownTopicOrPartition:
                pass
        try:
            admin.delete_groups([group_of(name)])
        except GroupIdNotFound:
            pass
    except (KafkaError, ConnectionFailed) as error:
        logger.warning("the topics of queue %s were not deleted: %s", name, error)


class QueueLog:
    """Log of one queue, for the event loop it was started in."""

    def __init__(self, brokers: QueueBrokers, name: str, retention_s: float) -> None:
        self._partition = TopicPartition(name, 0)
        self._dead_letters = dead_letters_of(name)
        self._group = group_of(name)
        self._brokers = brokers
        self._retention_s = retention_s
        consumer: dict[str, Any] = {
            **brokers.client_options,
            "group": self._group,
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "max_poll_records": POLL_RECORDS,
        }
        self._reader = AsyncConsumer(**consumer)
        self._backlog_reader = AsyncConsumer(**consumer)
        options = brokers.client_options
        self._committer = AsyncProducer(
            transactional_id=self._group, max_request_size=MAX_LETTER_BYTES, **options
        )
        self._putter = AsyncProducer(linger_ms=0, max_request_size=MAX_RECORD_BYTES, **options)
        self._deleted_to = 0
        self.epoch = 0

    async def start(self) -> QueuePosition:
        """Take over the queue; return the committed position."""
        for client in (self._reader, self._backlog_reader, self._committer, self._putter):
            await client.start()
        await self._committer.init_transactions()
        found = await self.committed()
        self.epoch = found.epoch + 1
        begin = (await self._reader.beginning_offsets(self._partition))[self._partition]
        if found.offset < begin:
            found = QueuePosition(epoch=found.epoch, offset=begin)
        await self.commit(
            QueuePosition(
                epoch=self.epoch,
                offset=found.offset,
                records=found.records,
                parts=found.parts,
                deliveries=found.deliveries,
            ),
            [],
        )
        await self.seek(found.offset)
        return found

    async def seek(self, offset: int) -> None:
        await self._reader.assign([self._partition])
        self._reader.seek(self._partition, offset)

    async def committed(self) -> QueuePosition:
        found = (await self._reader.committed_metadata(self._partition))[self._partition]
        if found is None:
            return QueuePosition()
        return decode_position(found.offset, found.metadata)

    async def check_epoch(self) -> None:
        """Raise QueueFenced if another actor has taken over."""
        found = await self.committed()
        if found.epoch > self.epoch:
            raise QueueFenced(f"epoch {found.epoch} has taken over from {self.epoch}")

    # --- items -------------------------------------------------------------------------------

    async def read(
        self,
        add: Callable[[int, int, bool, bytes], None],
        on_put: Callable[[bytes, int], None] | None = None,
    ) -> None:
        """Wait for the next records, and add their items.

        on_put: called for each record of a put through an actor: who put it, and its offset.
        """
        table = await self._reader.poll()
        if on_put is not None:
            for offset, headers in _with_headers(table):
                if PUT_HEADER in headers:
                    on_put(headers[PUT_HEADER], offset)
        _add_all(table, add)

    async def read_backlog(self, start: int, add: Callable[[int, int, bool, bytes], None]) -> None:
        """Read records from `start`, which exist, and add their items."""
        await self._backlog_reader.assign([self._partition])
        self._backlog_reader.seek(self._partition, start)
        _add_all(await self._backlog_reader.poll(), add)

    async def position(self) -> int:
        """Next offset to read: beyond transaction markers, which have no items."""
        return await self._reader.position(self._partition)

    async def end_offset(self) -> int:
        return (await self._reader.end_offsets(self._partition))[self._partition]

    async def offset_of(self, start: str) -> int:
        """Offset for "earliest", "latest", "offset:N" or "time:MS" (first record from then on)."""
        begin = (await self._reader.beginning_offsets(self._partition))[self._partition]
        end = await self.end_offset()
        kind, _, number = start.partition(":")
        match kind:
            case "earliest":
                return begin
            case "offset":
                return min(max(begin, int(number)), end)
            case "time":
                found = await self._reader.offsets_for_times({self._partition: int(number)})
                first = found[self._partition]
                return end if first is None else first.offset
            case _:
                return end

    async def put(self, key: bytes, value: bytes, put_by: bytes) -> int:
        """Write a record; return its offset when it is acknowledged. put_by: who put it."""
        future = await self._putter.send(
            self._partition.topic, value, key, partition=0, headers={PUT_HEADER: put_by}
        )
        return (await future).offset

    # --- consumed items ----------------------------------------------------------------------

    async def commit(self, position: QueuePosition, dead: Sequence[QueueEntry]) -> None:
        """Commit a position with dead letters. Raises KafkaError: this actor has to end."""
        async with self._committer.transaction():
            for entry in dead:
                await self._bury(entry)
            metadata = OffsetAndMetadata(position.offset, encode_position(position))
            await self._committer.send_offsets({self._partition: metadata}, self._group)

    async def _bury(self, entry: QueueEntry) -> None:
        headers = {
            "queue": self._partition.topic.encode(),
            "offset": str(entry.offset).encode(),
            "first": str(entry.first).encode(),
            "last": str(entry.last).encode(),
            "deliveries": str(entry.delivery_count).encode(),
        }
        key = b"pickled" if entry.is_pickled else b"bytes"
        await self._committer.send(
            self._dead_letters, entry.value, key, partition=0, headers=headers
        )

    async def delete_consumed(self, before: int) -> None:
        """Delete records before the committed position `before` that are past the retention."""
        limit = before
        if self._retention_s > 0:
            then = int((time.time() - self._retention_s) * 1000)
            limit = min(before, await self.offset_of(f"time:{then}"))
        if limit <= self._deleted_to:
            return
        await asyncio.to_thread(self._delete, limit)
        self._deleted_to = limit

    def _delete(self, limit: int) -> None:
        with Admin(**self._brokers.client_options) as admin:
            admin.delete_records({self._partition: limit})

    async def close(self) -> None:
        for client in (self._reader, self._backlog_reader, self._putter, self._committer):
            await client.close()


def _with_headers(table: pa.Table) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Offsets and headers of the records that have headers."""
    rows = table.select(["offset", "headers"])
    rows = rows.filter(pc.greater(pc.list_value_length(rows.column("headers")), 0))
    for row in rows.to_pylist():
        yield row["offset"], {each["key"]: each["value"] for each in row["headers"]}


def _add_all(table: pa.Table, add: Callable[[int, int, bool, bytes], None]) -> None:
    """Add the items of each record. A record without a value has one item, empty bytes."""
    offsets = table.column("offset").to_pylist()
    keys = table.column("key").to_pylist()
    values = table.column("value").to_pylist()
    for offset, key, value in zip(offsets, keys, values, strict=True):
        add(offset, count_items(key), is_pickled(key), value or b"")

"""Settings of a Producer, synchronous or asynchronous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from ....protocol.errors import InvalidConfig
from ....protocol.records.compression import CompressionType
from ..message.properties import (
    Names,
    boolean,
    check_at_least,
    integer,
    name_list,
    read_properties,
    text,
)


def _broker_list(value: object) -> str:
    """Parse a broker list; the ids of 0.7's id:host:port are ignored."""
    servers = name_list(value)
    if not servers:
        raise ValueError("expected host:port,host:port")
    return ",".join(_without_id(server) for server in servers)


def _without_id(server: str) -> str:
    first, _, rest = server.partition(":")
    return rest if server.count(":") == 2 and first.isdecimal() else server


def _codec(value: object) -> str:
    """Parse a codec, by name or by 0.7's number: 0 none, 1 gzip, 2 snappy."""
    name = {"0": "none", "1": "gzip", "2": "snappy"}.get(str(value), str(value))
    try:
        CompressionType.from_name(name)
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    return name


def _acks(value: object) -> str | int:
    return "all" if value in ("all", "-1", -1) else integer(value)


NAMES: Final[Names] = {
    "broker.list": ("bootstrap", _broker_list),
    "bootstrap.servers": ("bootstrap", _broker_list),
    "producer.type": ("producer_type", text),
    "compression.codec": ("compression_codec", _codec),
    "compressed.topics": ("compressed_topics", name_list),
    "max.message.size": ("max_message_size", integer),
    "socket.timeout.ms": ("socket_timeout_ms", integer),
    "queue.time": ("queue_time_ms", integer),
    "queue.size": ("queue_size", integer),
    "batch.size": ("batch_size", integer),
    "queue.enqueueTimeout.ms": ("enqueue_timeout_ms", integer),
    "acks": ("acks", _acks),
    "delivery.timeout.ms": ("delivery_timeout_ms", integer),
    "client.id": ("client_id", text),
    "topic.refresh.interval.ms": ("topic_refresh_interval_ms", integer),
    "allow.auto.create.topics": ("allow_auto_create_topics", boolean),
}

_OBJECTS = "pass the object itself to Producer(...)"
_RETRIED = "messages are retried within delivery.timeout.ms, in order and without duplicates"
_KEPT = "a connection is kept while it works, and reopened when it breaks"

GONE: Final = {
    "serializer.class": _OBJECTS,
    "partitioner.class": _OBJECTS,
    "event.handler": _OBJECTS,
    "event.handler.props": _OBJECTS,
    "callback.handler": _OBJECTS,
    "callback.handler.props": _OBJECTS,
    "num.retries": _RETRIED,
    "zk.read.num.retries": _RETRIED,
    "buffer.size": "the kernel sizes the buffers of sockets",
    "connect.timeout.ms": "part of delivery.timeout.ms",
    "reconnect.interval": _KEPT,
    "reconnect.time.interval.ms": _KEPT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer. Immutable. Defaults are those of 0.7 where it had the setting.

    Args:
        bootstrap: "host:port,..." (broker.list); None: BRADBURY_BOOTSTRAP, or the Ray cluster this
            runs in. Leaders of partitions are found in their metadata.
        producer_type: "sync": send waits for the acknowledgement; "async": it fills a queue.
        compression_codec: none, gzip, snappy, lz4 or zstd.
        compressed_topics: only these are compressed; empty: all.
        max_message_size: bytes; larger messages are refused.
        queue_time_ms: async: maximum time that a message waits for others.
        queue_size: async: maximum messages in the queue.
        batch_size: async: number of messages that are sent together.
        enqueue_timeout_ms: async: time that send waits for room in a full queue; 0: QueueFull at
            once; -1: forever.
        acks: "all", 1 or 0.
        socket_timeout_ms, delivery_timeout_ms: time without an answer after which a connection is
            closed, and a message fails.
        topic_refresh_interval_ms: interval of metadata refreshes, after which new partitions are
            used.
        allow_auto_create_topics: whether sending to a missing topic may create it.

    Raises:
        InvalidConfig: numbers out of bounds.
    """

    bootstrap: str | None = None
    namespace: str | None = None
    producer_type: str = "sync"
    compression_codec: str = "none"
    compressed_topics: tuple[str, ...] = ()
    max_message_size: int = 1_000_000
    socket_timeout_ms: int = 30_000
    queue_time_ms: int = 5_000
    queue_size: int = 10_000
    batch_size: int = 200
    enqueue_timeout_ms: int = 0
    acks: str | int = "all"
    delivery_timeout_ms: int = 120_000
    client_id: str = "bradbury-classic-producer"
    topic_refresh_interval_ms: int = 300_000
    allow_auto_create_topics: bool = False

    def __post_init__(self) -> None:
        if self.producer_type not in ("sync", "async"):
            raise InvalidConfig(f"producer.type={self.producer_type!r}: use sync or async")
        if self.compressed_topics and self.compression_codec == "none":
            raise InvalidConfig("compressed.topics needs a compression.codec")
        CompressionType.from_name(self.compression_codec)
        check_at_least(
            self,
            1,
            "max_message_size",
            "socket_timeout_ms",
            "queue_size",
            "batch_size",
            "topic_refresh_interval_ms",
        )
        check_at_least(self, 0, "queue_time_ms")
        check_at_least(self, -1, "enqueue_timeout_ms")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Make settings from 0.7's names, e.g. {"broker.list": "0:localhost:9092"}.

        Raises:
            InvalidConfig: a setting is unknown, removed, or of the wrong type; none is ignored.
        """
        return cls(**read_properties(properties, NAMES, GONE))

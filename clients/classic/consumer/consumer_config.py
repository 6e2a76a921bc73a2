"""The settings of a ConsumerConnector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from ....protocol.errors import InvalidConfig
from ..message.properties import Names, boolean, check_at_least, integer, read_properties, text

NAMES: Final[Names] = {
    "groupid": ("group_id", text),
    "consumerid": ("consumer_id", text),
    "bootstrap.servers": ("bootstrap", text),
    "socket.timeout.ms": ("socket_timeout_ms", integer),
    "fetch.size": ("fetch_size", integer),
    "queuedchunks.max": ("queued_chunks_max", integer),
    "autocommit.enable": ("auto_commit", boolean),
    "autocommit.interval.ms": ("auto_commit_interval_ms", integer),
    "autooffset.reset": ("auto_offset_reset", text),
    "consumer.timeout.ms": ("consumer_timeout_ms", integer),
    "session.timeout.ms": ("session_timeout_ms", integer),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", integer),
    "topic.refresh.interval.ms": ("topic_refresh_interval_ms", integer),
    "allow.auto.create.topics": ("allow_auto_create_topics", boolean),
}

_LONG_POLL = "a fetch waits at the broker until there is something"
_COORDINATED = "the group's coordinator settles who owns what"
_FILTERS = "give the topics to create_message_streams_by_filter"

GONE: Final = {
    "socket.buffersize": "the kernel sizes the buffers of sockets",
    "fetcher.backoff.ms": _LONG_POLL,
    "backoff.increment.ms": _LONG_POLL,
    "rebalance.retries.max": _COORDINATED,
    "rebalance.backoff.ms": _COORDINATED,
    "shallowiterator.enable": "messages come out of their compressed batches",
    "mirror.topics.whitelist": _FILTERS,
    "mirror.topics.blacklist": _FILTERS,
    "mirror.consumer.numthreads": _FILTERS,
}

RESETS: Final = {"smallest": "earliest", "largest": "latest", "none": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Immutable. Defaults are those of 0.7 where it had the setting.

    Args:
        group_id: whose members share the partitions and the committed offsets.
        consumer_id: the beginning of this member's client ids, which order the members.
        bootstrap: "host:port,..."; None: BRADBURY_BOOTSTRAP, or the Ray cluster this runs in.
        socket_timeout_ms: without an answer for so long a connection is closed.
        fetch_size: most bytes of a partition in one answer; a larger message comes nevertheless.
        queued_chunks_max: how many times `fetch_size` bytes a stream may hold in advance.
        auto_commit, auto_commit_interval_ms: store what was handed out; also before a rebalance
            and at shutdown.
        auto_offset_reset: where nothing is committed, or what is committed is gone: "smallest",
            "largest", or "none" to raise OffsetOutOfRange in the iterator.
        consumer_timeout_ms: an iterator raises ConsumerTimeoutException after so long without a
            message; -1: it waits forever.
        session_timeout_ms, heartbeat_interval_ms: a member without heartbeats is removed.
        topic_refresh_interval_ms: how often new partitions, and for filters new topics,
            are looked for.
        allow_auto_create_topics: whether asking for a topic by name may create it.

    Raises:
        InvalidConfig: no group, or numbers out of bounds.
    """

    group_id: str
    consumer_id: str = "bradbury-connector"
    bootstrap: str | None = None
    namespace: str | None = None
    socket_timeout_ms: int = 30_000
    fetch_size: int = 1024 * 1024
    queued_chunks_max: int = 10
    auto_commit: bool = True
    auto_commit_interval_ms: int = 10_000
    auto_offset_reset: str = "smallest"
    consumer_timeout_ms: int = -1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    topic_refresh_interval_ms: int = 5_000
    allow_auto_create_topics: bool = False

    def __post_init__(self) -> None:
        if not self.group_id:
            raise InvalidConfig("a connector needs a group: groupid")
        if self.auto_offset_reset not in RESETS:
            raise InvalidConfig(
                f"autooffset.reset={self.auto_offset_reset!r}: use smallest, largest or none"
            )
        check_at_least(
            self,
            1,
            "socket_timeout_ms",
            "fetch_size",
            "queued_chunks_max",
            "auto_commit_interval_ms",
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "topic_refresh_interval_ms",
        )
        check_at_least(self, -1, "consumer_timeout_ms")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """The settings by 0.7's names, e.g. {"groupid": "delays", "autooffset.reset": "smallest"}.

        Raises:
            InvalidConfig: unknown, gone, or of the wrong kind; nothing is ignored.
        """
        if "groupid" not in properties:
            raise InvalidConfig("a connector needs a group: groupid")
        return cls(**read_properties(properties, NAMES, GONE))

"""Settings of a ConsumerConnector."""

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

_LONG_POLL = "a fetch waits at the broker until there are messages"
_COORDINATED = "the group's coordinator manages partition ownership"
_FILTERS = "pass topics to create_message_streams_by_filter"

GONE: Final = {
    "socket.buffersize": "the kernel sizes the buffers of sockets",
    "fetcher.backoff.ms": _LONG_POLL,
    "backoff.increment.ms": _LONG_POLL,
    "rebalance.retries.max": _COORDINATED,
    "rebalance.backoff.ms": _COORDINATED,
    "shallowiterator.enable": "messages are always decompressed",
    "mirror.topics.whitelist": _FILTERS,
    "mirror.topics.blacklist": _FILTERS,
    "mirror.consumer.numthreads": _FILTERS,
}

RESETS: Final = {"smallest": "earliest", "largest": "latest", "none": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings of a connector. Immutable. Defaults are those of 0.7 where it had the setting.

    Args:
        group_id: group whose members share the partitions and the committed offsets.
        consumer_id: prefix of this connector's client ids, which order the members.
        bootstrap: "host:port,..."; None: BRADBURY_BOOTSTRAP, or the Ray cluster this runs in.
        socket_timeout_ms: time without an answer after which a connection is closed.
        fetch_size: maximum bytes of a partition in one response; a larger message is returned, too.
        queued_chunks_max: bytes that a stream may prefetch, as a multiple of `fetch_size`.
        auto_commit, auto_commit_interval_ms: commit consumed offsets in this interval; also before
            a rebalance and at shutdown.
        auto_offset_reset: start if no valid offset is committed: "smallest", "largest", or "none"
            to raise OffsetOutOfRange in the iterator.
        consumer_timeout_ms: time without a message after which an iterator raises
            ConsumerTimeoutException; -1: it waits forever.
        session_timeout_ms, heartbeat_interval_ms: a member without heartbeats is removed.
        topic_refresh_interval_ms: interval of metadata refreshes for new partitions, and for
            filters new topics.
        allow_auto_create_topics: whether a topic given by name may be created by the broker.

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
            raise InvalidConfig("a connector needs a group: set groupid")
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
        """Make settings from 0.7's names: {"groupid": "delays", "autooffset.reset": "smallest"}.

        Raises:
            InvalidConfig: a setting is unknown, removed, or of the wrong type; none is ignored.
        """
        if "groupid" not in properties:
            raise InvalidConfig("a connector needs a group: set groupid")
        return cls(**read_properties(properties, NAMES, GONE))

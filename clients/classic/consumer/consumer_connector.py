"""ConsumerConnector: a group's messages as streams, for any number of threads (0.7, A14).

    connector = ConsumerConnector.create({"groupid": "delays", "autooffset.reset": "smallest"})
    streams = connector.create_message_streams({"flights": 2})["flights"]
    # one thread each:
    for message, topic, partition, offset, *_ in streams[0]: ...

Invariants:
    Each stream is a separate member of the group, so streams of all connectors, and members of
    every other client that assign by range, share the partitions: ceiling(partitions / streams) for
    the first ones. Where there are more streams than partitions, the last ones stay idle.
    Any change (a stream, a partition, for filters a topic) rebalances all members.

One background thread per connector polls for the members whose iterators are idle. A connector that
is garbage-collected together with its streams ends without a commit.

Not here: messages of a stream (kafka_stream), assignment (assignors, coordinator).
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

from ....protocol.errors import ConnectionFailed, KafkaError
from ...admin.admin import Admin
from ...consumer.consumer import Consumer
from ..message.message import Message
from ..message.serializer import Decoder, DefaultDecoder
from .consumer_config import RESETS, ConsumerConfig
from .kafka_stream import KafkaStream
from .topic_filter import TopicFilter

T = TypeVar("T")

logger = logging.getLogger(__name__)

ROUND_S: Final = 0.2
"""Seconds between polls of the members: far fewer than between heartbeats."""

ANSWERS_AHEAD: Final = 2
"""Responses of maximum size that a consumer can hold: its limit when it fetches, and one more."""


class ConsumerConnector:
    """Connector of a group, made by `create`; closes with `shutdown` or `with`.

    Its streams are created once.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self._streams: list[KafkaStream[Any]] = []
        self._created = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def create(cls, config: ConsumerConfig | Mapping[str, object]) -> Self:
        """Create a connector with these settings; a mapping has the names of 0.7.

        Raises:
            InvalidConfig: a setting is unknown, removed or out of bounds.
        """
        if not isinstance(config, ConsumerConfig):
            config = ConsumerConfig.from_properties(config)
        return cls(config)

    @overload
    def create_message_streams(
        self, topic_count: Mapping[str, int]
    ) -> dict[str, list[KafkaStream[Message]]]: ...

    @overload
    def create_message_streams(
        self, topic_count: Mapping[str, int], decoder: Decoder[T]
    ) -> dict[str, list[KafkaStream[T]]]: ...

    def create_message_streams(
        self, topic_count: Mapping[str, int], decoder: Decoder[Any] | None = None
    ) -> dict[str, list[KafkaStream[Any]]]:
        """Create as many streams of each topic as given. They join the group in the background.

        Args:
            decoder: decodes messages for the streams; by default they return the Message.

        Raises:
            ValueError: no topic, fewer than one stream, or streams were created already.
            UnknownTopicOrPartition: there is no such topic.
            ConnectionFailed: no broker answers.
        """
        if not topic_count:
            raise ValueError("create_message_streams needs a topic")
        wanted = [
            topic for topic, number in topic_count.items() for _ in range(_count(number, topic))
        ]
        streams = iter(self._create(wanted, decoder))
        return {
            topic: [next(streams) for _ in range(number)] for topic, number in topic_count.items()
        }

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, number: int = 1
    ) -> list[KafkaStream[Message]]: ...

    @overload
    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, number: int, decoder: Decoder[T]
    ) -> list[KafkaStream[T]]: ...

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, number: int = 1, decoder: Decoder[Any] | None = None
    ) -> list[KafkaStream[Any]]:
        """Create streams of all topics that the filter allows, now and later.

        New topics are added within `topic.refresh.interval.ms`; there may be none at first.

        Raises:
            ValueError: fewer than one stream, or streams were created already.
            ConnectionFailed: no broker answers.
        """
        if not isinstance(topic_filter, TopicFilter):
            raise TypeError(
                f"use Whitelist(...) or Blacklist(...), not {type(topic_filter).__name__}"
            )
        _count(number, repr(topic_filter))
        self._check_new()
        with Admin(
            self.config.bootstrap,
            timeout_ms=self.config.socket_timeout_ms,
            namespace=self.config.namespace,
        ) as admin:
            admin.describe_cluster()  # subscribing to a pattern does not fail without a cluster
        return self._create([topic_filter.pattern] * number, decoder)

    def commit_offsets(self) -> None:
        """Commit the offsets of all messages that the streams' iterators have returned.

        Raises:
            RebalanceInProgress, IllegalGeneration, UnknownMemberId: a stream's partitions move or
                have moved; the other streams are committed. Messages of this one since the last
                commit are read again.
            ConnectionFailed: the coordinator does not answer.
        """
        failure: Exception | None = None
        for stream in self._streams:
            try:
                stream.commit()
            except (KafkaError, ConnectionFailed) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def shutdown(self) -> None:
        """End the iterators, commit (with auto-commit), leave the group. Idempotent.

        Callable from any thread and from a signal handler.
        """
        self._stopping.set()
        for stream in self._streams:
            stream.shutdown()
        if self._thread is not None and all(stream.has_ended for stream in self._streams):
            self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    # --- streams -----------------------------------------------------------------------------

    def _check_new(self) -> None:
        if self._stopping.is_set():
            raise ValueError("the connector is shut down; create another one")
        if self._created:
            raise ValueError(
                "the streams of a connector are created once; create another connector"
            )

    def _create(
        self, wanted: Iterable[str | re.Pattern[str]], decoder: Decoder[T] | None
    ) -> list[KafkaStream[T]]:
        """Create a stream for each subscription."""
        self._check_new()
        made: list[KafkaStream[T]] = []
        try:
            for number, topic in enumerate(wanted):
                made.append(self._stream(f"{self.config.consumer_id}-{number}", topic, decoder))
        except BaseException:
            for stream in made:
                stream.shutdown()
            raise
        self._created = True
        self._streams += made
        for stream in made:
            stream.connector = self
        self._thread = threading.Thread(
            target=_poll_members,
            args=(weakref.ref(self), self._stopping),
            name=f"{self.config.consumer_id}-members",
            daemon=True,
        )
        self._thread.start()
        return made

    def _stream(
        self, client_id: str, wanted: str | re.Pattern[str], decoder: Decoder[T] | None
    ) -> KafkaStream[T]:
        config = self.config
        consumer = Consumer(
            bootstrap=config.bootstrap,
            namespace=config.namespace,
            group=config.group_id,
            client_id=client_id,
            auto_offset_reset=cast("Any", RESETS[config.auto_offset_reset]),
            enable_auto_commit=config.auto_commit,
            auto_commit_interval_ms=config.auto_commit_interval_ms,
            request_timeout_ms=config.socket_timeout_ms,
            max_partition_fetch_bytes=config.fetch_size,
            fetch_max_bytes=max(
                config.fetch_size, config.fetch_size * config.queued_chunks_max // ANSWERS_AHEAD
            ),
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            metadata_max_age_ms=config.topic_refresh_interval_ms,
            allow_auto_create_topics=config.allow_auto_create_topics,
            partition_assignment_strategy="range",
        )
        try:
            consumer.subscribe(wanted)
        except BaseException:
            consumer.close()
            raise
        return KafkaStream(
            consumer,
            # Without a decoder T is Message, as the overloads say.
            decoder or cast("Decoder[T]", DefaultDecoder()),
            client_id=client_id,
            consumer_timeout_ms=config.consumer_timeout_ms,
        )

    # --- in the background -------------------------------------------------------------------

    def _round(self) -> bool:
        """Poll every member once. False: all have ended."""
        for stream in self._streams:
            stream.poll_group()
        return not all(stream.has_ended for stream in self._streams)


def _poll_members(
    reference: Callable[[], ConsumerConnector | None], stopping: threading.Event
) -> None:
    """Poll members until the connector is shut down or garbage-collected (not referenced here)."""
    while True:
        connector = reference()
        if connector is None:
            return
        try:
            if not connector._round():
                return
        except Exception:
            logger.exception("unexpected error in the connector; its members continue")
        del connector
        if stopping.is_set():
            time.sleep(ROUND_S)  # a stream is ending in its iterator's thread
        else:
            stopping.wait(ROUND_S)


def _count(number: int, what: str) -> int:
    if number < 1:
        raise ValueError(f"{what}: at least one stream, not {number}")
    return number

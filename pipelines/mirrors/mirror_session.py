"""Connections of a mirror, and the loop that follows topics until it is stopped.

A session is entered again after brokers were unavailable: entering aborts transactions that were
left open, and reads the positions.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Self

from ...clients.admin.admin import Admin
from ...clients.producer.transactions.transaction_errors import is_ended_by_another
from ...clients.security.security_options import as_given
from ...clients.wire.cluster_client import is_retriable
from ...protocol.errors import ConnectionFailed, KafkaError, ProducerFenced, TransactionAbortable
from ...protocol.topic_partition import TopicPartition
from . import mirror_positions
from .followed_topics import FollowedTopics
from .mirror_checkpoints import MirrorCheckpoints
from .mirror_positions import MirrorPosition
from .mirror_settings import MirrorProgress, MirrorSettings
from .offset_syncs import OffsetSync
from .record_copier import RecordCopier, known_of
from .worker_layout import lay_out, mirror_producer, record_producer

logger = logging.getLogger(__name__)

TOPICS_SECONDS: Final = 5.0
"""Seconds between refreshes of topics and partitions by a continuous mirror."""
BEGIN_AGAIN_SECONDS: Final = 1.0


class MirrorSession:
    """Session of a mirror. Used by one thread. progress: total since construction."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._worked_at: float | None = None
        self._copier: RecordCopier | None = None
        self.progress = MirrorProgress()

    def __enter__(self) -> Self:
        settings = self._settings
        self.source = Admin(settings.source, **as_given(settings.source_security))
        self.target = Admin(settings.target, **as_given(settings.limits.fetch.security))
        self.producer = mirror_producer(settings, settings.transactional_id)
        self._records = record_producer(settings, settings.transactional_id)
        try:
            self.cluster = cluster_to_read(self.source)
            topic = mirror_positions.positions_topic(settings.alias)
            mirror_positions.make_positions_topic(self.target, topic, settings.replication_factor)
            self._groups = MirrorCheckpoints(
                settings.groups, self.source, self.target, self.producer, settings.alias
            )
            # Aborts a former mirror's transaction, so that the positions read next are final.
            self.producer.init_transactions()
            lay_out(settings, self.target, self.producer, self.cluster, 0)
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        settings = self._settings
        topic = mirror_positions.positions_topic(settings.alias)
        state = mirror_positions.read_state(self.target, topic, settings.limits)
        self.take_over(known_of(state.positions, self.cluster, self.source))

    def take_over(
        self,
        known: Sequence[MirrorPosition],
        *,
        turned_around: frozenset[str] = frozenset(),
        skips: Mapping[TopicPartition, Sequence[OffsetSync]] = MappingProxyType({}),
        on_placed: Callable[[Mapping[TopicPartition, OffsetSync]], None] = lambda placed: None,
    ) -> None:
        """Resume from these positions. See FollowedTopics and RecordCopier."""
        settings = self._settings
        self._copier = RecordCopier(
            settings,
            self.source,
            self.producer,
            self.cluster,
            known,
            self.progress,
            records=self._records,
            skips=skips,
            on_placed=on_placed,
        )
        self.topics = FollowedTopics(
            settings,
            self.source,
            self.target,
            self._copier,
            {each.source.topic: each.target for each in known},
            turned_around,
            self._check_target,
            self._prepare_target,
        )

    @property
    def copier(self) -> RecordCopier:
        assert self._copier is not None, "the session was not entered"
        return self._copier

    def _check_target(self, topic: str, partitions: int) -> None:
        """Check an existing topic of the target before it is first filled: a mirror accepts any."""

    def _prepare_target(self, topic: str) -> None:
        """Prepare a topic of the target before it is written to: a mirror changes nothing."""

    def _is_over(self) -> bool:
        """Whether the session must end, as another process has cut the migration over."""
        return False

    def __exit__(self, *_: object) -> None:
        if self._copier is not None:
            self.progress = self._copier.progress
            self._worked_at = self._copier.worked_at or self._worked_at
            self._copier.close_tail()
        for producer in (self.producer, self._records):
            if producer is not None:
                producer.close(10)
        self.source.close()
        self.target.close()

    def run(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        *,
        continuous: bool,
    ) -> None:
        """Copy up to the current ends; with `continuous` follow until `stopped` is set."""
        copier = self.copier
        interval_s = self._settings.sync_groups_interval_s
        self._follow_topics(on_progress, must_find=not continuous)
        looked_at = synced_at = time.monotonic()
        if not continuous:
            copier.copy(stopped, on_progress, math.inf)
        turn_s = min(TOPICS_SECONDS, interval_s)
        while continuous and not stopped.is_set():
            copier.follow(stopped, on_progress, turn_s)
            if stopped.is_set():
                break
            if time.monotonic() - looked_at > TOPICS_SECONDS:
                if self._is_over():
                    return
                self._follow_topics(on_progress)
                looked_at = time.monotonic()
            if time.monotonic() - synced_at > interval_s:
                self._try_to_sync_groups()
                synced_at = time.monotonic()
        copier.commit_positions()
        self.sync_groups()

    def _follow_topics(
        self, on_progress: Callable[[MirrorProgress], None], *, must_find: bool = False
    ) -> None:
        copier = self.copier
        left_out = copier.left_out
        self.topics.look(must_find=must_find)
        # Also a mirror that finds nothing new to copy reports how many topics it follows.
        now = self._with_topics(len(copier.targets), copier.left_out)
        if copier.left_out != left_out:
            on_progress(now)

    def _with_topics(self, topics: int, left_out: tuple[str, ...]) -> MirrorProgress:
        """Update the topics in the progress; returns the progress."""
        self.copier.progress = replace(self.copier.progress, topics=topics, left_out=left_out)
        return self.copier.progress

    def sync_groups(self) -> None:
        copier = self.copier
        self._groups.sync(copier.syncs, copier.targets, self._settings.replication_factor)

    def _try_to_sync_groups(self) -> None:
        try:
            self.sync_groups()
        except TransactionAbortable as error:  # if fenced, the next transaction raises it
            logger.warning("group offsets not synced; retrying at the next interval: %s", error)

    def may_begin_again(self, error: Exception) -> bool:
        """Whether the error may be temporary: brokers that answered recently are unavailable.

        The outcome of an open transaction is then unknown, which does not matter: entering again
        aborts it if it is still open, and reads the positions.
        """
        patience_s = self._settings.limits.poll_timeout_ms / 1000
        worked_at = self._worked_at
        is_recent = worked_at is not None and time.monotonic() - worked_at < patience_s
        return is_recent and is_retriable(error)


def run_session(
    session: MirrorSession,
    stopped: threading.Event,
    on_progress: Callable[[MirrorProgress], None],
    *,
    continuous: bool,
) -> MirrorProgress:
    """Run a session to its end; a continuous one restarts when brokers come back.

    Raises:
        ProducerFenced: another process or a timeout has ended a transaction of the session.
        KafkaError, ConnectionFailed: the session failed.
    """
    while True:
        try:
            with session:
                session.run(stopped, on_progress, continuous=continuous)
            return session.progress
        except (KafkaError, ConnectionFailed) as error:
            if is_ended_by_another(error):
                raise ProducerFenced(
                    "another mirror of this alias has begun, or a transaction was open for too "
                    "long; run one at a time, or give each an alias of its own"
                ) from error
            if not continuous or not session.may_begin_again(error):
                raise
            if stopped.is_set():
                return session.progress
            logger.warning("restarting the mirror: %s", error)
            stopped.wait(BEGIN_AGAIN_SECONDS)


def cluster_to_read(source: Admin) -> str:
    """Id of the source cluster. Raises ConnectionFailed, whose text names it as the source."""
    try:
        return source.describe_cluster().cluster_id
    except ConnectionFailed as error:
        raise type(error)(f"the source cluster: {error}") from None

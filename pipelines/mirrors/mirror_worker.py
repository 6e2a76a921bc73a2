"""Worker that copies a share of a mirror's partitions; runs in a Ray actor.

A worker that Ray restarts starts like a mirror that is run again: it aborts the open transaction of
its former process, and reads the positions of its partitions. So a turn may be repeated.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...clients.producer.transactions.transaction_errors import is_ended_by_another
from ...clients.security.security_options import as_given
from ...protocol.errors import KafkaError, ProducerFenced
from ...protocol.topic_partition import TopicPartition
from . import mirror_positions
from .mirror_settings import MirrorProgress, MirrorSettings
from .record_copier import RecordCopier, known_of
from .worker_layout import WorkerLayout, mirror_producer, record_producer, share, worker_id

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Topics and partitions that the workers of a mirror share.

    targets: target topic by source topic. partitions: partition count by source topic. revision:
    differs from the last one if positions were changed by the session instead of the workers.
    """

    targets: Mapping[str, str]
    partitions: Mapping[str, int]
    revision: int


@dataclass(frozen=True, slots=True)
class TurnReport:
    """Result of a turn. progress: of this turn. is_done: copied up to the ends of the source."""

    progress: MirrorProgress
    is_done: bool


class MirrorWorker:
    """Worker `number` of the `actors` workers of an epoch. actor_session makes it a Ray actor.

    Settings come with each turn, not with the constructor: passwords are among them, and Ray keeps
    the arguments of constructors in clear in the memory of its head, or in a database. Arguments of
    methods go from process to process.
    """

    def __init__(self, alias: str, cluster: str, epoch: int, number: int, actors: int) -> None:
        self._alias = alias
        self._settings: MirrorSettings | None = None
        self._cluster = cluster
        self._epoch = epoch
        self._number = number
        self._actors = actors
        self._source: Admin | None = None
        self._target: Admin | None = None
        self._producer: Producer | None = None
        self._records: Producer | None = None
        self._copier: RecordCopier | None = None
        self._revision = -1
        self._stop = threading.Event()

    def __repr__(self) -> str:
        """Name in Ray's dashboard: the mirror's alias and the share."""
        return f"MirrorWorker({self._alias} {self._number + 1}/{self._actors})"

    def turn(self, settings: MirrorSettings, plan: MirrorPlan, turn_s: float) -> TurnReport:
        """Copy for `turn_s` seconds, following new records; math.inf: up to the current ends.

        settings: the same in all turns.

        Raises:
            ProducerFenced: another mirror of this alias has started.
            DataLoss, KafkaError, ConnectionFailed: as a mirror. The next turn starts over.
        """
        self._settings = settings
        try:
            try:
                return self._turn(plan, turn_s)
            except KafkaError as error:
                if isinstance(error, ProducerFenced) or not is_ended_by_another(error):
                    raise
                # Aborted by a timeout, or by another mirror that has started; the latter is
                # detected when this worker starts over.
                logger.warning("restarting %r: %s", self, error)
                self._restart()
                return self._turn(plan, turn_s)
        except BaseException:
            self._close_clients()
            raise

    def _turn(self, plan: MirrorPlan, turn_s: float) -> TurnReport:
        copier = self._ready(plan)
        go = copier.copy if turn_s == math.inf else copier.follow
        is_done = go(self._stop, _nothing, turn_s)
        report = TurnReport(copier.progress, is_done and not self._stop.is_set())
        copier.progress = MirrorProgress()
        return report

    def _restart(self) -> None:
        """Start over with new clients and committed positions; keeps the progress of the turn."""
        former = self._copier
        self._close_clients()
        self._copier = self._open()
        if former is not None:
            self._copier.take_uncommitted_positions(former)
            self._copier.progress = former.progress

    def stop(self) -> None:
        """End the running turn after its transaction, and later turns at once."""
        self._stop.set()

    def close(self) -> None:
        """Commit the positions and disconnect. Another turn would connect again."""
        try:
            if self._copier is not None:
                self._copier.commit_positions()
        finally:
            self._close_clients()

    def _close_clients(self) -> None:
        """Close all clients; an open transaction is aborted."""
        if self._copier is not None:
            self._copier.close_tail()
        self._copier = None
        for client in (self._source, self._target):
            if client is not None:
                client.close()
        for producer in (self._producer, self._records):
            if producer is not None:
                producer.close(CLOSE_SECONDS)
        self._source = self._target = self._producer = self._records = None

    def _ready(self, plan: MirrorPlan) -> RecordCopier:
        copier = self._copier
        if copier is None or plan.revision != self._revision or self._has_new(copier, plan):
            former, copier = copier, self._open()
            if former is not None:
                former.close_tail()
                copier.take_uncommitted_positions(former)
            self._copier = copier
        copier.targets = dict(plan.targets)
        copier.partitions = dict(plan.partitions)
        self._revision = plan.revision
        return copier

    def _has_new(self, copier: RecordCopier, plan: MirrorPlan) -> bool:
        """Whether own partitions of the plan have no known position yet."""
        known = copier.positions.offsets
        return any(
            key not in known
            for topic, count in plan.partitions.items()
            for key in (TopicPartition(topic, number) for number in range(count))
            if self._is_mine(key)
        )

    def _is_mine(self, partition: TopicPartition) -> bool:
        return share(partition, self._actors) == self._number

    def _open(self) -> RecordCopier:
        settings = self._settings
        assert settings is not None, "only a turn opens clients"
        if self._producer is None or self._source is None or self._target is None:
            self._source = Admin(settings.source, **as_given(settings.source_security))
            self._target = Admin(settings.target, **as_given(settings.limits.fetch.security))
            one = worker_id(settings, self._epoch, self._number)
            self._producer = mirror_producer(settings, one)
            self._records = record_producer(settings, one)
            # Aborts a former process's transaction, so that the positions read next are final.
            self._producer.init_transactions()
        topic = mirror_positions.positions_topic(settings.alias)
        state = mirror_positions.read_state(self._target, topic, settings.limits)
        if WorkerLayout.read(state.notes(self._cluster)).epoch != self._epoch:
            raise ProducerFenced(f"another mirror of the alias {settings.alias!r} has started")
        return RecordCopier(
            settings,
            self._source,
            self._producer,
            self._cluster,
            known_of(state.positions, self._cluster, self._source),
            MirrorProgress(),
            records=self._records,
            is_mine=self._is_mine,
        )


def _nothing(progress: MirrorProgress) -> None:
    """Ignore progress: TurnReport has it."""

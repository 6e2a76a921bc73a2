"""A share of a mirror's partitions, copied by a worker: what runs in each of its actors.

A worker that Ray starts again begins as a mirror that is run again: it ends what its former life
has left open, and reads how far its partitions are. So a turn may be repeated.
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
from ...clients.wire.record_metadata import TopicPartition
from ...protocol.errors import KafkaError, ProducerFenced
from . import mirror_positions
from .mirror_settings import MirrorProgress, MirrorSettings
from .record_copier import RecordCopier, known_of
from .worker_layout import WorkerLayout, mirror_producer, record_producer, share, worker_id

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What all workers of a mirror copy, each its share.

    revision: another one says that positions were changed by somebody else than the workers.
    """

    targets: Mapping[str, str]
    partitions: Mapping[str, int]
    revision: int


@dataclass(frozen=True, slots=True)
class TurnReport:
    """progress: of this turn. is_done: all that was there was copied."""

    progress: MirrorProgress
    is_done: bool


class MirrorWorker:
    """One of `actors` of an epoch. A plain class: actor_session makes it a Ray actor."""

    def __init__(
        self, settings: MirrorSettings, cluster: str, epoch: int, number: int, actors: int
    ) -> None:
        self._settings = settings
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
        """In Ray's dashboard: of which mirror, and which share."""
        return f"MirrorWorker({self._settings.alias} {self._number + 1}/{self._actors})"

    def turn(self, plan: MirrorPlan, turn_s: float) -> TurnReport:
        """Copy what there is and comes within `turn_s`; math.inf: what there is now, to its end.

        Raises:
            ProducerFenced: another mirror of this alias has begun.
            DataLoss, KafkaError, ConnectionFailed: as a mirror. The next turn begins anew.
        """
        try:
            try:
                return self._turn(plan, turn_s)
            except KafkaError as error:
                if isinstance(error, ProducerFenced) or not is_ended_by_another(error):
                    raise
                # By its time-out, or by a mirror that has begun meanwhile, which it hears of when
                # it begins anew.
                logger.warning("%r begins anew: %s", self, error)
                self._begin_anew()
                return self._turn(plan, turn_s)
        except BaseException:
            self._let_go()
            raise

    def _turn(self, plan: MirrorPlan, turn_s: float) -> TurnReport:
        copier = self._ready(plan)
        go = copier.copy if turn_s == math.inf else copier.follow
        is_done = go(self._stop, _nothing, turn_s)
        report = TurnReport(copier.progress, is_done and not self._stop.is_set())
        copier.progress = MirrorProgress()
        return report

    def _begin_anew(self) -> None:
        """With new clients, from where the target says; what is done of the turn counts."""
        former = self._copier
        self._let_go()
        self._copier = self._open()
        if former is not None:
            self._copier.take_unsaid(former)
            self._copier.progress = former.progress

    def stop(self) -> None:
        """End the turn that runs after its transaction, and those that follow at once."""
        self._stop.set()

    def close(self) -> None:
        """Say how far it is, and let go of the brokers. Another turn would begin anew."""
        try:
            if self._copier is not None:
                self._copier.say_how_far()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """What is open is aborted."""
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
                copier.take_unsaid(former)
            self._copier = copier
        copier.targets = dict(plan.targets)
        copier.partitions = dict(plan.partitions)
        self._revision = plan.revision
        return copier

    def _has_new(self, copier: RecordCopier, plan: MirrorPlan) -> bool:
        """Whether there are partitions of which it was not read yet where they begin."""
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
        if self._producer is None or self._source is None or self._target is None:
            self._source = Admin(settings.source, **as_given(settings.source_security))
            self._target = Admin(settings.target, **as_given(settings.limits.fetch.security))
            one = worker_id(settings, self._epoch, self._number)
            self._producer = mirror_producer(settings, one)
            self._records = record_producer(settings, one)
            # Ends a former life's transaction, so that what is read next is the last word.
            self._producer.init_transactions()
        topic = mirror_positions.positions_topic(settings.alias)
        state = mirror_positions.read_state(self._target, topic, settings.limits)
        if WorkerLayout.read(state.notes(self._cluster)).epoch != self._epoch:
            raise ProducerFenced(f"another mirror of the alias {settings.alias!r} has begun")
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
    """The report says it."""

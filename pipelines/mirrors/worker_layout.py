"""Layout of a mirror's worker actors, and fencing of former ones.

    note "actors"   {"epoch": ..., "actors": N, "former": [[epoch, N], ...]}

Workers of an epoch write under transactional ids of their own: <mirror's id>-<epoch>-<number>.

Invariants: of two layouts only the workers of the newer one can commit. The note is written
first, then the former workers' ids are fenced. A worker initializes its id first, then reads the
note: so a former one that Ray restarts is fenced, or finds a newer epoch. former: epochs whose
fencing has not been completed, as it was interrupted.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...clients.security.security_options import as_given
from ...protocol.topic_partition import TopicPartition
from . import mirror_positions
from .mirror_positions import Notes
from .mirror_settings import MirrorSettings

_NOTE: Final = "actors"
MOST_ACTORS: Final = 64
MOST_RECORD_BYTES: Final = 128 * 1024**2
TRANSACTION_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class WorkerLayout:
    """Current workers. epoch: 0 before the first. former: (epoch, actors) still to be fenced."""

    epoch: int = 0
    actors: int = 0
    former: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, notes: Notes) -> Self:
        content: Any = notes.get(_NOTE)
        if content is None:
            return cls()
        former = tuple((int(epoch), int(actors)) for epoch, actors in content["former"])
        return cls(int(content["epoch"]), int(content["actors"]), former)

    def content(self) -> dict[str, object]:
        return {"epoch": self.epoch, "actors": self.actors, "former": [*map(list, self.former)]}

    def next(self, actors: int) -> WorkerLayout:
        before = ((self.epoch, self.actors),) if self.actors else ()
        return WorkerLayout(self.epoch + 1, actors, (*self.former, *before))


def worker_id(settings: MirrorSettings, epoch: int, number: int) -> str:
    return f"{settings.transactional_id}-{epoch}-{number}"


def share(partition: TopicPartition, actors: int) -> int:
    """Number of the worker that has a partition; partitions of a topic are spread."""
    return (zlib.crc32(partition.topic.encode()) + partition.partition) % actors


def lay_out(
    settings: MirrorSettings, target: Admin, producer: Producer, cluster: str, actors: int
) -> WorkerLayout:
    """Fence all workers but those that the caller starts next; with `actors` 0, all.

    producer: the mirror's own, initialized.
    """
    topic = mirror_positions.positions_topic(settings.alias)
    state = mirror_positions.read_state(target, topic, settings.limits)
    layout = WorkerLayout.read(state.notes(cluster))
    if not actors and not layout.actors and not layout.former:
        return layout
    layout = layout.next(actors)
    _write(producer, topic, cluster, layout)
    for epoch, count in layout.former:
        _fence([worker_id(settings, epoch, number) for number in range(count)], settings)
    layout = WorkerLayout(layout.epoch, layout.actors)
    _write(producer, topic, cluster, layout)
    return layout


def _write(producer: Producer, topic: str, cluster: str, layout: WorkerLayout) -> None:
    with producer.transaction():
        mirror_positions.write_note(producer, topic, cluster, _NOTE, layout.content())


def _fence(transactional_ids: Sequence[str], settings: MirrorSettings) -> None:
    for one in transactional_ids:
        with mirror_producer(settings, one) as producer:
            producer.init_transactions()


def mirror_producer(settings: MirrorSettings, transactional_id: str) -> Producer:
    return _producer(settings, transactional_id, transactional_id)


def record_producer(settings: MirrorSettings, transactional_id: str) -> Producer | None:
    """Producer of a mirror without transactions; None: the transactional one sends records."""
    return (
        None if settings.exactly_once else _producer(settings, f"{transactional_id}-records", None)
    )


def _producer(settings: MirrorSettings, client_id: str, transactional_id: str | None) -> Producer:
    return Producer(
        settings.target,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_MS,
        # The target enforces its own limit: max.message.bytes of its topics.
        max_request_size=MOST_RECORD_BYTES,
        buffer_memory=2 * MOST_RECORD_BYTES,
        client_id=client_id,
        **as_given(settings.limits.fetch.security),
    )

"""Copier of a mirror's records: new records, in transactions together with the positions.

Invariants: positions and syncs are those committed in the target; a transaction that fails
changes neither. Without transactions (`records`), at least once: positions and syncs are those of
acknowledged records, and are committed afterwards, every POSITIONS_SECONDS and by
`commit_positions`, which also detects another mirror of the alias.

Not here: the choice of topics, and their names in the target (followed_topics); the offset ranges
of the source (source_ranges).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from ...clients.admin.admin import Admin
from ...clients.admin.replay import ReplayReport, replay, replay_fetched
from ...clients.producer.producer import Producer
from ...protocol.errors import OffsetOutOfRange, TransactionAbortable
from ...protocol.topic_partition import TopicPartition
from ..loads.loaded_offsets import LoadedOffsets, next_ranges
from ..ranges.partition_range import DataLoss, PartitionRange
from ..ranges.reading_client import reading_client
from . import mirror_positions
from .mirror_positions import MirrorPosition
from .mirror_settings import MirrorProgress, MirrorSettings
from .offset_syncs import OffsetSync, OffsetSyncs
from .record_tail import RecordTail, ranges_of
from .source_ranges import SourceRanges

logger = logging.getLogger(__name__)

COMMIT_BYTES: Final = 256 * 1024 * 1024
FIRST_RECORDS: Final = 1_000
"""Records in the first commit; the size of records is not known yet."""
POSITIONS_SECONDS: Final = 5.0
"""Seconds between commits of positions by a mirror without transactions."""
LEAST_SECONDS: Final = 0.002
"""Least seconds between two commits while following."""
LOOK_SECONDS: Final = 0.2
"""Seconds between refreshes of topics and offsets, when no tail can be opened."""
STOP_SECONDS: Final = 0.2
"""Most seconds until a set `stopped` event is noticed."""
MOST_FAILURES: Final = 5
"""Most aborted transactions in a row before the mirror fails."""
REPEATED: Final = "a transaction of the mirror was aborted; retrying: %s"

T = TypeVar("T")


class RecordCopier:
    """Copies the partitions of a mirror, or a share of them. Used by one thread.

    targets, partitions: topic of the target, and number of partitions to copy, by source topic;
        other topics are not copied.
    is_mine: whether this copier copies a partition.
    records: sends them without transactions; None: `producer` does, in its own.
    skips: ranges that are not copied, since they are in the target already.
    left_out: topics that are not copied, since they come from the target; for the progress.
    leads: it only commits the starts of new partitions; workers copy (actor_session). commits:
        number of times that it has changed positions.
    on_placed: called after each commit with the offsets of its records in source and target. Here a
        piece is exact if no other producer's records lie between them in the target, even if the
        source has gaps.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        source: Admin,
        producer: Producer,
        cluster: str,
        known: Sequence[MirrorPosition],
        progress: MirrorProgress,
        *,
        records: Producer | None = None,
        is_mine: Callable[[TopicPartition], bool] = lambda partition: True,
        skips: Mapping[TopicPartition, Sequence[OffsetSync]] = MappingProxyType({}),
        on_placed: Callable[[Mapping[TopicPartition, OffsetSync]], None] = lambda placed: None,
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._records = records
        self._uncommitted: set[TopicPartition] = set()
        self._committed_at = time.monotonic()
        self._cluster = cluster
        self._is_mine = is_mine
        self._source = SourceRanges(settings, source, skips)
        self._on_placed = on_placed
        tailing = replace(
            settings.limits.fetch,
            security=settings.source_security,
            client_id=f"{settings.limits.fetch.client_id}-tail",
        )
        self._tail_client = reading_client(settings.source, tailing)
        self._tail: RecordTail | None = None
        self._topic = mirror_positions.positions_topic(settings.alias)
        self._next_records = min(FIRST_RECORDS, settings.commit_records)
        self.targets: dict[str, str] = {}
        self.partitions: dict[str, int] = {}
        self.positions = mirror_positions.as_offsets(known)
        self.syncs = {each.source: each.syncs for each in known}
        self._complete = frozenset(each.source for each in known if each.is_complete)
        self._refilled: set[str] = set()
        """Topics whose former records may be in the target, and are in no syncs any more."""
        self.left_out: tuple[str, ...] = ()
        self.progress = progress
        self.worked_at: float | None = None
        self.leads = False
        self.commits = 0

    def commit_starts(self) -> list[PartitionRange]:
        """Commit the starts of new topics and partitions, before anything of them is copied.

        Returns the ranges to copy; with `leads`, those of partitions without a position.
        """
        return self._repeat(self._commit_starts)

    def _commit_starts(self) -> list[PartitionRange]:
        ranges = self._unknown_ranges() if self.leads else self._new_ranges()
        moved = [
            one
            for one in ranges
            if self.positions.offsets.get(one.topic_partition) != one.start
            # Records sent without transactions may be written twice, once outside of the syncs.
            or (self._records is not None and one.topic_partition in self._complete)
        ]
        if moved:
            self._commit([one._replace(end=one.start) for one in moved], _nothing)
            self.commit_positions()
        return ranges

    def commit_positions(self) -> None:
        """Commit the positions that were not committed with the records.

        Raises ProducerFenced: another mirror of this alias has started.
        """
        uncommitted = sorted(key for key in self._uncommitted if key.topic in self.targets)
        if uncommitted:
            self._repeat(partial(self._commit_positions, uncommitted))
        self._uncommitted.clear()
        self._committed_at = time.monotonic()

    def _commit_positions(self, partitions: Sequence[TopicPartition]) -> None:
        with self._producer.transaction():
            self._write_positions(self.positions, self.syncs, partitions, self._complete)

    def _repeat(self, attempt: Callable[[], T]) -> T:
        """Run a transaction again until it is not aborted; an aborted one has no effect."""
        failures = 0
        while True:
            try:
                return attempt()
            except TransactionAbortable as error:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
                logger.warning(REPEATED, error)

    def commit_positions_when_due(self) -> None:
        if time.monotonic() - self._committed_at > POSITIONS_SECONDS:
            self.commit_positions()

    def take_uncommitted_positions(self, former: RecordCopier) -> None:
        """Take over positions that a former copier of this share has not committed yet."""
        ids = former.positions.topic_ids
        for key in former._uncommitted & self.positions.offsets.keys():
            start, end = self.positions.offsets[key], former.positions.offsets[key]
            if start < end and self.positions.topic_ids[key.topic] == ids[key.topic]:
                self.positions = self.positions.after([PartitionRange(*key, start, end)], ids)
                self.syncs[key] = former.syncs.get(key, OffsetSyncs())
                self._uncommitted.add(key)

    def forget(self, topics: Sequence[str]) -> None:
        """Treat topics as never copied; committed positions stay until they are copied again."""
        self._refilled.update(topics)
        self._complete = frozenset(key for key in self._complete if key.topic not in topics)
        self._forget(topics)

    def _forget(self, topics: Sequence[str]) -> None:
        self.commits += bool(topics)
        self.positions = self.positions.without(topics)
        self.syncs = {key: one for key, one in self.syncs.items() if key.topic not in topics}
        self._uncommitted = {key for key in self._uncommitted if key.topic not in topics}

    def withdraw(self, topics: Sequence[str]) -> None:
        """Delete the committed positions of these topics."""
        gone = [key for key in self.positions.offsets if key.topic in topics]
        if gone:
            self._repeat(partial(self._withdraw, gone))
            self._forget(topics)

    def _withdraw(self, partitions: Sequence[TopicPartition]) -> None:
        with self._producer.transaction():
            mirror_positions.withdraw_positions(
                self._producer, self._topic, self._cluster, partitions
            )

    def copy(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        turn_s: float,
    ) -> bool:
        """Copy up to the current ends, for about `turn_s` seconds; whether all was copied."""
        began = self.worked_at = time.monotonic()
        rounds = 1 + self._source.most_skips  # one up to each skip
        self.commit_positions_when_due()
        return all(self._copy(stopped, on_progress, began + turn_s) for _ in range(rounds))

    def _copy(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        until: float,
    ) -> bool:
        failures = 0
        ranges = self.commit_starts() if self.targets else []
        while size_of(ranges) and not stopped.is_set():
            if time.monotonic() > until:
                return False
            part = next_ranges(ranges, self._next_records)
            try:
                report = self._commit(part, partial(self._replay, part))
            except (TransactionAbortable, OffsetOutOfRange) as error:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
                # The transaction had no effect; the next is smaller, in case it took too long.
                # ProducerFenced is not caught. Deleted records and recreated topics are detected
                # by commit_starts.
                logger.warning(REPEATED, error)
                self._next_records = max(1, self._next_records // 2)
                ranges = self.commit_starts()
                continue
            failures = 0
            self.worked_at = time.monotonic()
            ranges = [
                one._replace(start=self.positions.offsets[one.topic_partition]) for one in ranges
            ]
            self._adapt(report, size_of(part))
            self._add(report, size_of(ranges))
            on_progress(self.progress)
            self.commit_positions_when_due()
        return True

    def _add(self, report: ReplayReport, behind: int) -> None:
        before = self.progress
        self.progress = MirrorProgress(
            len(self.targets),
            before.records + report.records,
            before.batches + report.batches,
            before.recoded + report.recoded,
            before.bytes + report.bytes,
            before.commits + 1,
            behind,
            self.left_out,
        )

    # --- following -------------------------------------------------------------------------------

    def follow(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        turn_s: float,
    ) -> bool:
        """Copy for `turn_s` seconds, following new records; whether the ends were reached."""
        until = time.monotonic() + turn_s
        is_done = self._knows_all() or self.copy(stopped, on_progress, turn_s)
        while is_done and not stopped.is_set() and (left_s := until - time.monotonic()) > 0:
            if not self._copy_what_comes(stopped, on_progress, until):
                # `copy` refreshes topics and offsets; if it succeeds, following resumes.
                stopped.wait(min(LOOK_SECONDS, left_s))
                left_s = max(0.0, until - time.monotonic())
                is_done = self.copy(stopped, on_progress, left_s)
        return is_done

    def _knows_all(self) -> bool:
        """Whether the open tail waits at the current position of every partition."""
        return self._tail is not None and self._tail.positions == self._ends()

    def _ends(self) -> dict[TopicPartition, int]:
        """Next offset of each partition of this copier; -1 if not known yet."""
        known = self.positions.offsets
        return {
            key: known.get(key, -1)
            for topic, count in self.partitions.items()
            if topic in self.targets
            for key in (TopicPartition(topic, number) for number in range(count))
            if self._is_mine(key)
        }

    def _copy_what_comes(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        until: float,
    ) -> bool:
        """Follow new records until `until`. False: topics and offsets must be refreshed."""
        try:
            tail = self._open_tail()
            if tail is None:
                return False
            while not stopped.is_set() and (left_s := until - time.monotonic()) > 0:
                fetched = tail.take(min(left_s, STOP_SECONDS))
                began = self.worked_at = time.monotonic()
                if began - self._committed_at > POSITIONS_SECONDS:
                    if self._source.are_made_again(
                        {key.topic for key in tail.positions}, self.targets
                    ):
                        self.close_tail()
                        return False
                    self.commit_positions()
                if not fetched:
                    continue
                part = ranges_of(fetched)
                send = partial(replay_fetched, fetched, self.targets)
                self._add(self._commit(part, send, is_tail=True), 0)
                on_progress(self.progress)
                # Busy for at most half of the time, also if there are few new records.
                stopped.wait(max(LEAST_SECONDS, time.monotonic() - began))
        except (TransactionAbortable, OffsetOutOfRange) as error:
            logger.info("refreshing topics and offsets: %s", error)
            self.close_tail()
            return False
        except BaseException:
            self.close_tail()
            raise
        return True

    def _open_tail(self) -> RecordTail | None:
        """The tail at the current positions; None: a position is unknown, or a skip lies ahead."""
        ends = self._ends()
        if self._tail is not None and self._tail.positions != ends:
            self.close_tail()
        if self._tail is None:
            if not ends or -1 in ends.values() or self._source.have_skips(ends):
                return None
            self._tail = RecordTail(self._tail_client, ends)
        return self._tail

    def close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _adapt(self, report: ReplayReport, offsets: int) -> None:
        """Set the number of offsets of the next transaction to about COMMIT_BYTES.

        The size per offset is that of the last part, which may have had no or aborted records.
        """
        size = report.bytes / max(1, offsets)
        most = self._settings.commit_records
        self._next_records = max(1, min(most, int(COMMIT_BYTES / max(1.0, size))))

    def _new_ranges(self) -> list[PartitionRange]:
        """Ranges from the positions to the current ends of the source."""
        topics = sorted(self.targets)
        self._source.look(topics)
        ids = self._source.topic_ids
        anew = [name for name in self.positions.made_again(ids) if name in self.targets]
        if anew and self._settings.limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {anew[0]!r} was deleted and recreated since it was mirrored. To copy it "
                "from its beginning, after the former topic's records, "
                f"{self._settings.limits.allow_data_loss}"
            )
        self.forget(anew)
        ranges = self._source.resolve(
            topics,
            {key.topic for key in self.positions.offsets},
            # Positions of other workers' partitions are not kept up to date here.
            {key: offset for key, offset in self.positions.offsets.items() if self._is_mine(key)},
        )
        return [
            self._without_skips(one)
            for one in ranges
            if one.partition < self.partitions[one.topic] and self._is_mine(one.topic_partition)
        ]

    def _unknown_ranges(self) -> list[PartitionRange]:
        """Ranges of partitions without a position; the workers know those of the others."""
        known = self.positions.offsets
        topics = [
            topic
            for topic, count in sorted(self.partitions.items())
            if any(TopicPartition(topic, number) not in known for number in range(count))
        ]
        self._source.look(self.targets)
        return [
            one
            for one in self._source.resolve(topics, {key.topic for key in known})
            if one.topic_partition not in known and one.partition < self.partitions[one.topic]
        ]

    def _without_skips(self, one: PartitionRange) -> PartitionRange:
        """The range up to the next skip, or after it; adds passed skips to the offset syncs."""
        one, passed = self._source.without_skips(one)
        for skip in passed:
            before = self.syncs.get(one.topic_partition, OffsetSyncs())
            self.syncs[one.topic_partition] = before.after(skip)
        return one

    def _commit(
        self,
        part: Sequence[PartitionRange],
        send: Callable[[Producer], ReplayReport],
        *,
        is_tail: bool = False,
    ) -> ReplayReport:
        """Commit the records that `send` sends and their positions; or send without a transaction.

        Raises TransactionAbortable: the transaction had no effect.
        """
        self.commits += 1
        after = self.positions.after(part, self._source.topic_ids)
        copied = [one.topic_partition for one in part]
        complete = self._complete_after(copied)
        with self._producer.transaction() if self._records is None else nullcontext():
            total = send(self._records or self._producer)
            syncs = {**self.syncs, **self._synced(part, total)}
            if self._records is None:
                self._write_positions(after, syncs, copied, complete)
            topics = sorted({one.topic for one in part})
            # Without transactions, topics are checked before positions are committed
            # (_copy_what_comes).
            is_looked_at = is_tail and self._records is not None
            if not is_looked_at and self._source.are_made_again(topics, self.targets):
                raise TransactionAbortable(
                    f"one of the topics {', '.join(topics)} was recreated while it was copied"
                )
        self.positions, self.syncs, self._complete = after, syncs, complete
        if self._records is not None:
            self._uncommitted.update(copied)
        ranges = {one.topic_partition: one for one in part}
        self._on_placed(
            {
                key: OffsetSync(
                    ranges[key].start,
                    ranges[key].end,
                    placed.start,
                    placed.end,
                    placed.records == placed.end - placed.start,
                )
                for key, placed in total.placed.items()
            }
        )
        return total

    def _complete_after(self, copied: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        if self._records is not None:
            return self._complete.difference(copied)
        known = self.positions.offsets
        return self._complete.union(
            key for key in copied if key not in known and key.topic not in self._refilled
        )

    def _replay(self, part: Sequence[PartitionRange], producer: Producer) -> ReplayReport:
        """Copy a part; returns when all of it is acknowledged."""
        total = ReplayReport()
        for topic in sorted({one.topic for one in part if one.size}):
            report = replay(
                {
                    TopicPartition(topic, one.partition): (one.start, one.end)
                    for one in part
                    if one.topic == topic and one.size
                },
                self.targets[topic],
                producer,
                client=self._source.client,
                partitions={one.partition: one.partition for one in part if one.topic == topic},
                poll_timeout_ms=self._settings.limits.poll_timeout_ms,
            )
            total.records += report.records
            total.batches += report.batches
            total.recoded += report.recoded
            total.bytes += report.bytes
            total.placed |= report.placed
        return total

    def _write_positions(
        self,
        positions: LoadedOffsets,
        syncs: Mapping[TopicPartition, OffsetSyncs],
        changed: Sequence[TopicPartition],
        complete: frozenset[TopicPartition],
    ) -> None:
        mirror_positions.write_positions(
            self._producer,
            self._topic,
            self._cluster,
            positions,
            self.targets,
            syncs,
            changed,
            complete,
        )

    def _synced(
        self, part: Sequence[PartitionRange], report: ReplayReport
    ) -> dict[TopicPartition, OffsetSyncs]:
        """Offset syncs with the part that was just copied."""
        synced = {}
        for one in part:
            placed = report.placed.get(one.topic_partition)
            if placed is not None:
                is_exact = placed.records == one.size == placed.end - placed.start
                piece = OffsetSync(one.start, one.end, placed.start, placed.end, is_exact)
                before = self.syncs.get(one.topic_partition, OffsetSyncs())
                synced[one.topic_partition] = before.after(piece)
        return synced


def _nothing(_: Producer) -> ReplayReport:
    return ReplayReport()


def size_of(ranges: Sequence[PartitionRange]) -> int:
    return sum(one.size for one in ranges)


def known_of(
    positions: Sequence[MirrorPosition], cluster: str, source: Admin
) -> list[MirrorPosition]:
    """Positions of this source, without those of former topics of the same name."""
    return mirror_positions.of_these_topics(
        [each for each in positions if each.cluster == cluster],
        {each.name: str(each.topic_id) for each in source.describe_topics()},
    )

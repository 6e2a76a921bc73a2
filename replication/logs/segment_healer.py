"""Segment healer: finds damage in segments, and repairs it from other replicas.

    suspect     a reader found damage in a segment, or log_scrub doubts it
    examine     the segment is read whole                                 in a scrubber's thread
    known       readers get KAFKA_STORAGE_ERROR while it may be repaired, then CORRUPT_MESSAGE or
                the records behind it (storage/log/log_damage)
    prepare     a new file, with the intact batches up to the first gap   in a scrubber's thread
    fetch       missing records, from another replica
    add         they are checked, and appended; then the next fetch       in a scrubber's thread
    finish      the new files are on the disk                             in a scrubber's thread
    apply       they replace the damaged segment

Between any two of these the log may be truncated, moved, deleted or compacted: `examine` and
`apply` check whether the segment is unchanged, and do nothing if it is not (SegmentChanged).
Nothing of the log is removed before `apply`: a stop, a full disk or a wrong answer ends the repair
without harm, and the next round begins again.

The healer fetches from another replica like a consumer, so any replica that has the records
answers, leader or follower, and only with committed ones; storage/log/segment_patch decides which
of them are used. The repaired replica stays leader or follower, in sync or not.

Not here: threads, connections and the throttle (actors/replication/log_scrubber), what counts as
damage (storage/log/log_damage).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final

from ...cluster.metadata.metadata_image import MetadataImage
from ...protocol.errors import (
    ConnectionFailed,
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    error_for,
)
from ...protocol.fetch_session_epoch import FINAL_EPOCH
from ...protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ...protocol.topic_partition import TopicPartitionPair
from ...storage.directories.log_directories import LogDirectories
from ...storage.disk.storage_failure import StorageFailure
from ...storage.log.log_damage import DamagedRange, LogDamage, SegmentExamination
from ...storage.log.segment_patch import SegmentChanged, SegmentPatch
from ...storage.segments.log_segment import LogSegment
from ..effects import Effects, RunScrubWork, SendRepairFetch, WorkingStep
from ..partition.replica import Replica
from ..procedure import Outcomes, ProcedureSteps
from .segment_sources import segment_sources

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]
"""Called with each number of bytes read. It may wait, and raises ScrubbingStopped."""
Examining = Generator[Sequence[Any], Outcomes, SegmentExamination | None]

DEBUGGING_CONSUMER: Final = -2
"""Replica id of a debugging consumer in Kafka: bradbury.damaged.segment=skip does not apply to it,
as a skipped gap would be copied into our log.
"""
WAIT_MS: Final = 100
MOST_BYTES: Final = 4 * 1024**2
"""Most bytes of one answer; the largest batch is sent whole."""
FIRST_RETRY_MS: Final = 500
LAST_RETRY_MS: Final = 60_000
HOPEFUL_ATTEMPTS: Final = 4
"""Attempts to repair from other replicas before readers are told that the records are lost."""


class ScrubbingStopped(Exception):
    """Scrubbing stops because the node ends."""


class _Attempts:
    """Attempts to repair the damage of one log. Times are of the monotonic clock."""

    __slots__ = ("count", "due_ms", "pause_ms")

    def __init__(self) -> None:
        self.count = 0
        self.due_ms = 0
        self.pause_ms = FIRST_RETRY_MS


class SegmentHealer:
    """Healer of the damaged segments of one node."""

    def __init__(
        self,
        directories: LogDirectories,
        replicas: Callable[[], Iterable[Replica]],
        effects: Effects,
        *,
        node_id: Callable[[], int],
        image: Callable[[], MetadataImage],
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        on_storage_failure: Callable[[], None],
        give_up_leadership: Callable[[TopicPartitionPair], None],
    ) -> None:
        """Make an idle healer.

        Args:
            replicas: returns the node's current replicas.
            node_id, image: return the id of this node, and its current metadata.
            on_storage_failure: called when a log directory may have gone offline.
            give_up_leadership: called if damaged records are uncommitted, so no replica has them.
        """
        self._directories = directories
        self._replicas = replicas
        self._effects = effects
        self._node_id = node_id
        self._image = image
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._on_storage_failure = on_storage_failure
        self._give_up_leadership = give_up_leadership
        self._attempts: dict[LogDamage, _Attempts] = {}
        self.is_stopping = False
        """Whether the node ends and no new work is begun."""
        self.healed = 0
        """Number of segments repaired since the start."""

    # --- what is known ---------------------------------------------------------------------------

    def damaged(self) -> list[tuple[Replica, DamagedRange]]:
        """All damaged ranges of this node, with their replicas."""
        by_damage = {replica.log.damage: replica for replica in self._replicas()}
        return [
            (by_damage[damage], each)
            for damage in self._known()
            if damage in by_damage
            for each in damage.ranges
        ]

    def _known(self) -> list[LogDamage]:
        found: list[LogDamage] = []
        for directory in self._directories.online:
            for damage in list(directory.health.damaged):
                if damage.is_closed or not (damage.ranges or damage.suspects):
                    directory.health.damaged.pop(damage, None)
                    self._attempts.pop(damage, None)
                else:
                    found.append(damage)
        return found

    def sources(self, replica: Replica) -> list[int]:
        """Ids of nodes that may have the missing records, the likeliest first."""
        return segment_sources(self._image(), replica.topic, replica.partition, self._node_id())

    # --- a round ---------------------------------------------------------------------------------

    def heal_damaged(self) -> ProcedureSteps:
        """Examine all suspect segments, and repair damaged ones whose next attempt is due."""
        known = self._known()
        if not known:
            return
        by_damage = {replica.log.damage: replica for replica in self._replicas()}
        for damage in known:
            if damage in by_damage:
                yield from self._heal_log(by_damage[damage], damage)

    def _heal_log(self, replica: Replica, damage: LogDamage) -> ProcedureSteps:
        try:
            for segment, reason in list(damage.suspects.items()):
                logger.info("%s: examining %s: %s", replica, segment.files.path, reason)
                yield from self.examine(replica, segment)
            if damage.ranges:
                yield from self._heal(replica, damage)
        except KafkaStorageError as error:
            logger.warning("%s: %s", replica, error)
            self._on_storage_failure()
        except SegmentChanged as error:
            logger.info("%s: %s", replica, error)
        except OSError as error:  # a shortage of the machine, which says nothing about the file
            logger.warning("examining %s is postponed: %s", replica, error)
        except ScrubbingStopped:
            raise
        except Exception:
            logger.exception("repairing %s failed", replica)
            damage.suspects.clear()

    def examine(
        self, replica: Replica, segment: LogSegment, *, is_throttled: bool = False
    ) -> Examining:
        """Read a segment whole. Returns the examination if it is damaged, else None.

        Raises OSError, ScrubbingStopped.
        """
        damage = replica.log.damage
        examination = damage.begin_examination(segment)
        if examination is None:
            return None
        yield from self.in_thread(
            ScrubWork(self._effects, examination.run, is_throttled=is_throttled)
        )
        known = set(damage.ranges)
        leader = replica.leader
        damage.has_other_replicas = leader is not None and bool(leader.followers)
        found = damage.complete_examination(examination)
        for each in found:
            if each not in known:
                self._report(replica, each)
        return examination if found else None

    def _report(self, replica: Replica, lost: DamagedRange) -> None:
        may_heal = bool(self.sources(replica))
        replica.log.damage.may_heal = may_heal
        remedy = (
            "asking other replicas"
            if may_heal
            else "no other replica: put the file back, delete the records before "
            f"{lost.end}, or set bradbury.damaged.segment=skip on the topic"
        )
        logger.error("%s has lost %s; %s", replica, lost, remedy)

    # --- healing ---------------------------------------------------------------------------------

    def _heal(self, replica: Replica, damage: LogDamage) -> ProcedureSteps:
        log, now_ms = replica.log, self._monotonic_ms()
        attempts = self._attempts.setdefault(damage, _Attempts())
        if now_ms < attempts.due_ms:
            return
        if not self.sources(replica) and attempts.count >= HOPEFUL_ATTEMPTS:
            damage.may_heal = False
            attempts.due_ms = now_ms + FIRST_RETRY_MS
            return
        refusals: list[str] = []
        for path in dict.fromkeys(each.path for each in damage.ranges):
            segment = next((each for each in log.segments if each.files.path == path), None)
            if segment is None:
                damage.on_healed(path)
                continue
            if segment is log.segments.active:
                log.local.roll(now_ms=self._wall_ms())
            # Again, as the segment may have changed since it was examined.
            examination = yield from self.examine(replica, segment)
            if examination is not None:
                yield from self._heal_segment(replica, examination, refusals)
        if not refusals:
            damage.may_heal = False
            self._attempts.pop(damage, None)
            return
        attempts.count += 1
        attempts.due_ms = self._monotonic_ms() + attempts.pause_ms
        attempts.pause_ms = min(2 * attempts.pause_ms, LAST_RETRY_MS)
        if attempts.count == HOPEFUL_ATTEMPTS:
            damage.may_heal = False
            if self.sources(replica):
                reason = refusals[-1]
                logger.error("%s could not be repaired from other replicas: %s", replica, reason)
        if attempts.count >= HOPEFUL_ATTEMPTS:
            self._look_whether_committed(replica, damage)

    def _look_whether_committed(self, replica: Replica, damage: LogDamage) -> None:
        """Resign if the damage ends above the high watermark: no other replica has those records,
        so followers would fetch them forever, and nothing behind them could be committed.
        """
        lost = next((each for each in damage.ranges if each.end > replica.log.high_watermark), None)
        if replica.leader is not None and lost is not None:
            logger.error(
                "%s: resigning leadership, damaged range %s ends above the high watermark",
                replica,
                lost,
            )
            self._give_up_leadership((replica.topic, replica.partition))

    def _heal_segment(
        self, replica: Replica, examination: SegmentExamination, refusals: list[str]
    ) -> ProcedureSteps:
        """Repair a segment, or add the reason of a failure to `refusals`. Raises SegmentChanged,
        StorageFailure.
        """
        said: list[str] = []
        for node_id in self.sources(replica):
            patch = SegmentPatch(replica.log, examination, self._wall_ms())
            try:
                yield from self._fill(patch, replica, node_id)
            except StorageFailure:
                raise  # of our own directory; the next start deletes the new files
            except (KafkaError, OSError, ConnectionFailed) as error:
                said.append(f"node {node_id}: {error}")
                yield from self.in_thread(self._work(patch.abandon))
                continue
            except BaseException:
                patch.abandon()
                raise
            try:
                patch.apply(self._wall_ms())
            except SegmentChanged:
                yield from self.in_thread(self._work(patch.abandon))
                raise
            self.healed += 1
            logger.warning(
                "%s: %s repaired with %d bytes from node %d",
                replica,
                examination.path,
                patch.fetched_bytes,
                node_id,
            )
            return
        refusals.append("; ".join(said) or "no other replica")

    def _fill(self, patch: SegmentPatch, replica: Replica, node_id: int) -> ProcedureSteps:
        yield from self.in_thread(self._work(patch.prepare))
        while (wanted := patch.wanted) is not None:
            fetch = RecordsFetch(self._effects, node_id, self._request(replica, patch, wanted[0]))
            if self.is_stopping:
                raise ScrubbingStopped
            [failure] = yield [fetch]
            if failure is not None:
                raise failure
            records = fetch.records(wanted[0])
            yield from self.in_thread(self._work(partial(patch.add, records)))
        yield from self.in_thread(self._work(patch.finish))

    def _request(self, replica: Replica, patch: SegmentPatch, offset: int) -> FetchRequest:
        topic = self._image().topics.get(replica.topic)
        if topic is None:
            raise ConnectionFailed(f"{replica} is no longer on this node")
        return FetchRequest(
            replica_state=ReplicaState(replica_id=DEBUGGING_CONSUMER),
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            session_epoch=FINAL_EPOCH,
            topics=[
                FetchTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=replica.partition,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=patch.epoch_before_wanted,
                            log_start_offset=-1,
                            partition_max_bytes=MOST_BYTES,
                        )
                    ],
                )
            ],
        )

    # --- waiting ---------------------------------------------------------------------------------

    def _work(self, call: Callable[[], None]) -> ScrubWork:
        return ScrubWork(self._effects, lambda progress: call())

    def in_thread(self, work: ScrubWork) -> ProcedureSteps:
        """Wait for work in a thread. Raises its error; ScrubbingStopped."""
        if self.is_stopping:
            raise ScrubbingStopped
        [failure] = yield [work]
        if failure is not None:
            raise failure


class ScrubWork:
    """A blocking part of the scrub, for a scrubber's thread; see procedure.Condition."""

    __slots__ = ("_effects", "is_throttled", "run")

    def __init__(
        self, effects: Effects, run: Callable[[Progress], None], *, is_throttled: bool = False
    ) -> None:
        """`run` raises OSError, KafkaError, and what `progress` raises."""
        self._effects = effects
        self.run = run
        self.is_throttled = is_throttled

    def begin_waiting(self, step: WorkingStep) -> None:
        self._effects.append(RunScrubWork(step, self))


class RecordsFetch:
    """A fetch from another replica; see procedure.Condition. `answer`: set before it is done."""

    __slots__ = ("_effects", "answer", "node_id", "request")

    def __init__(self, effects: Effects, node_id: int, request: FetchRequest) -> None:
        self._effects = effects
        self.node_id = node_id
        self.request = request
        self.answer: FetchResponse | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        self._effects.append(SendRepairFetch(step, self))

    def records(self, offset: int) -> bytes:
        """Records sent from `offset` on. Raises KafkaError."""
        assert self.answer is not None
        if self.answer.error_code:
            raise error_for(self.answer.error_code)
        if not self.answer.responses:
            raise KafkaError("empty answer: a consumer quota may throttle the fetch")
        [found] = self.answer.responses[0].partitions
        if found.error_code:
            raise error_for(found.error_code)
        if found.diverging_epoch.epoch >= 0:
            raise CorruptMessage(
                f"its log differs before offset {offset}: what precedes the damage here was not "
                "committed"
            )
        if not found.records:
            raise CorruptMessage(f"no records at offset {offset}")
        return bytes(found.records)

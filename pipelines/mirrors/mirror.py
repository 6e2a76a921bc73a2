"""`bradbury.mirror`: topics of another cluster, Kafka's or ours, into this one, each record once.

    bradbury.mirror("flights", "kafka-1:9092", alias="west", continuous=True)

Run again, it goes on where the last one ended: how far it is stands in the target, and becomes
visible there with the records, by one transaction.

What always holds:
    Batches go as they are, compressed and undecoded, where a producer may send them so (replay).
    Keys, values, headers, timestamps, partitions and their order are the source's.
    Records of aborted transactions do not go; those of open ones, when they are committed.
    One mirror of an alias at a time: another that begins ends the former (its transactional id).
    What came from the target does not go back to it, under whatever name.

A mirror says that it fills a topic before it looks whether the source's is itself filled from the
target: of two that begin at once, one in each direction, at least one sees the other.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, Unpack

from ...clients.admin.admin import Admin
from ...clients.admin.replay import ReplayReport, replay
from ...clients.producer.producer import Producer
from ...clients.security.security_options import (
    ClientSecurity,
    SecurityOptions,
    as_given,
    given_security,
)
from ...clients.wire.cluster_client import is_retriable
from ...clients.wire.record_metadata import TopicPartition
from ...protocol.errors import (
    ConnectionFailed,
    KafkaError,
    OffsetOutOfRange,
    TransactionAbortable,
)
from ..loads.loaded_offsets import LoadedOffsets, next_ranges
from ..ranges.partition_range import DataLoss, PartitionRange, ReadLimits
from ..ranges.read_arguments import read_limits, servers_of
from ..ranges.reading_client import reading_client
from ..ranges.topic_offsets import Offset, resolve_ranges
from . import mirror_positions
from .mirrored_groups import EXCLUDED_GROUPS, MirroredGroups
from .mirrored_topics import EXCLUDE, NameFilter, Policy, make_topic, target_name
from .offset_syncs import OffsetSync, OffsetSyncs

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
TOPICS_SECONDS: Final = 5.0
"""So often a continuous mirror looks for new topics and partitions."""
COMMIT_BYTES: Final = 256 * 1024 * 1024
MOST_RECORD_BYTES: Final = 128 * 1024**2
FIRST_RECORDS: Final = 1_000
"""Of the first commit, as the size of records is not known yet."""
BEGIN_AGAIN_SECONDS: Final = 1.0
TRANSACTION_MS: Final = 300_000
MOST_FAILURES: Final = 5
"""So many transactions in a row may be aborted before the mirror ends."""
_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


class MirrorFailed(Exception):
    """What the caller must change; its text says how."""


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """Of this call. batches: went undecoded; recoded: did not. behind: offsets left to copy."""

    topics: int = 0
    records: int = 0
    batches: int = 0
    recoded: int = 0
    bytes: int = 0
    commits: int = 0
    behind: int = 0


def mirror(
    topics: str | Sequence[str],
    source: str | Sequence[str],
    *,
    alias: str,
    bootstrap_servers: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = EXCLUDE,
    policy: Policy = "prefix",
    groups: str | Sequence[str] = (),
    sync_groups_interval_s: float = 60.0,
    start_offset: Offset = "earliest",
    replication_factor: int = -1,
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 120_000,
    commit_records: int = 500_000,
    continuous: bool = False,
    stop: threading.Event | None = None,
    source_security: SecurityOptions | None = None,
    on_progress: Callable[[MirrorProgress], None] = lambda progress: None,
    **security: Unpack[SecurityOptions],
) -> MirrorProgress:
    """Copy what is new in the source's topics; returns when all that was there at the call is here.

    Args:
        topics, exclude: regular expressions that match whole names, as MirrorMaker 2 has them; a
            list, or one text with commas.
        source: host:port of brokers of the cluster to read from.
        alias: a short name of the source; of letters, digits, "_" and "-".
        bootstrap_servers: of the cluster to write to; found as all clients find theirs.
        policy: "prefix": the topic's name here is "<alias>.<name>"; "identity": the same.
        groups: regular expressions, as `topics`; of these consumer groups the offsets come here,
            too: every `sync_groups_interval_s` and at the end (see mirrored_groups).
        start_offset: of partitions that were never mirrored under this alias: "earliest",
            "latest", or as `read_topic`'s.
        replication_factor: of topics that are made here; -1 for the brokers' default.
        fail_on_data_loss: False: what retention took before it was copied is passed over, and a
            topic that was made again is copied from its beginning.
        poll_timeout_ms: without an answer for so long it fails; a continuous mirror goes on when
            brokers come back before.
        commit_records: most records of a transaction, about.
        continuous: go on until `stop` is set, or forever, with new topics and partitions, too.
        source_security: security_protocol, ssl_* and sasl_* of the source (see SecurityOptions).
        on_progress: called after each transaction.
        security: the same, of the cluster to write to. Where one of the two is not given, that
            cluster has what the environment's BRADBURY_CLIENT_CONFIG says.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument cannot be.
        MirrorFailed: no topic matches; a topic would go in a circle.
        DataLoss: records are gone before they were copied.
        ProducerFenced: another mirror of this alias has begun.
        ConnectionFailed, RequestTimedOut, KafkaError: nothing is committed that is not whole;
            called again, it goes on.
    """
    if not _ALIAS.fullmatch(alias):
        raise ValueError(f'alias is {alias!r}; use letters, digits, "_" and "-"')
    if policy not in ("prefix", "identity"):
        raise ValueError(f"policy is {policy!r}; use prefix or identity")
    if commit_records < 1:
        raise ValueError(f"commit_records={commit_records}: use more than 0")
    wanted = NameFilter(topics, exclude)
    if not wanted:
        raise ValueError("topics is empty; name at least one, or '.*' for all")
    if sync_groups_interval_s <= 0:
        raise ValueError(f"sync_groups_interval_s={sync_groups_interval_s}: use more than 0")
    limits = read_limits(
        "read_committed",
        f"bradbury-mirror-{alias}",
        poll_timeout_ms=poll_timeout_ms,
        fail_on_data_loss=fail_on_data_loss,
        security=given_security(security),
    )
    addresses = source if isinstance(source, str) else ",".join(source)
    stopped = stop or threading.Event()
    one = _Mirror(
        wanted,
        addresses,
        servers_of(bootstrap_servers),
        alias,
        policy,
        (NameFilter(groups, EXCLUDED_GROUPS), sync_groups_interval_s),
        start_offset,
        limits,
        commit_records,
        replication_factor,
        given_security(source_security or {}),
    )
    while True:
        try:
            with one:
                one.run(stopped, on_progress, continuous=continuous)
            return one.progress
        except (KafkaError, ConnectionFailed) as error:
            if not continuous or not one.may_begin_again(error):
                raise
            if stopped.is_set():
                return one.progress
            logger.warning("the mirror begins again: %s", error)
            stopped.wait(BEGIN_AGAIN_SECONDS)


class _Mirror:
    """One call of mirror."""

    def __init__(
        self,
        wanted: NameFilter,
        source: str,
        target: str,
        alias: str,
        policy: Policy,
        groups: tuple[NameFilter, float],
        start_offset: Offset,
        limits: ReadLimits,
        commit_records: int,
        replication_factor: int,
        source_security: ClientSecurity | None,
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._target = target
        self._alias = alias
        self._policy: Policy = policy
        self._group_filter, self._sync_groups_interval_s = groups
        self._start_offset = start_offset
        self._limits = limits
        self._most_records = commit_records
        self._replication_factor = replication_factor
        self._source_security = source_security
        secured = replace(limits.fetch, security=source_security)
        self._source_limits = replace(limits, fetch=secured)
        self._client = reading_client(source, secured)
        self._positions_topic = mirror_positions.positions_topic(alias)
        self._targets: dict[str, str] = {}
        self._known_partitions: dict[str, int] = {}
        self._circular: set[str] = set()
        self._filled: dict[str, str] = {}
        """Where topics went, as the positions say."""
        self._ids: dict[str, str] = {}
        """Of the source's topics, as they were when the ranges were asked for."""
        self._positions = LoadedOffsets()
        self._syncs: dict[TopicPartition, OffsetSyncs] = {}
        self._next_records = min(FIRST_RECORDS, commit_records)
        self._worked_at: float | None = None
        self.progress = MirrorProgress()

    def __enter__(self) -> Self:
        self._from = Admin(self._source, **as_given(self._source_security))
        target_security = as_given(self._limits.fetch.security)
        self._to = Admin(self._target, **target_security)
        self._producer = Producer(
            self._target,
            transactional_id=f"bradbury-mirror-{self._alias}",
            transaction_timeout_ms=TRANSACTION_MS,
            # What the target takes is the target's to say: max.message.bytes of its topics.
            max_request_size=MOST_RECORD_BYTES,
            buffer_memory=2 * MOST_RECORD_BYTES,
            client_id=f"bradbury-mirror-{self._alias}",
            **target_security,
        )
        try:
            self._cluster = self._cluster_to_read()
            self._target_cluster = self._to.describe_cluster().cluster_id
            mirror_positions.make_positions_topic(
                self._to, self._positions_topic, self._replication_factor
            )
            groups = self._group_filter
            self._groups = MirroredGroups(groups, self._from, self._to, self._producer, self._alias)
            # Ends a former mirror's transaction, so that what is read next is the last word.
            self._producer.init_transactions()
            known = mirror_positions.read_positions(
                self._target, self._positions_topic, self._limits
            )
            mine = mirror_positions.of_these_topics(
                [each for each in known.values() if each.cluster == self._cluster],
                {each.name: str(each.topic_id) for each in self._from.describe_topics()},
            )
            self._filled = {each.source.topic: each.target for each in mine}
            self._positions = mirror_positions.as_offsets(mine)
            self._syncs = {each.source: each.syncs for each in mine}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close(10)
        self._from.close()
        self._to.close()

    def run(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        *,
        continuous: bool,
    ) -> None:
        """Copy what there is; with `continuous` until `stopped`."""
        self._look_for_topics(must_find=not continuous)
        looked_at = synced_at = time.monotonic()
        turn_s = min(TOPICS_SECONDS, self._sync_groups_interval_s) if continuous else math.inf
        is_done = self._copy(stopped, on_progress, turn_s)
        while continuous and not stopped.wait(LOOK_SECONDS if is_done else 0):
            if time.monotonic() - looked_at > TOPICS_SECONDS:
                self._look_for_topics()
                looked_at = time.monotonic()
            is_done = self._copy(stopped, on_progress, turn_s)
            if time.monotonic() - synced_at > self._sync_groups_interval_s:
                self._groups.sync(self._syncs, self._targets, self._replication_factor)
                synced_at = time.monotonic()
        self._groups.sync(self._syncs, self._targets, self._replication_factor)

    def may_begin_again(self, error: Exception) -> bool:
        """Whether what has ended it may pass: brokers that were there a while ago are away.

        What came of an open transaction is not known then, and need not be: a new beginning ends
        it, and reads how far the mirror is.
        """
        patience_s = self._limits.poll_timeout_ms / 1000
        worked_at = self._worked_at
        is_recent = worked_at is not None and time.monotonic() - worked_at < patience_s
        return is_recent and is_retriable(error)

    def _cluster_to_read(self) -> str:
        """Its id. Raises ConnectionFailed, and says that of the two clusters it is the source."""
        try:
            return self._from.describe_cluster().cluster_id
        except ConnectionFailed as error:
            raise type(error)(f"the cluster to read from: {error}") from None

    # --- topics ------------------------------------------------------------------------------

    def _look_for_topics(self, *, must_find: bool = False) -> None:
        """Take in what is new in the source: topics that match, and partitions."""
        described = {each.name: each for each in self._from.describe_topics()}
        names = [name for name in self._wanted.of(described) if name not in self._circular]
        if must_find and not names:
            raise MirrorFailed(
                f"no topic of {self._source} matches; `bradbury topics list --bootstrap "
                f"{self._source}` shows what is there"
            )
        self._forget_what_is_gone(names)
        new = [name for name in names if name not in self._targets]
        if new:  # before anything is made for them
            names = self._without_circles(names, new, must_find=must_find)
            new = [name for name in names if name not in self._targets]
        for name in names:
            count = len(described[name].partitions)
            if self._known_partitions.get(name) == count:
                continue
            to = target_name(name, self._alias, self._policy)
            if self._filled.get(name, to) != to:
                raise MirrorFailed(
                    f"topic {name!r} was mirrored into {self._filled[name]!r} and would go into "
                    f"{to!r} now; use the policy of then, or another alias"
                )
            if to not in self._to.list_topics(include_internal=True):
                self._begin_anew(name, to)
            make_topic(
                self._from,
                self._to,
                name,
                to,
                partitions=count,
                replication_factor=self._replication_factor,
            )
            self._targets[name] = to
            self._known_partitions[name] = count
        if new:
            self._say_what_is_filled()
            # Of two that begin at once each finds what the other one has just said.
            self._without_circles(names, new, must_find=must_find)

    def _begin_anew(self, name: str, to: str) -> None:
        """The target's topic is not there: what was copied into a former one is gone."""
        offsets = self._positions.offsets
        if not any(offset for key, offset in offsets.items() if key.topic == name):
            return
        if self._limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {to!r} of the target was deleted, and what was mirrored into it is gone. "
                "Set fail_on_data_loss to false to copy it again from the source's beginning"
            )
        self._positions = self._positions.without([name])
        self._syncs = {key: syncs for key, syncs in self._syncs.items() if key.topic != name}

    def _forget_what_is_gone(self, names: Sequence[str]) -> None:
        for name in self._targets.keys() - set(names):
            logger.warning("topic %s is no longer in the source", name)
            del self._targets[name]
            self._known_partitions.pop(name, None)

    def _say_what_is_filled(self) -> list[PartitionRange]:
        """Commit where new topics and partitions begin, before anything of them is copied.

        Returns what is to be copied.
        """
        ranges = self._new_ranges()
        missing = [one for one in ranges if one.topic_partition not in self._positions.offsets]
        if missing:
            self._commit([one._replace(end=one.start) for one in missing])
        return ranges

    def _without_circles(
        self, names: Sequence[str], new: Sequence[str], *, must_find: bool
    ) -> list[str]:
        """Leave out those of the new topics that a mirror fills from the target, and say so."""
        back = mirror_positions.mirrored_from(self._from, self._target_cluster, self._source_limits)
        circular = sorted(back & set(new))
        for name in circular:
            logger.warning("topic %s of the source is mirrored from the target: left out", name)
            self._circular.add(name)
            self._targets.pop(name, None)
        self._withdraw(circular)
        left = [name for name in names if name not in self._circular]
        if must_find and circular and not left:
            raise MirrorFailed(
                f"topic {circular[0]!r} of the source is itself mirrored from the target; "
                "it would go in a circle"
            )
        return left

    def _withdraw(self, topics: Sequence[str]) -> None:
        """Take back what was said of them, or the other mirror would find a circle, too."""
        gone = [key for key in self._positions.offsets if key.topic in topics]
        if gone:
            with self._producer.transaction():
                mirror_positions.withdraw_positions(
                    self._producer, self._positions_topic, self._cluster, gone
                )
            self._positions = self._positions.without(topics)
            self._syncs = {key: one for key, one in self._syncs.items() if key.topic not in topics}

    # --- records -----------------------------------------------------------------------------

    def _copy(
        self,
        stopped: threading.Event,
        on_progress: Callable[[MirrorProgress], None],
        turn_s: float,
    ) -> bool:
        """Copy what there is now, for about `turn_s`. Whether all of it was copied."""
        failures = 0
        ranges = self._say_what_is_filled() if self._targets else []
        began = self._worked_at = time.monotonic()
        while _size(ranges) and not stopped.is_set():
            if time.monotonic() - began > turn_s:
                return False
            part = next_ranges(ranges, self._next_records)
            try:
                report = self._commit(part)
            except (TransactionAbortable, OffsetOutOfRange) as error:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
                # Nothing of it is there; smaller, in case it took too long. Fenced ones end here.
                # What retention took meanwhile, or a topic that was made again, is found now.
                logger.warning("a transaction of the mirror failed, it is repeated: %s", error)
                self._next_records = max(1, self._next_records // 2)
                ranges = self._say_what_is_filled()
                continue
            failures = 0
            self._worked_at = time.monotonic()
            ranges = [
                one._replace(start=self._positions.offsets[one.topic_partition]) for one in ranges
            ]
            self._adapt(report, _size(part))
            before = self.progress
            self.progress = MirrorProgress(
                len(self._targets),
                before.records + report.records,
                before.batches + report.batches,
                before.recoded + report.recoded,
                before.bytes + report.bytes,
                before.commits + 1,
                _size(ranges),
            )
            on_progress(self.progress)
        return True

    def _adapt(self, report: ReplayReport, offsets: int) -> None:
        """As many offsets in the next transaction as COMMIT_BYTES have, by what was seen: also
        where there are none, or only aborted records.
        """
        size = report.bytes / max(1, offsets)
        self._next_records = max(1, min(self._most_records, int(COMMIT_BYTES / max(1.0, size))))

    def _new_ranges(self) -> list[PartitionRange]:
        """From where the target is to where the source ends now."""
        topics = sorted(self._targets)
        self._ids = ids = self._topic_ids()
        anew = [name for name in self._positions.made_again(ids) if name in self._targets]
        if anew and self._limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {anew[0]!r} is not the one that was mirrored: it was deleted and made "
                "again. Set fail_on_data_loss to false to copy it from its beginning, behind the "
                "former one's records"
            )
        self._positions = self._positions.without(anew)
        self._syncs = {key: syncs for key, syncs in self._syncs.items() if key.topic not in anew}
        is_latest = self._start_offset == "latest"
        known_topics = {key.topic for key in self._positions.offsets}
        return [
            # Of a topic that was never seen; partitions that are added to one begin at the first.
            one._replace(start=one.end) if is_latest and one.topic not in known_topics else one
            for one in resolve_ranges(
                self._client,
                topics,
                "earliest" if is_latest else self._start_offset,
                "latest",
                self._limits,
                keep_empty=True,
                committed=self._positions.offsets,
            )
            if one.partition < self._known_partitions[one.topic]
        ]

    def _topic_ids(self) -> dict[str, str]:
        described = self._from.describe_topics(sorted(self._targets))
        return {each.name: str(each.topic_id) for each in described}

    def _commit(self, part: Sequence[PartitionRange]) -> ReplayReport:
        """One transaction: these records, and that they are there."""
        after = self._positions.after(part, self._ids)
        total = ReplayReport()
        with self._producer.transaction():
            for topic in sorted({one.topic for one in part if one.size}):
                report = replay(
                    {
                        TopicPartition(topic, one.partition): (one.start, one.end)
                        for one in part
                        if one.topic == topic and one.size
                    },
                    self._targets[topic],
                    self._producer,
                    bootstrap=self._source,
                    partitions={one.partition: one.partition for one in part if one.topic == topic},
                    poll_timeout_ms=self._limits.poll_timeout_ms,
                    security=self._source_security,
                )
                total.records += report.records
                total.batches += report.batches
                total.recoded += report.recoded
                total.bytes += report.bytes
                total.placed |= report.placed
            syncs = {**self._syncs, **self._synced(part, total)}
            mirror_positions.write_positions(
                self._producer,
                self._positions_topic,
                self._cluster,
                after,
                self._targets,
                syncs,
                [one.topic_partition for one in part],
            )
            copied = {one.topic for one in part}
            now = self._topic_ids()
            if any(now.get(topic) != self._ids[topic] for topic in copied):
                raise TransactionAbortable(
                    f"one of {', '.join(sorted(copied))} was made again while it was copied"
                )
        self._positions, self._syncs = after, syncs
        return total

    def _synced(
        self, part: Sequence[PartitionRange], report: ReplayReport
    ) -> dict[TopicPartition, OffsetSyncs]:
        """What groups' offsets are translated by, with what was just copied."""
        synced = {}
        for one in part:
            placed = report.placed.get(one.topic_partition)
            if placed is not None:
                is_exact = placed.records == one.size == placed.end - placed.start
                piece = OffsetSync(one.start, one.end, placed.start, placed.end, is_exact)
                before = self._syncs.get(one.topic_partition, OffsetSyncs())
                synced[one.topic_partition] = before.after(piece)
        return synced


def _size(ranges: Sequence[PartitionRange]) -> int:
    return sum(one.size for one in ranges)

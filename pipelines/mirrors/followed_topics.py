"""A mirror's topics: matching topics of the source, created in the target, without cycles.

A mirror commits a position for a topic before it creates it, and before it checks whether the
source's topic is itself filled from the target: of two mirrors that start at once, one in each
direction, at least one detects the other. If both do, both withdraw their positions, and one of
them is the first to check again.

A topic that is left out is checked again from time to time: whether it is still filled from the
target, and whether it has records that would never be copied there (own_records).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...clients.admin.admin import Admin
from ..ranges.partition_range import DataLoss
from . import mirror_positions
from .mirror_settings import MirrorFailed, MirrorSettings, no_topic_matches
from .mirrored_topics import FollowedConfigs, make_topic, target_name
from .own_records import find_own_record
from .record_copier import RecordCopier

logger = logging.getLogger(__name__)

LEFT_OUT_SECONDS: Final = 60.0
"""Seconds between checks of the topics that are left out."""
COLLISION_SECONDS: Final = 15.0
"""Seconds after which the second of two mirrors that detected each other checks again."""


class FollowedTopics:
    """Keeps the copier's topics and partitions up to date. Used by one thread.

    filled: target topic by source topic, according to the positions.
    turned_around: positions topics in the source to ignore: their migration from the target was cut
        over, and its topics are now copied back.
    check_target: called with a topic and its wanted partition count before an existing topic of the
        target is filled for the first time. prepare_target: called before a topic is written to.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        source: Admin,
        target: Admin,
        copier: RecordCopier,
        filled: Mapping[str, str],
        turned_around: frozenset[str],
        check_target: Callable[[str, int], None],
        prepare_target: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._from = source
        self._to = target
        self._copier = copier
        self._filled = dict(filled)
        self._turned_around = turned_around
        self._check_target = check_target
        self._prepare_target = prepare_target
        self._target_cluster = target.describe_cluster().cluster_id
        self._source_limits = replace(
            settings.limits,
            fetch=replace(settings.limits.fetch, security=settings.source_security),
        )
        # True in exactly one of two mirrors with opposite directions.
        self._checks_first = source.describe_cluster().cluster_id < self._target_cluster
        self._configs = FollowedConfigs(
            source,
            target,
            interval_s=settings.sync_configs_interval_s,
            without=settings.without_configs,
        )
        self._circular: set[str] = set()
        self._check_again_at = 0.0

    def look(self, *, must_find: bool = False) -> None:
        """Refresh topics and partitions of the source, and create new ones in the target.

        Also refresh their configs, if it is time to.

        Raises:
            MirrorFailed: with `must_find`, no topic matches, or all would form a cycle. A topic
                that is left out has records of its own.
            DataLoss: a topic of the target that was filled was deleted.
            KafkaError, ConnectionFailed: as Admin.
        """
        copier = self._copier
        described = {each.name: each for each in self._from.describe_topics()}
        matching = self._settings.topics.of(described)
        if must_find and not matching:
            raise MirrorFailed(no_topic_matches(self._settings))
        self._recheck_left_out(matching)
        names = [name for name in matching if name not in self._circular]
        self._forget_deleted_topics(names)
        new = [name for name in names if name not in copier.targets]
        if new:  # before anything is created for them
            names = self._without_cycles(names, new)
            self._refuse_own_records(self._circular.intersection(new))
            new = [name for name in names if name not in copier.targets]
        changed = {
            name: len(described[name].partitions)
            for name in names
            if copier.partitions.get(name) != len(described[name].partitions)
        }
        there = self._to.list_topics(include_internal=True) if changed else []
        for name, count in changed.items():
            copier.targets[name] = self._target_of(name, count, there)
        if new:
            copier.partitions |= {name: changed[name] for name in new}
            copier.commit_starts()
            # Of two mirrors that start at once each detects the other's new positions.
            if self._without_cycles(names, new) != names:
                wait_s = 0.0 if self._checks_first else COLLISION_SECONDS
                self._check_again_at = time.monotonic() + wait_s
        # Created after its position is committed: so the other mirror never takes a topic that
        # this one fills for a topic of producers.
        for name in changed.keys() & copier.targets.keys():
            make_topic(
                self._from,
                self._to,
                name,
                copier.targets[name],
                partitions=changed[name],
                replication_factor=self._settings.replication_factor,
                without_configs=self._settings.without_configs,
            )
            self._prepare_target(copier.targets[name])
            copier.partitions[name] = changed[name]
        self._configs.look(copier.targets)
        self._copier.left_out = tuple(sorted(self._circular))
        if must_find and self._circular and not copier.targets:
            raise MirrorFailed(
                f"topic {min(self._circular)!r} of the source is itself mirrored from the target; "
                "mirroring it back would form a cycle"
            )

    def _target_of(self, name: str, partitions: int, there: Collection[str]) -> str:
        """Name of a topic in the target. there: topics of the target."""
        to = target_name(name, self._settings.alias, self._settings.policy)
        if self._filled.get(name, to) != to:
            raise MirrorFailed(
                f"topic {name!r} was mirrored into {self._filled[name]!r} and would go into "
                f"{to!r} now; use the former policy, or another alias"
            )
        if to not in there:
            self._forget_former_copy(name, to)
        elif name not in self._filled:
            self._check_target(to, partitions)
        return to

    def _forget_former_copy(self, name: str, to: str) -> None:
        """Forget what was copied into a former topic of the target, which is deleted."""
        syncs = self._copier.syncs
        if not any(known.pieces for key, known in syncs.items() if key.topic == name):
            return
        if self._settings.limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {to!r} of the target was deleted, with the records mirrored into it. "
                "To copy it again from the source's beginning "
                f"{self._settings.limits.allow_data_loss}"
            )
        self._copier.forget([name])

    def _forget_deleted_topics(self, names: Sequence[str]) -> None:
        for name in self._copier.targets.keys() - set(names):
            logger.warning("topic %s is no longer in the source", name)
            del self._copier.targets[name]
            self._copier.partitions.pop(name, None)

    def _without_cycles(self, names: Sequence[str], new: Sequence[str]) -> list[str]:
        """Leave out those of the new topics that a mirror fills from the target, and say so."""
        circular = sorted(self._filled_from_target() & set(new))
        if circular:
            self._check_again_at = time.monotonic() + LEFT_OUT_SECONDS
        for name in circular:
            logger.warning("topic %s of the source is mirrored from the target: left out", name)
            self._circular.add(name)
            self._copier.targets.pop(name, None)
            self._copier.partitions.pop(name, None)
        # Otherwise the other mirror would detect a cycle, too.
        self._copier.withdraw(circular)
        return [name for name in names if name not in self._circular]

    def _filled_from_target(self) -> set[str]:
        back = mirror_positions.mirrored_from(
            self._from, self._target_cluster, self._source_limits, but=self._turned_around
        )
        return {one.target for positions in back.values() for one in positions}

    def _recheck_left_out(self, matching: Sequence[str]) -> None:
        """Include topics again that no mirror fills from the target any more."""
        if not self._circular or time.monotonic() < self._check_again_at:
            return
        self._check_again_at = time.monotonic() + LEFT_OUT_SECONDS
        left = self._circular & self._filled_from_target() & set(matching)
        for name in sorted(self._circular - left):
            logger.info("topic %s of the source is not mirrored from the target any more", name)
        self._circular = left
        self._refuse_own_records(left)

    def _refuse_own_records(self, topics: Collection[str]) -> None:
        """Raise MirrorFailed if these topics have records that would never get to the target."""
        if not topics:
            return
        found = find_own_record(
            self._from, self._target_cluster, topics, self._source_limits, but=self._turned_around
        )
        if found is None:
            return
        source, target = self._settings.source, self._settings.target
        raise MirrorFailed(
            f"topic {found.partition.topic!r} of {source} cannot go to {target}: it is itself "
            f"filled from there ({found.positions_topic}), and has records that did not come from "
            f"there, the first at offset {found.offset} of partition {found.partition.partition}: "
            "they would stay behind. For both ways use the policy prefix, in both mirrors; or let "
            "only one mirror have the topic, and leave it out of the other one (--exclude)"
        )

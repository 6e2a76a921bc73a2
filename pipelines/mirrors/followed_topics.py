"""A mirror's topics: matching topics of the source, created in the target, without cycles.

A mirror commits that it fills a topic before it checks whether the source's topic is mirrored from
the target: of two that start at once, one in each direction, at least one detects the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...clients.admin.admin import Admin
from ..ranges.partition_range import DataLoss
from . import mirror_positions
from .mirror_settings import MirrorFailed, MirrorSettings, no_topic_matches
from .mirrored_topics import make_topic, target_name
from .record_copier import RecordCopier

logger = logging.getLogger(__name__)


class FollowedTopics:
    """Keeps the copier's topics and partitions up to date. Used by one thread.

    filled: target topic by source topic, according to the positions.
    turned_around: positions topics in the source that no longer count: what was copied from the
        target was cut over, and is now copied back.
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
        self._circular: set[str] = set()

    def look(self, *, must_find: bool = False) -> None:
        """Refresh topics and partitions of the source, and create new ones in the target.

        Raises:
            MirrorFailed: with `must_find`, if no topic matches, or all would form a cycle.
            DataLoss: a topic of the target that was filled has been deleted.
            KafkaError, ConnectionFailed: as Admin.
        """
        copier = self._copier
        described = {each.name: each for each in self._from.describe_topics()}
        names = [name for name in self._settings.topics.of(described) if name not in self._circular]
        if must_find and not names:
            raise MirrorFailed(no_topic_matches(self._settings))
        self._forget_what_is_gone(names)
        new = [name for name in names if name not in copier.targets]
        if new:  # before anything is created for them
            names = self._without_circles(names, new, must_find=must_find)
            new = [name for name in names if name not in copier.targets]
        for name in names:
            count = len(described[name].partitions)
            if copier.partitions.get(name) == count:
                continue
            to = target_name(name, self._settings.alias, self._settings.policy)
            if self._filled.get(name, to) != to:
                raise MirrorFailed(
                    f"topic {name!r} was mirrored into {self._filled[name]!r} and would now go "
                    f"into {to!r}; use the former policy, or another alias"
                )
            if to not in self._to.list_topics(include_internal=True):
                self._begin_anew(name, to)
            elif name not in self._filled:
                self._check_target(to, count)
            make_topic(
                self._from,
                self._to,
                name,
                to,
                partitions=count,
                replication_factor=self._settings.replication_factor,
                without_configs=self._settings.without_configs,
            )
            self._prepare_target(to)
            copier.targets[name] = to
            copier.partitions[name] = count
        if new:
            copier.say_what_is_filled()
            # Of two mirrors that start at once, each finds what the other has just committed.
            self._without_circles(names, new, must_find=must_find)

    def _begin_anew(self, name: str, to: str) -> None:
        """Start over with a topic that is missing in the target: its copied records are lost."""
        offsets = self._copier.positions.offsets
        if not any(offset for key, offset in offsets.items() if key.topic == name):
            return
        if self._settings.limits.fail_on_data_loss:
            raise DataLoss(
                f"topic {to!r} of the target was deleted, with the records mirrored into it. "
                "Set fail_on_data_loss to false to copy it again from the source's beginning"
            )
        self._copier.forget([name])

    def _forget_what_is_gone(self, names: Sequence[str]) -> None:
        for name in self._copier.targets.keys() - set(names):
            logger.warning("topic %s is no longer in the source", name)
            del self._copier.targets[name]
            self._copier.partitions.pop(name, None)

    def _without_circles(
        self, names: Sequence[str], new: Sequence[str], *, must_find: bool
    ) -> list[str]:
        """Topics without the new ones that a mirror fills from the target; those are logged."""
        back = mirror_positions.mirrored_from(
            self._from, self._target_cluster, self._source_limits, but=self._turned_around
        )
        circular = sorted(back & set(new))
        for name in circular:
            logger.warning("topic %s of the source is mirrored from the target: left out", name)
            self._circular.add(name)
            self._copier.targets.pop(name, None)
        # Otherwise the other mirror would detect a cycle, too.
        self._copier.withdraw(circular)
        left = [name for name in names if name not in self._circular]
        if must_find and circular and not left:
            raise MirrorFailed(
                f"topic {circular[0]!r} of the source is itself mirrored from the target; "
                "mirroring it back would form a cycle"
            )
        return left

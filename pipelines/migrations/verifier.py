"""Comparison of all records that a migration copied; verified ranges are stored in its notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...clients.security.security_options import as_given
from ...protocol.topic_partition import TopicPartition
from ..mirrors import mirror_positions
from ..mirrors.mirror_positions import MirrorPosition
from ..mirrors.mirror_settings import MirrorFailed, MirrorSettings
from ..mirrors.mirrored_topics import set_configs
from ..mirrors.offset_syncs import OffsetSync, OffsetSyncs
from ..ranges.reading_client import reading_client
from .exact_offsets import LogSide
from .migration_notes import CutOverEnds, cut_over_ends, verified_ends, verified_note
from .migration_session import BothWays, read_both_ways
from .verification import PartitionCheck, PartitionToCheck, is_compacted, verify_partition


def log_sides(settings: MirrorSettings) -> tuple[LogSide, LogSide]:
    """Both clusters for reading: (source, target)."""
    limits = replace(settings.limits, fail_on_data_loss=False)
    fetch = replace(limits.fetch, security=settings.source_security)
    return (
        LogSide(reading_client(settings.source, fetch), replace(limits, fetch=fetch)),
        LogSide(reading_client(settings.target, limits.fetch), limits),
    )


class Verifier:
    """Compares source and target. Used by one thread; the migration may follow at the same time."""

    def __init__(self, settings: MirrorSettings, source: Admin, target: Admin) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._sides = log_sides(settings)
        self._topic = mirror_positions.positions_topic(settings.alias)

    def verify(
        self,
        *,
        again: bool = False,
        on_check: Callable[[PartitionCheck], None] = lambda check: None,
        on_records: Callable[[int], None] = lambda records: None,
    ) -> list[PartitionCheck]:
        """Compare what was not verified before; with `again`, everything.

        Raises:
            MirrorFailed: the migration has not begun.
            KafkaError, ConnectionFailed, RequestTimedOut: reading failed.
        """
        ways = read_both_ways(self._settings, self._source, self._target)
        note, cluster = ways.note, ways.cluster
        if note is None:
            raise MirrorFailed(
                f"nothing was migrated from {self._settings.source} yet; start: bradbury migrate "
                f"--from {self._settings.source}"
            )
        sides = [
            {each.name: str(each.topic_id) for each in admin.describe_topics()}
            for admin in (self._source, self._target)
        ]
        ids = {name: (one, sides[1][name]) for name, one in sides[0].items() if name in sides[1]}
        verified = {} if again else verified_ends(ways.state.notes(cluster), note.number, ids)
        topics = set(self._settings.topics.of(ids))
        mine = [
            each
            for each in sorted(ways.state.positions, key=lambda each: each.source)
            if each.cluster == cluster and each.source.topic in topics
        ]
        checks = []
        with Producer(
            self._settings.target, **as_given(self._settings.limits.fetch.security)
        ) as producer:
            for topic, positions in groupby(mine, lambda each: each.source.topic):
                asked = self._to_check(topic, list(positions), ways, verified)
                found = []
                for one in asked:
                    found.append(verify_partition(one, *self._sides, on_records))
                    on_check(found[-1])
                same = {
                    one.partition: (one.source[1], one.target[1]) for one in found if one.is_same
                }
                mirror_positions.write_note(
                    producer,
                    self._topic,
                    cluster,
                    verified_note(topic),
                    {
                        "number": note.number,
                        "ids": ids[topic],
                        "ends": [[key.partition, *both] for key, both in sorted(same.items())],
                    },
                ).result(60)
                checks += found
        return checks

    def _to_check(
        self,
        topic: str,
        positions: Sequence[MirrorPosition],
        ways: BothWays,
        verified: dict[TopicPartition, tuple[int, int]],
    ) -> list[PartitionToCheck]:
        compacted = is_compacted(set_configs(self._source, topic))
        compacted = compacted or is_compacted(set_configs(self._target, topic))
        keys = [each.source for each in positions]
        source_starts = self._source.list_offsets(keys, "earliest")
        target_starts = self._target.list_offsets(keys, "earliest")
        cut = CutOverEnds({}, {})
        if ways.note is not None and ways.note.is_cut_over:
            cut = cut_over_ends(ways.state.notes(ways.cluster), ways.note.number)
        asked = []
        for each in positions:
            key = each.source
            base = ways.base.ends.get(key)
            end = _ends(each, base)
            if key in cut.ends:  # late records lie among those of other producers
                late = cut.late.get(key)
                end = (late[0].source_start if late else cut.ends[key][0]), cut.ends[key][1]
            if key in verified and not compacted:
                base = min(verified[key], end)
            asked.append(
                PartitionToCheck(
                    key,
                    compacted,
                    each.syncs,
                    None if compacted else base,
                    end,
                    source_starts[key].offset,
                    target_starts[key].offset,
                    ways.base.late.get(key, ()),
                )
            )
        return asked


def late_checks(
    settings: MirrorSettings, placed: Mapping[TopicPartition, Sequence[OffsetSync]]
) -> list[PartitionCheck]:
    """Compare late records, where no other records lie between them."""
    sides = log_sides(settings)
    checks = []
    for key, pieces in sorted(placed.items()):
        for piece in pieces:
            begin, end = (
                (piece.source_start, piece.target_start),
                (piece.source_end, piece.target_end),
            )
            asked = PartitionToCheck(key, False, OffsetSyncs(), begin, end, *begin)
            if piece.is_exact:
                checks.append(verify_partition(asked, *sides))
    return checks


def _ends(position: MirrorPosition, base: tuple[int, int] | None) -> tuple[int, int]:
    """End offsets (source, target) up to which the source was copied."""
    if base is not None and position.offset <= base[0]:
        return base
    ends = [piece.target_end for piece in position.syncs.pieces]
    return position.offset, max(ends, default=0)

"""Offset ranges of a mirror's source topics, as of the last lookup, without skips."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...clients.admin.admin import Admin
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import PartitionRange
from ..ranges.reading_client import reading_client
from ..ranges.topic_offsets import resolve_ranges
from .mirror_settings import MirrorSettings
from .offset_syncs import OffsetSync


class SourceRanges:
    """Looks up the ranges of the topics to copy.

    skips: ranges that are not copied, since they are in the target already.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        source: Admin,
        skips: Mapping[TopicPartition, Sequence[OffsetSync]],
    ) -> None:
        self._settings = settings
        self._source = source
        self._skips = skips
        self.client = reading_client(
            settings.source, replace(settings.limits.fetch, security=settings.source_security)
        )
        self.topic_ids: dict[str, str] = {}
        """Ids of the source's topics at the last lookup, by name."""

    def look(self, topics: Iterable[str]) -> None:
        """Look up the ids of these topics; `resolve` their ranges afterwards."""
        self.topic_ids = self._look_up(topics)

    def _look_up(self, topics: Iterable[str]) -> dict[str, str]:
        described = self._source.describe_topics(sorted(topics))
        return {each.name: str(each.topic_id) for each in described}

    def are_made_again(self, topics: Iterable[str], among: Iterable[str]) -> bool:
        """Whether one of `topics` was recreated since the last lookup, which was of `among`."""
        now = self._look_up(among)
        return any(now.get(topic) != self.topic_ids[topic] for topic in topics)

    def resolve(
        self,
        topics: Sequence[str],
        known_topics: Collection[str],
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> list[PartitionRange]:
        """Ranges of all partitions up to their current ends, also empty ones.

        committed: start offsets of these partitions; the others start at the settings'
        start_offset. "latest" applies to topics that are not in `known_topics` only: partitions
        added to the others start at the earliest offset.
        """
        settings = self._settings
        is_latest = settings.start_offset == "latest"
        ranges = resolve_ranges(
            self.client,
            topics,
            "earliest" if is_latest else settings.start_offset,
            "latest",
            settings.limits,
            keep_empty=True,
            committed=committed,
        )
        return [
            one._replace(start=one.end) if is_latest and one.topic not in known_topics else one
            for one in ranges
        ]

    # --- what is skipped -------------------------------------------------------------------------

    @property
    def most_skips(self) -> int:
        """Number of skips in the partition that has most."""
        return max(map(len, self._skips.values()), default=0)

    def have_skips(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a skip lies ahead of one of these positions."""
        return any(
            ends[key] < skip.source_end
            for key, skips in self._skips.items()
            if key in ends
            for skip in skips
        )

    def without_skips(self, one: PartitionRange) -> tuple[PartitionRange, list[OffsetSync]]:
        """The range up to the next skip, or after it; and the skips that it has passed."""
        passed: list[OffsetSync] = []
        for skip in self._skips.get(one.topic_partition, ()):
            if one.start <= skip.source_start < one.end:
                if one.start < skip.source_start:
                    return one._replace(end=skip.source_start), passed
                passed.append(skip)
                one = one._replace(start=skip.source_end)
        return one, passed

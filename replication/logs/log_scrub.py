"""Log scrub: examines segments before a reader finds damage, in a defined order.

    ends        of all segments that were there at the start, once: a file that is gone, emptied or
                cut short is found within moments
    doubted     every closed segment that was not read whole since the start
    all         every segment again, each bradbury.log.scrub.interval.ms; the active one as far as
                it is written: in a topic with few writes a segment stays active for years

The latter two run only within bradbury.log.scrub.hours, and continue in those of the next day.
Known damage is skipped: segment_healer repairs it. After a restart the scrub begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ...cluster.broker_config import BrokerConfig
from ...cluster.daily_hours import parse_daily_hours
from ...storage.log.log_damage import SegmentEnd, segments_to_examine
from ...storage.log.partition_log import PartitionLog
from ...storage.segments.log_segment import LogSegment
from ..effects import Effects
from ..partition.replica import Replica
from ..procedure import ProcedureSteps
from .segment_healer import Progress, ScrubWork, SegmentHealer

REASON: Final = "it does not end where the next one begins"


class LogScrub:
    """Scrub of the segments of one node."""

    def __init__(
        self,
        healer: SegmentHealer,
        replicas: Callable[[], Iterable[Replica]],
        config: BrokerConfig,
        effects: Effects,
        *,
        monotonic_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """Make an idle scrub. `replicas`: returns the node's current replicas."""
        self.config = config
        """Settings, used from the next round on."""
        self._healer = healer
        self._replicas = replicas
        self._effects = effects
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms
        self._looked: set[PartitionLog] = set()
        self._due_ms: int | None = None
        self._read_again: set[str] = set()
        """Paths of files that are read again in the current round over all files."""

    def check_ends(self) -> ProcedureSteps:
        """Check the ends of segments in logs that were not checked yet."""
        logs = [replica.log for replica in self._replicas()]
        self._looked.intersection_update(logs)
        for log in logs:
            if log in self._looked:
                continue
            self._looked.add(log)
            ends = log.damage.ends()
            if not ends:
                continue
            doubtful: list[LogSegment] = []
            find = partial(_find_doubtful, ends, doubtful)
            yield from self._healer.in_thread(ScrubWork(self._effects, find))
            for segment in doubtful:
                log.damage.suspect(segment, REASON)

    def scrub(self) -> ProcedureSteps:
        """Examine suspect segments, and all segments if a round is due. Raises ScrubbingStopped."""
        if self._due_ms is None:
            self._due_ms = self._monotonic_ms() + self.config.bradbury_log_scrub_interval_ms
        if not self.config.bradbury_log_scrub_enable:
            return
        yield from self._examine_all(only_doubted=True)
        if self._monotonic_ms() >= self._due_ms:
            yield from self._examine_all(only_doubted=False)
            if self._is_its_hour():
                self._read_again.clear()
                self._due_ms = self._monotonic_ms() + self.config.bradbury_log_scrub_interval_ms

    def _examine_all(self, *, only_doubted: bool) -> ProcedureSteps:
        for replica in list(self._replicas()):
            log = replica.log
            for segment in log.segments:
                if not self._is_its_hour():
                    return
                path = segment.files.path
                if segment.is_proven if only_doubted else path in self._read_again:
                    continue
                if self._healer.is_stopping or not log.health.is_online:
                    break
                if any(each.path == path for each in log.damage.ranges):
                    continue  # it is known
                yield from self._healer.examine(replica, segment, is_throttled=True)
                if not only_doubted:
                    self._read_again.add(path)

    def _is_its_hour(self) -> bool:
        return parse_daily_hours(self.config.bradbury_log_scrub_hours).has(self._wall_ms())


def _find_doubtful(ends: list[SegmentEnd], found: list[LogSegment], _: Progress) -> None:
    found += segments_to_examine(ends)

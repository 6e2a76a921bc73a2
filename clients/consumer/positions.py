"""Start positions of partitions: the committed offset, or the reset policy (end or time).

Source: OffsetFetcher.resetPositionsIfNeeded, AutoOffsetResetStrategy (KIP-1106).
"""

from __future__ import annotations

import re
import time
from typing import Final

from ...protocol.errors import InvalidConfig
from ...protocol.topic_partition import TopicPartition
from ..fetch.fetch_state import FetchState, Position, StartAt, StartAtTime, StartPoint
from ..group.offset_committer import OffsetCommitter
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient
from ..wire.offset_lookup import EARLIEST, LATEST, list_offsets

_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def parse_reset(text: str) -> StartPoint | None:
    """Parse auto_offset_reset to a start point; None for "none".

    Raises:
        InvalidConfig: not earliest, latest, none or by_duration:PnDTnHnMn.nS.
    """
    match text.partition(":"):
        case ("earliest", "", ""):
            return StartAt.EARLIEST
        case ("latest", "", ""):
            return StartAt.LATEST
        case ("none", "", ""):
            return None
        case ("by_duration", _, duration) if found := _DURATION.fullmatch(duration):
            parts = zip(found.groups(), _UNITS_MS, strict=True)
            return StartAtTime(int(sum(float(n or 0) * unit for n, unit in parts)), ago=True)
    raise InvalidConfig(
        f"auto_offset_reset={text!r}: use earliest, latest, none, or by_duration:PT1H "
        "(an ISO-8601 duration: PnDTnHnMn.nS)"
    )


class PositionFinder:
    """Finds positions. offsets: those of the group, if any. reset: None: no reset policy."""

    def __init__(
        self, client: ClusterClient, *, reset: StartPoint | None, isolation_level: int
    ) -> None:
        self.offsets: OffsetCommitter | None = None
        self._client = client
        self._reset = reset
        self._isolation_level = isolation_level

    def find(self, states: list[FetchState]) -> Steps[dict[TopicPartition, Position]]:
        """Find positions; partitions with neither committed offset nor reset policy are left out.

        Raises:
            KafkaError, ConnectionFailed: a broker refuses, or none answers.
        """
        found: dict[TopicPartition, Position] = {}
        wanted = {state.topic_partition for state in states if state.start_at is StartAt.COMMITTED}
        if wanted and self.offsets is not None:
            committed = yield from self.offsets.committed(wanted)
            found = {
                key: Position(stored.offset, stored.leader_epoch)
                for key, stored in committed.items()
            }
        asked: dict[TopicPartition, int] = {}
        for state in states:
            if state.topic_partition in found:
                continue
            start_at = self._reset if state.start_at is StartAt.COMMITTED else state.start_at
            if start_at is not None:
                asked[state.topic_partition] = _timestamp(start_at)
        found.update((yield from self._listed(asked)))
        late = dict.fromkeys((key for key, one in found.items() if one.offset < 0), LATEST)
        found.update(
            (yield from self._listed(late))
        )  # there is no record from that time on: start at the end
        return found

    def _listed(self, asked: dict[TopicPartition, int]) -> Steps[dict[TopicPartition, Position]]:
        answers = yield from list_offsets(
            self._client, asked, isolation_level=self._isolation_level
        )
        return {key: Position(answer.offset) for key, answer in answers.items()}


def _timestamp(start_at: StartPoint) -> int:
    if isinstance(start_at, StartAtTime):
        now_ms = int(time.time() * 1000)
        return max(0, now_ms - start_at.timestamp_ms) if start_at.ago else start_at.timestamp_ms
    return EARLIEST if start_at is StartAt.EARLIEST else LATEST

"""Where partitions without a position are read from: what the group committed, or an end."""

from __future__ import annotations

from ..protocol.errors import OffsetOutOfRange
from .cluster_client import ClusterClient
from .fetch_state import FetchState, StartAt
from .group_offsets import GroupOffsets
from .io_thread import Steps
from .list_offsets import EARLIEST, LATEST, list_offsets
from .topic_partition import TopicPartition


class PositionFinder:
    """offsets: of the group, if there is one. reset: None makes a missing position an error."""

    def __init__(
        self, client: ClusterClient, *, reset: StartAt | None, isolation_level: int
    ) -> None:
        self.offsets: GroupOffsets | None = None
        self._client = client
        self._reset = reset
        self._isolation_level = isolation_level

    def find(self, states: list[FetchState]) -> Steps[dict[TopicPartition, int]]:
        """An offset for each.

        Raises:
            OffsetOutOfRange: nothing is committed, and there is no reset policy.
            KafkaError, ConnectionFailed: a broker refuses, or none answers.
        """
        found: dict[TopicPartition, int] = {}
        wanted = {state.topic_partition for state in states if state.start_at is StartAt.COMMITTED}
        if wanted and self.offsets is not None:
            found = yield from self.offsets.committed(
                wanted, require_stable=self._isolation_level > 0
            )
        ends: dict[TopicPartition, int] = {}
        for state in states:
            if state.topic_partition in found:
                continue
            start_at = self._reset if state.start_at is StartAt.COMMITTED else state.start_at
            if start_at is None:
                raise OffsetOutOfRange(
                    f"{state.topic_partition}: no offset is committed; seek, "
                    'or set auto_offset_reset="earliest" or "latest"'
                )
            ends[state.topic_partition] = EARLIEST if start_at is StartAt.EARLIEST else LATEST
        listed = yield from list_offsets(self._client, ends, isolation_level=self._isolation_level)
        found.update({key: answer.offset for key, answer in listed.items()})
        return found

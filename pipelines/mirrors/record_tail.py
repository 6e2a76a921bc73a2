"""Tail of a mirror's source: one long-polling fetch of new records of all its partitions.

A refresh (record_copier) looks up the ends of all partitions before it fetches. Once everything is
copied, a fetch that brokers answer as soon as they have records takes less time and fewer requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...clients.fetch.batch_reader import BatchReader
from ...clients.fetch.fetch_state import FetchedRecords
from ...clients.wire.cluster_client import ClusterClient
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import PartitionRange

WAIT_MS: Final = 500
"""Most milliseconds a broker holds a fetch without records (fetch.max.wait.ms)."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Most bytes returned by one `take`, about."""
_NO_END: Final = 2**63 - 1


class RecordTail:
    """Reader of new records. Used by one thread. positions: next offset, by partition.

    client: must be its own: other requests on its connections would wait for the fetch.
    """

    def __init__(self, client: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(positions)
        self._reader = BatchReader(
            {key: (offset, _NO_END) for key, offset in positions.items()},
            client=client,
            max_wait_ms=WAIT_MS,
        )

    def take(self, timeout_s: float) -> list[FetchedRecords]:
        """Records as soon as there are any; an empty list after `timeout_s` seconds.

        Raises what BatchReader does.
        """
        found: list[FetchedRecords] = []
        size = 0
        fetched = self._reader.read(int(timeout_s * 1000))
        while fetched is not None:
            self.positions[fetched.state.topic_partition] = fetched.next_offset
            found.append(fetched)
            size += len(fetched.records)
            fetched = self._reader.read(0) if size < MOST_BYTES else None
        return found

    def close(self) -> None:
        self._reader.close()


def ranges_of(fetched: list[FetchedRecords]) -> list[PartitionRange]:
    """Fetched ranges, one for each partition."""
    ranges: dict[TopicPartition, PartitionRange] = {}
    for one in fetched:
        key = one.state.topic_partition
        before = ranges.get(key, PartitionRange(*key, one.fetch_offset, one.fetch_offset))
        ranges[key] = before._replace(end=one.next_offset)
    return list(ranges.values())

"""Ranges that a task reads, and the limits of reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ...protocol.topic_partition import TopicPartition
from .fetch_options import FetchOptions

NO_TOPIC_ID: Final = str(UUID(int=0))
"""Id of every topic where brokers have none (Kafka before 2.8)."""


class PartitionRange(NamedTuple):
    """Records [start, end) of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


def recreated_topics(former_ids: Mapping[str, str], ids: Mapping[str, str]) -> list[str]:
    """Names of topics that were deleted and recreated since they had the former ids, ascending:
    former offsets do not apply to them. If brokers have no topic ids, this cannot be detected.
    """
    return sorted(
        name
        for name, former_id in former_ids.items()
        if name in ids and ids[name] != former_id and NO_TOPIC_ID not in (ids[name], former_id)
    )


class DataLoss(Exception):
    """Records of a range were deleted, and `fail_on_data_loss` is true. The text has a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of reading ranges.

    poll_timeout_ms: reading fails after this time without a record.
    poll_timeout_name: name of that setting, for error messages. allow_data_loss: how to allow data
    loss, for error messages: "set fail_on_data_loss to false".
    """

    fetch: FetchOptions
    poll_timeout_ms: int
    poll_timeout_name: str
    fail_on_data_loss: bool
    allow_data_loss: str

    @property
    def data_loss_remedy(self) -> str:
        return (
            "Records were deleted by retention, or the topic was deleted and recreated. To "
            f"continue without them {self.allow_data_loss}"
        )

"""Ranges that a task reads, and the limits of reading. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...clients.wire.record_metadata import TopicPartition
from .fetch_options import FetchOptions


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


class DataLoss(Exception):
    """Records of a range were deleted, and `fail_on_data_loss` is true. The text has a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of reading ranges.

    poll_timeout_ms: reading fails after this time without a record.
    poll_timeout_name, fail_on_data_loss_name: names of the two settings for error messages.
    """

    fetch: FetchOptions
    poll_timeout_ms: int
    poll_timeout_name: str
    fail_on_data_loss: bool
    fail_on_data_loss_name: str

    @property
    def data_loss_remedy(self) -> str:
        return (
            "They were deleted by retention, or the topic was deleted and recreated. To continue "
            f"without them set {self.fail_on_data_loss_name} to false"
        )

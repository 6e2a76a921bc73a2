"""What a task reads, and within which limits. Pure."""

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
    """Records of a range are gone, and `fail_on_data_loss` is true. Its text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How ranges are read.

    poll_timeout_ms: without a record for so long, reading fails.
    poll_timeout_name, fail_on_data_loss_name: what its user calls these two.
    """

    fetch: FetchOptions
    poll_timeout_ms: int
    poll_timeout_name: str
    fail_on_data_loss: bool
    fail_on_data_loss_name: str

    @property
    def data_loss_remedy(self) -> str:
        return (
            "They were removed by retention, or the topic was deleted and made again. To read on "
            f"without them set {self.fail_on_data_loss_name} to false"
        )

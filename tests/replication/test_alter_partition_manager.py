"""When does a leader ask for another ISR?"""

import logging
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bradbury.cluster.control.alter_partition import PartitionState
from bradbury.cluster.control.controller_request import DONE, RequestOutcome
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.partition.leader_state import LeaderState
from bradbury.protocol.errors import ErrorCode
from bradbury.replication.effects import SendControllerRequest
from bradbury.replication.manager.alter_partition_manager import AlterPartitionManager
from bradbury.tests.support.metadata import applied, cluster, create

LAG_MS = 10_000


@dataclass
class Led:
    leader: LeaderState
    topic: str = "t"
    partition: int = 0

    def on_isr(self, isr: Any, partition_epoch: int) -> None:
        self.leader.on_isr(isr, partition_epoch)

    def on_isr_refused(self) -> None:
        self.leader.on_refused()


@dataclass
class LeadingNode:
    image: MetadataImage
    replicas: list[Any]
    node_id: int = 1
    lag_time_max_ms: int = LAG_MS
    effects: list[Any] = field(default_factory=list)


def test_a_follower_that_stands_still_leaves_as_soon_as_its_time_is_over() -> None:
    """Not at the next of the looks, which are half of that time apart."""
    image = cluster("a", "b", "c")
    image = applied(image, create(image, "t", partitions=1, replication_factor=3))
    leader = LeaderState(0, 0, 0, node_id=1, replicas=(1, 2, 3), isr=(1, 2, 3), now_ms=0)
    node = LeadingNode(image, [Led(leader)])
    manager = AlterPartitionManager(node, node.effects)
    manager.on_tick(0)
    assert manager.next_deadline_ms == LAG_MS // 2
    leader.on_local_append(1)
    for follower, now_ms in ((2, 1_000), (3, 1_000), (3, 4_900)):
        fetched = int(now_ms > 4_000)
        leader.on_fetch(follower, fetched, broker_epoch=9, leader_end=1, now_ms=now_ms)
    manager.on_tick(LAG_MS // 2)
    manager.on_tick(LAG_MS)
    assert manager.next_deadline_ms == LAG_MS + 1, "2 had everything when the epoch began"
    assert node.effects == []
    manager.on_tick(LAG_MS + 1)
    (asked,) = node.effects
    assert isinstance(asked, SendControllerRequest)
    (partition,) = asked.request.partitions
    assert [each.node_id for each in partition.isr] == [1, 3]


def test_the_log_names_the_new_isr_and_why_another_was_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    image = cluster("a", "b", "c")
    image = applied(image, create(image, "t", partitions=1, replication_factor=3))
    state = image.topics["t"].partitions[0]
    leader = LeaderState(
        state.leader_epoch, state.partition_epoch, 0, node_id=1, replicas=(1, 2, 3), isr=(1, 2, 3),
        now_ms=0,
    )  # fmt: skip
    manager = AlterPartitionManager(node := LeadingNode(image, [Led(leader)]), node.effects)
    leader.on_local_append(1)
    manager.on_tick(LAG_MS + 1)
    assert len(node.effects) == 1
    refused = RequestOutcome(ErrorCode.INVALID_REQUEST, "another leader epoch")
    manager.on_answer((PartitionState(refused),), LAG_MS + 2)
    assert [record.getMessage() for record in caplog.records] == ["t-0: another leader epoch"]
    caplog.clear()

    manager.on_tick(2 * LAG_MS + 2)
    assert len(node.effects) == 2
    shrunk = replace(state, isr=(1,), partition_epoch=state.partition_epoch + 1)
    manager.on_answer((PartitionState(DONE, shrunk),), 2 * LAG_MS + 3)
    assert [record.getMessage() for record in caplog.records] == ["t-0: ISR is now 1"]

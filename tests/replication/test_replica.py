"""What a leader knows of its followers, whatever order their fetches come in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.conversion_threads import ConversionThreads
from bradbury.actors.replication.hosted_replica import HostedReplica
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.ports.fetch_answer import FetchAnswer
from bradbury.handlers.ports.fetch_session import FetchSessionCache
from bradbury.handlers.records.pending_fetch import begin_fetch
from bradbury.protocol.errors import KafkaStorageError
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from bradbury.replication.partition.conversion_queue import ConversionMemory
from bradbury.replication.partition.marker_append import TransactionDecision, append_marker
from bradbury.replication.partition.replica import Replica
from bradbury.steps.replies import Refuse, Reply
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

TOPIC_ID = UUID(int=3)


class Leader:
    """Node 1 leads t-0, which nodes 2 and 3 follow."""

    node_id = 1
    server_config = SimpleNamespace(broker=BrokerConfig())

    def __init__(self, folder: Path) -> None:
        self.partitions = self.throttle = self
        topic = SimpleNamespace(name="t")
        self.image = SimpleNamespace(nodes={}, topic_by_id=lambda topic_id: topic)
        self.fetch_sessions = FetchSessionCache(10, 1_000, random_id=iter(range(7, 99)).__next__)
        driver = StepDriver()
        driver.now_ms = self.now_ms
        self.conversion_memory = ConversionMemory()
        self.effects, self.changed = driver.effects, {}
        log = open_log(folder)
        log.local.assign_epoch(1)
        self.step = Replica("t", 0, log, self)
        self.step.become_leader(PartitionImage((1, 2, 3), (1, 2, 3), 1, 1, 1), 0)
        self.replica = HostedReplica(
            self.step,
            driver,
            wall_ms=self.now_ms,
            in_thread=None,
            conversions=ConversionThreads(driver, wall_ms=self.now_ms),
        )
        self.driver = driver

    def now_ms(self) -> int:
        return 0

    def leader_of(self, topic: str, partition: int, *, current_leader_epoch: int) -> HostedReplica:
        return self.replica

    def on_follower_fetch_from(self, node_id: int, peer: str) -> None: ...
    def should_throttle(self, topic: str, partition: int, follower_id: int) -> bool:
        return False

    def on_sent(self, topic: str, partition: int, size: int) -> None: ...
    def on_follower_caught_up(self, replica: Replica) -> None: ...

    def append(self) -> None:
        self.step.append(make_batch(), opened=True, now_ms=0, wall_ms=0)

    def fetch(
        self,
        node_id: int,
        offset: int | None,
        *,
        session_id: int = 0,
        epoch: int = -1,
        log_start_offset: int = 0,
    ) -> FetchAnswer:
        """`offset` None: of no partition is anything new."""
        asked = FetchPartition(
            fetch_offset=offset or 0,
            last_fetched_epoch=1 if offset else -1,
            partition_max_bytes=1_000,
            log_start_offset=log_start_offset,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=node_id, replica_epoch=1),
            session_id=session_id,
            session_epoch=epoch,
            topics=[] if offset is None else [FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
        )
        begun = begin_fetch(request, RequestContext(self, 17, "f", "p", 0))
        return begun if isinstance(begun, FetchAnswer) else begun.finish()

    def known_end(self, node_id: int) -> int:
        return self.step.leader.followers[node_id].log_end_offset


def test_a_fetch_that_comes_late_is_put_right_by_the_session_that_goes_on(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append()
    session_id = leader.fetch(2, 0, epoch=0).session_id
    leader.fetch(2, 1, session_id=session_id, epoch=1)
    leader.fetch(2, None, session_id=session_id, epoch=2)
    assert leader.known_end(2) == 1
    leader.fetch(2, 0)  # of a connection that the follower has given up
    assert leader.known_end(2) == 0
    leader.fetch(2, None, session_id=session_id, epoch=3)
    assert leader.known_end(2) == 1


def test_acks_all_is_answered_when_all_in_sync_have_it_and_not_before(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append()
    assert leader.step.when_committed(0, lambda: "ticket") == "ticket"
    leader.fetch(2, 1)
    assert leader.effects == []
    carried = []
    leader.driver.on(Reply, carried.append)
    leader.fetch(3, 1)
    assert [each.ticket for each in carried] == ["ticket"]
    assert leader.step.when_committed(0, lambda: "too late") is None


class Waiter:
    """A follower's fetch that waits."""

    def __init__(self) -> None:
        self.woken: list[int] = []

    def on_readable(self, size: int) -> None:
        self.woken.append(size)

    def on_changed(self) -> None:
        self.woken.append(-1)


def test_a_follower_that_waits_hears_of_deleted_records(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append()
    for node_id in (2, 3):
        leader.fetch(node_id, 1)
    waiter = Waiter()
    leader.step.fetches.park(waiter, is_follower=True)
    assert leader.step.deletes.delete_records(1) == 1
    assert waiter.woken == [0]


def test_a_high_watermark_that_stays_wakes_nobody(tmp_path: Path) -> None:
    """A follower hears of it twice a second from a leader that nobody writes to."""
    leader = Leader(tmp_path)
    follower = leader.step
    follower.append_as_follower(make_batch(), 0)
    waiter = Waiter()
    follower.fetches.park(waiter, is_follower=False)
    leader.changed.clear()
    assert not follower.update_watermarks(1, 0)
    assert follower.log.high_watermark == 1
    assert list(leader.changed) == [follower]
    assert len(waiter.woken) == 1
    leader.changed.clear()
    assert not follower.update_watermarks(1, 0)
    assert not leader.changed
    assert len(waiter.woken) == 1


def test_a_deletion_is_answered_when_all_in_sync_have_deleted_and_not_before(
    tmp_path: Path,
) -> None:
    leader = Leader(tmp_path)
    leader.append()
    for node_id in (2, 3):
        leader.fetch(node_id, 1)
    replied: list[Reply] = []
    leader.driver.on(Reply, replied.append)
    assert leader.step.deletes.delete_records(1) == 1
    assert leader.step.deletes.when_deleted(1, lambda: "ticket") == "ticket"
    leader.fetch(2, 1, log_start_offset=1)
    assert replied == []
    leader.fetch(3, 1, log_start_offset=1)
    assert [each.ticket for each in replied] == ["ticket"]
    assert leader.step.deletes.when_deleted(1, lambda: "too late") is None


def test_whoever_waits_hears_that_the_directory_is_offline(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.append()
    leader.step.when_committed(0, lambda: "ticket")
    waiter = Waiter()
    leader.step.fetches.park(waiter, is_follower=True)
    refused: list[Refuse] = []
    leader.driver.on(Refuse, refused.append)
    leader.step.fail_waiting(KafkaStorageError("the disk is gone"))
    leader.driver.carry_out()
    assert [(each.ticket, str(each.error)) for each in refused] == [("ticket", "the disk is gone")]
    assert waiter.woken == [-1]


def test_a_nearly_full_disk_takes_markers_and_internal_topics_alone(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    log, health = leader.step.log, leader.step.log.local.health
    health.headroom = 1
    leader.append()
    assert health.headroom <= 0, "the last batch may exceed what is left"
    with pytest.raises(KafkaStorageError, match="nearly full"):
        leader.append()
    assert log.log_end_offset == 1
    decision = TransactionDecision(5, 0, is_commit=True, coordinator_epoch=0, transaction_version=2)
    append_marker(leader.step, decision, now_ms=0, wall_ms=0)
    assert log.log_end_offset == 2
    internal = Replica("t", 0, log, leader, may_use_reserve=True)
    internal.become_leader(PartitionImage((1,), (1,), 1, 1, 1), 0)
    internal.append(make_batch(), opened=True, now_ms=0, wall_ms=0)
    assert log.log_end_offset == 3

"""How a node of the simulation follows a leader, composed as actors/replica_fetcher is.

One fetch at a time for all partitions that the leader leads; the leader parks it until there is
something, or for a while. An answer for a position that is no longer ours is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from bradbury.cluster.follower_state import (
    FetchPosition,
    StartAt,
    on_diverging,
    on_out_of_range,
)
from bradbury.cluster.leader_state import FollowerFetch
from bradbury.protocol.errors import KafkaError, NotLeaderOrFollower, OffsetOutOfRange

from .simulated_network import LOST, Answer
from .simulated_replica import PartitionId, SimulatedReplica, read_bytes

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

FETCH_BYTES = 2_000
ANSWER_MS = 100
BACKOFF_MS = 25


class Followed(NamedTuple):
    replica: SimulatedReplica
    leader_epoch: int

    @property
    def position(self) -> FetchPosition:
        log = self.replica.log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.epochs.latest_epoch)


class Fetched(NamedTuple):
    """Of one partition: an error, a divergence, or records with marks."""

    error: KafkaError | None = None
    diverging: tuple[int, int] | None = None
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = 0
    leader_start: int = -1
    leader_end: int = -1

    @property
    def is_settled(self) -> bool:
        return self.error is not None or self.diverging is not None or bool(self.records)


class Fetcher:
    """Follows one leader."""

    def __init__(self, node: SimulatedNode, leader_id: int) -> None:
        self.node, self.leader_id = node, leader_id
        self.partitions: dict[PartitionId, Followed] = {}
        self._delayed: dict[PartitionId, int] = {}
        self._is_asking = False

    def follow(self, followed: Followed) -> None:
        self.partitions[followed.replica.partition_id] = followed
        self._delayed.pop(followed.replica.partition_id, None)
        self.go_on()

    def leave(self, partition_id: PartitionId) -> None:
        self.partitions.pop(partition_id, None)
        self._delayed.pop(partition_id, None)

    def go_on(self) -> None:
        """Ask, unless a question is out. One that waits for too little is answered soon enough."""
        if self._is_asking or not self.partitions:
            return
        node = self.node
        now = node.clock.now_ms
        asked = {
            partition_id: followed.position
            for partition_id, followed in self.partitions.items()
            if self._delayed.get(partition_id, 0) <= now
        }
        self._is_asking = True
        if not_durable := self._not_durable(asked):
            self._flush(not_durable)
            return
        if not asked:
            node.process.after(BACKOFF_MS, self._asked_nothing)
            return
        for partition_id, position in asked.items():
            self.partitions[partition_id].replica.claim(position.fetch_offset)
        broker_epoch = node.broker_epoch
        leader = node.cluster.nodes[self.leader_id]
        node.cluster.network.call(
            node.process,
            leader.process,
            lambda answer: answer_fetch(leader, node.node_id, broker_epoch, asked, answer),
            lambda result: self._process(asked, result),
            timeout_ms=node.cluster.swarm.fetch_wait_ms + ANSWER_MS,
            what="fetch",
        )

    def _not_durable(self, asked: Iterable[PartitionId]) -> list[SimulatedReplica]:
        """What a former life of the process has left in the page cache only."""
        replicas = [self.partitions[partition_id].replica for partition_id in asked]
        return [
            replica
            for replica in replicas
            if replica.log.unflushed_records >= replica.log.config.flush_messages
        ]

    def _asked_nothing(self) -> None:
        self._is_asking = False
        self.go_on()

    def _process(self, asked: dict[PartitionId, FetchPosition], result: Any) -> None:
        if result is LOST:
            self.node.process.after(BACKOFF_MS, self._asked_nothing)
            return
        to_flush: list[SimulatedReplica] = []
        for partition_id, fetched in result.items():
            followed = self.partitions.get(partition_id)
            if followed is None or followed.position != asked[partition_id]:
                continue
            try:
                self._take(followed, fetched)
            except KafkaError:
                self._delay(partition_id)
            else:
                log = followed.replica.log
                if log.unflushed_records >= log.config.flush_messages:
                    to_flush.append(followed.replica)
        self._flush(to_flush)

    def _flush(self, replicas: list[SimulatedReplica]) -> None:
        """Only what is durable, where the topic asks for it, is claimed by the next question."""
        waiting = [len(replicas)]

        def done() -> None:
            waiting[0] -= 1
            if waiting[0] <= 0:
                self._asked_nothing()

        if not replicas:
            done()
        for replica in replicas:
            replica.flush(done)

    def _delay(self, partition_id: PartitionId) -> None:
        self._delayed[partition_id] = self.node.clock.now_ms + BACKOFF_MS

    def _take(self, followed: Followed, fetched: Fetched) -> None:
        replica, log = followed.replica, followed.replica.log
        if isinstance(fetched.error, OffsetOutOfRange):
            step = on_out_of_range(log, fetched.leader_start, fetched.leader_end)
            if step is None:
                self._delay(replica.partition_id)
            elif isinstance(step, StartAt):
                log.truncate_fully_and_start_at(step.offset)
                log.high_watermark = step.offset
                self.node.claimed.pop(replica.partition_id, None)
            else:
                self.node.truncate(replica, step.offset)
            return
        if fetched.error is not None:
            self._delay(replica.partition_id)
            return
        if fetched.diverging is not None:
            self.node.truncate(replica, on_diverging(log, *fetched.diverging).offset)
            return
        if fetched.records:
            if log.epochs.latest_epoch < followed.leader_epoch:
                epochs = log.new_epochs(fetched.records, up_to=followed.leader_epoch)
                if epochs:
                    log.assign_epochs(epochs)
            replica.append_as_follower(fetched.records)
        replica.follow_marks(fetched.high_watermark, fetched.log_start_offset)


def answer_fetch(
    leader: SimulatedNode,
    node_id: int,
    broker_epoch: int,
    asked: dict[PartitionId, FetchPosition],
    answer: Answer,
) -> None:
    """The leader's side: at once if there is anything, else when there is, or after a while."""
    found = _read_all(leader, node_id, broker_epoch, asked)
    if any(each.is_settled for each in found.values()):
        answer(found)
        return
    replicas = [leader.replicas[partition_id] for partition_id in asked]
    is_over = [False]

    def wake() -> None:
        if is_over[0]:
            return
        now = _read_all(leader, node_id, broker_epoch, asked)
        is_over[0] = True
        for replica in replicas:
            replica.on_readable.pop(wake_later, None)
        answer(now)

    def wake_later() -> None:
        leader.process.after(0, wake)

    for replica in replicas:
        replica.on_readable[wake_later] = None
    leader.process.after(leader.cluster.swarm.fetch_wait_ms, wake)


def _read_all(
    leader: SimulatedNode,
    node_id: int,
    broker_epoch: int,
    asked: dict[PartitionId, FetchPosition],
) -> dict[PartitionId, Fetched]:
    return {
        partition_id: _read(leader, node_id, broker_epoch, partition_id, position)
        for partition_id, position in asked.items()
    }


def _read(
    leader: SimulatedNode,
    node_id: int,
    broker_epoch: int,
    partition_id: PartitionId,
    position: FetchPosition,
) -> Fetched:
    try:
        replica = leader.leader_of(partition_id, position.leader_epoch)
        check_broker_epoch(leader, node_id, broker_epoch)
        fetch = FollowerFetch(
            node_id, broker_epoch, position.fetch_offset, position.last_fetched_epoch
        )
        diverging = replica.on_follower_fetch(fetch)
    except OffsetOutOfRange as error:
        log = leader.replicas[partition_id].log
        return Fetched(
            error, leader_start=log.log_start_offset, leader_end=leader.told_end(partition_id)
        )
    except KafkaError as error:
        return Fetched(error)
    if diverging is not None:
        return Fetched(diverging=diverging)
    log = replica.log
    high_watermark = log.high_watermark
    records = read_bytes(log, position.fetch_offset, log.log_end_offset, FETCH_BYTES)
    return Fetched(
        records=records, high_watermark=high_watermark, log_start_offset=log.log_start_offset
    )


def check_broker_epoch(leader: SimulatedNode, node_id: int, broker_epoch: int) -> None:
    """As handlers/fetch: nothing from before the follower's latest registration counts."""
    known = leader.image.nodes.get(node_id)
    if known is not None and -1 < broker_epoch < known.epoch:
        raise NotLeaderOrFollower("the node was registered anew")

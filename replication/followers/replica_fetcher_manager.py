"""Replica fetcher manager: the fetchers of one node, one for each leader that it follows."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.topic_partition import TopicIdPartition
from ..effects import WorkingStep
from .following_node import FollowingNode
from .replica_fetcher import FollowedPartition, ReplicaFetcher


class FetcherSettled:
    """Condition that a fetcher does not change its logs: see procedure.Condition."""

    def __init__(self, fetcher: ReplicaFetcher) -> None:
        self._fetcher = fetcher

    def begin_waiting(self, step: WorkingStep) -> None:
        if self._fetcher.is_working:
            self._fetcher.when_settled(self, step)
        else:
            step.on_work_done(self, None, 0)


class ReplicaFetcherManager:
    """The fetchers of one incarnation of a node."""

    def __init__(self, node: FollowingNode) -> None:
        self._node = node
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicIdPartition, int] = {}

    def follow(self, followed: FollowedPartition, leader_id: int) -> None:
        """Follow this leader from now on. A former leader must have been left before."""
        assert self._leaders.get(followed.partition_id, leader_id) == leader_id
        if leader_id not in self._fetchers:
            self._fetchers[leader_id] = ReplicaFetcher(self._node, leader_id)
        self._leaders[followed.partition_id] = leader_id
        self._fetchers[leader_id].follow(followed)

    def leader_of(self, partition_id: TopicIdPartition) -> int | None:
        """Node id of the followed leader; None: none is followed."""
        return self._leaders.get(partition_id)

    def leave(self, partition_ids: Iterable[TopicIdPartition]) -> list[FetcherSettled]:
        """Stop following. Returns conditions to wait for until these logs are no longer being
        changed.
        """
        concerned: dict[int, None] = {}
        for partition_id in partition_ids:
            leader_id = self._leaders.pop(partition_id, None)
            if leader_id is not None:
                concerned[leader_id] = None
                self._fetchers[leader_id].leave(partition_id)
        return [FetcherSettled(self._fetchers[leader_id]) for leader_id in concerned]

    def leave_all(self) -> list[FetcherSettled]:
        """Stop following all partitions; see leave."""
        return self.leave(list(self._leaders))

    def end_empty(self) -> list[ReplicaFetcher]:
        """Remove and return fetchers without partitions: their connections may be closed."""
        ended = [fetcher for fetcher in self._fetchers.values() if fetcher.is_empty]
        for fetcher in ended:
            del self._fetchers[fetcher.leader_id]
        return ended

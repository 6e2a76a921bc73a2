"""A client without a group's membership: it commits offsets, some of them to expire soon, deletes
some, deletes the group, and looks whether what is there is what can be there (G7).

It asks one thing at a time, so what is there is known, but for what got no good answer: that may
have been done, or may yet be done by a request that is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from bradbury.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

from ..world.coordinators.simulated_groups import SimulatedShard
from ..world.simulated_network import Answer, is_error
from .simulated_group_oracle import NOTHING, OPERATED
from .simulated_members import BACKOFF_MS, SHARED, GroupClient

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

PARTITIONS = 3
PACE_MS = 60
KEPT_MS = 200
"""Offsets that are to expire."""


class GroupOperator(GroupClient):
    def __init__(self, cluster: SimulatedCluster, machine: int) -> None:
        super().__init__(cluster, machine, OPERATED)
        self._possible = [{NOTHING} for _ in range(PARTITIONS)]
        """What an OffsetFetch may find, by partition."""
        self._unsure: list[set[int]] = [set() for _ in range(PARTITIONS)]
        """What requests without a good answer would leave there, now or later."""
        self._expiring: set[int] = set()
        self._last_offset = 0
        self._found: set[int] = set()
        """The offsets that the last OffsetFetch found."""
        self._pause()

    @property
    def unsettled(self) -> str | None:
        if self._found & self._expiring:
            return f"{sorted(self._found & self._expiring)} of {OPERATED} have not expired"
        return None

    def _pause(self) -> None:
        self._next()
        self._later(1 + int(self.cluster.random.random() * 2 * PACE_MS), self._act)

    def _act(self) -> None:
        chance = self.cluster.random.random()
        if self.cluster.is_calm or chance < 0.3:
            self._fetch()
        elif chance < 0.8:
            self._commit()
        elif chance < 0.93:
            self._delete_offsets()
        else:
            self._delete_group()

    def _change(
        self,
        ask: Callable[[SimulatedShard, Answer], None],
        values: dict[int, int],
        is_done: Callable[[Any], bool],
    ) -> None:
        """`values`: what is there when it is done, by partition."""
        for partition, value in values.items():
            self._possible[partition] |= self._after(value)

        def answered(result: Any) -> None:
            sure = not is_error(result) and is_done(result)
            for partition, value in values.items():
                self._settle(partition, value, is_sure=sure)
            self._pause()

        self._ask(ask, answered)

    def _after(self, value: int) -> set[int]:
        return {value, NOTHING} if value in self._expiring else {value}

    def _settle(self, partition: int, value: int, *, is_sure: bool) -> None:
        after = self._after(value)
        if is_sure:
            self._possible[partition] = after | self._unsure[partition]
        else:
            self._unsure[partition] |= after

    # --- what it does ----------------------------------------------------------------------------

    def _commit(self) -> None:
        random = self.cluster.random
        chosen = [n for n in range(PARTITIONS) if random.random() < 0.6] or [0]
        expires = random.random() < 0.3
        values = {}
        for partition in chosen:
            self._last_offset += 1
            values[partition] = self._last_offset
        if expires:
            self._expiring |= set(values.values())
        request = OffsetCommitRequest(
            OPERATED,
            retention_time_ms=KEPT_MS if expires else -1,
            topics=[
                OffsetCommitRequestTopic(
                    name=SHARED,
                    partitions=[OffsetCommitRequestPartition(*each) for each in values.items()],
                )
            ],
        )
        self._change(
            lambda shard, answer: shard.watched_commit(request, answer),
            values,
            lambda response: not any(each.error_code for each in response.topics[0].partitions),
        )

    def _delete_offsets(self) -> None:
        partition = self.cluster.random.randrange(PARTITIONS)
        asked = [OffsetDeleteRequestPartition(partition)]
        request = OffsetDeleteRequest(OPERATED, [OffsetDeleteRequestTopic(SHARED, asked)])
        self._change(
            lambda shard, answer: shard.delete_offsets(request, answer),
            {partition: NOTHING},
            lambda response: not response.error_code,
        )

    def _delete_group(self) -> None:
        self._change(
            lambda shard, answer: shard.delete_groups([OPERATED], answer),
            dict.fromkeys(range(PARTITIONS), NOTHING),
            lambda response: not response.results[0].error_code,
        )

    def _fetch(self) -> None:
        asked = OffsetFetchRequestGroup(
            group_id=OPERATED,
            topics=[
                OffsetFetchRequestTopics(name=SHARED, partition_indexes=list(range(PARTITIONS)))
            ],
        )

        is_checked = False

        def ask(shard: SimulatedShard, answer: Answer) -> None:
            is_newest = self.cluster.group_oracle.is_newest(shard)

            def found(result: Any) -> None:
                nonlocal is_checked
                if not is_error(result) and is_newest:
                    is_checked = self._check(shard, result)
                answer(result)

            shard.watched_fetch(asked, found)

        def answered(result: Any) -> None:
            if is_error(result):
                self._later(BACKOFF_MS, self._pause)
                return
            self._found = {each.committed_offset for each in result.topics[0].partitions}
            if is_checked:
                for each in result.topics[0].partitions:
                    partition, value = each.partition_index, each.committed_offset
                    # One that has expired is back where the coordinator dies before that is
                    # committed; in the end it has to be gone.
                    kept = self._possible[partition] & self._expiring
                    self._settle(partition, value, is_sure=True)
                    if value == NOTHING:
                        self._possible[partition] |= kept
            self._pause()

        self._ask(ask, answered)

    def _check(self, shard: SimulatedShard, found: OffsetFetchResponseGroup) -> bool:
        """Also of an answer that is late, and not waited for any more. False: it led no more."""
        if not self.cluster.group_oracle.is_newest(shard):
            return False
        for each in found.topics[0].partitions:
            partition, value = each.partition_index, each.committed_offset
            self.cluster.clock.note(value)
            if value not in self._possible[partition]:
                self.cluster.group_oracle.violated(
                    "G7",
                    shard,
                    f"partition {partition} of {OPERATED} is at {value}, "
                    f"not one of {sorted(self._possible[partition])}",
                )
        return True

"""Asks the controller for other in-sync replicas of the partitions that this node leads.

Looked at when a follower may have caught up, and every half of replica.lag.time.max.ms for those
that have not. All that is asked for at one moment goes in one AlterPartition request; one request
is on its way at a time, and is repeated until it is answered, because an answer that was lost does
not say what the controller has decided (see cluster/leader_state).
Source: apache/kafka server/.../AlterPartitionManager.java, ReplicaManager.maybeShrinkIsr.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ..cluster.alter_partition import (
    AlterPartition,
    Insync,
    PartitionState,
    ProposedIsr,
    Verdict,
    verdict_on,
)
from ..cluster.controller_request import DONE
from ..cluster.metadata_image import MetadataImage
from ..handlers.context import Controller
from ..protocol.errors import ConnectionFailed, KafkaError, NotController, StaleBrokerEpoch
from .carry_through import within
from .replica import Replica

logger = logging.getLogger("bradbury.replication")

RETRY_SECONDS = 0.1


class LeadingNode(Protocol):
    """What is asked of the node."""

    @property
    def node_id(self) -> int: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def lag_time_max_ms(self) -> int: ...
    @property
    def replicas(self) -> Iterable[Replica]: ...


class InsyncManager:
    """One event loop; `start`, then `close`."""

    def __init__(
        self, node: LeadingNode, controller: Controller, *, monotonic_ms: Callable[[], int]
    ) -> None:
        self._node = node
        self._controller = controller
        self._monotonic_ms = monotonic_ms
        self._candidates: set[Replica] = set()
        self._work = asyncio.Event()
        self._sweep_at = 0.0
        """When all partitions are looked at next."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look_at(self, replica: Replica) -> None:
        """One of its followers may be in sync now."""
        self._candidates.add(replica)
        self._work.set()

    def look_at_all(self) -> None:
        """Nodes have come or gone: whoever was not eligible may be now."""
        self._sweep_at = 0.0
        self._work.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                with contextlib.suppress(TimeoutError):
                    await within(self._sweep_at - loop.time(), self._work.wait())
                self._work.clear()
                found: Iterable[Replica]
                found, self._candidates = self._candidates, set()
                if loop.time() >= self._sweep_at:
                    self._sweep_at = loop.time() + self._node.lag_time_max_ms / 2000
                    found = self._node.replicas
                await self._ask(found)
            except Exception:
                logger.exception("asking for other in-sync replicas failed")
                await asyncio.sleep(RETRY_SECONDS)

    def _proposals(self, replicas: Iterable[Replica]) -> list[tuple[Replica, ProposedIsr]]:
        image = self._node.image
        now = self._monotonic_ms()

        def is_eligible(node_id: int, broker_epoch: int) -> bool:
            node = image.nodes.get(node_id)
            return node is not None and not node.fenced and broker_epoch in (-1, node.epoch)

        found = []
        for replica in replicas:
            leader = replica.leader
            topic = image.topics.get(replica.topic)
            if leader is None or topic is None or not leader.followers:
                continue
            isr = leader.propose(
                now_ms=now, lag_time_max_ms=self._node.lag_time_max_ms, is_eligible=is_eligible
            )
            if isr is None:
                continue
            proposed = ProposedIsr(
                topic.topic_id,
                replica.partition,
                leader.leader_epoch,
                leader.partition_epoch,
                tuple(Insync(*each) for each in isr),
            )
            found.append((replica, proposed))
        return found

    async def _ask(self, replicas: Iterable[Replica]) -> None:
        proposals = self._proposals(replicas)
        while proposals:
            answers = await self._insist(proposals)
            again = []
            for (replica, proposed), answer in zip(proposals, answers, strict=True):
                if not self._settle(replica, proposed, answer):
                    again.append((replica, proposed))
            proposals = again
            if proposals:
                await asyncio.sleep(RETRY_SECONDS)

    async def _insist(
        self, proposals: list[tuple[Replica, ProposedIsr]]
    ) -> tuple[PartitionState, ...]:
        while True:
            node = self._node.image.nodes.get(self._node.node_id)
            request = AlterPartition(
                node_id=self._node.node_id,
                broker_epoch=-1 if node is None else node.epoch,
                partitions=tuple(proposed for _, proposed in proposals),
            )
            try:
                return await self._controller.change(request, timeout_ms=0)
            except (NotController, ConnectionFailed, StaleBrokerEpoch) as error:
                logger.info("the in-sync replicas cannot be changed now: %s", error)
            except KafkaError as error:
                logger.warning("the in-sync replicas cannot be changed: %s", error)
            except Exception:
                # A proposal counts until it is answered, so it is never given up.
                logger.exception("the in-sync replicas cannot be changed")
            await asyncio.sleep(RETRY_SECONDS)

    def _settle(self, replica: Replica, proposed: ProposedIsr, answer: PartitionState) -> bool:
        """Whether that is the end of it; False: ask the same again."""
        where = f"{replica.topic}-{replica.partition}"
        verdict = verdict_on(replica.leader, proposed, answer)
        if answer.outcome != DONE:
            logger.info("%s: %s", where, answer.outcome.message)
        if verdict is Verdict.ADOPT:
            assert answer.partition is not None
            logger.info("%s: in sync are %s", where, answer.partition.isr)
            replica.on_isr(answer.partition.isr, answer.partition.partition_epoch)
        elif verdict is Verdict.GO_BACK:
            replica.on_isr_refused()
        return verdict is not Verdict.ASK_AGAIN

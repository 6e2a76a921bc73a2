"""What a node does before it goes for good: others get its replicas, and its vote on the metadata.

Each actor of the machine asks for the same, again and again, as each of them is told by Ray alone;
the controller begins what is not under way yet. Whoever asks is not the judge: what moves where is
decided by cluster/control/rebalance, who may vote by cluster/quorum/voter_change.
"""

from __future__ import annotations

import asyncio
import logging

from ...cluster.control.reassignment import ListPartitionReassignments
from ...cluster.control.rebalance import Rebalance, nodes_on, replicas_on
from ...cluster.quorum.voter_change import VoterChange, successor
from ...controller.controller_calls import Change, ChangeVoter
from ...handlers.ports.context import Controller
from ...protocol.errors import KafkaError, NotController
from ..node import Node

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
VOTER_MS = 10_000
"""For a new voter to have what is committed."""


class Departure:
    """Of a machine, seen from one of its nodes."""

    def __init__(self, node: Node, controller: Controller, machine: str) -> None:
        self._node = node
        self._controller = controller
        self._machine = machine

    async def move_replicas(self) -> None:
        """Until the machine has none, or none that another one could take."""
        while left := replicas_on(self._node.image, self._machine):
            try:
                is_moving = await self._move()
            except NotController as error:
                logger.info("%s; the replicas of this machine are moved then", error)
            else:
                if not is_moving:
                    logger.warning("%d replicas stay here: no other machine can take them", left)
                    return
            await asyncio.sleep(RETRY_SECONDS)

    async def _move(self) -> bool:
        """Begin with what has not begun; whether anything of this machine moves."""
        leave = Rebalance(leave=self._machine)
        if await self._controller.ask(Change(leave, timeout_ms=0)):
            return True
        ongoing = ListPartitionReassignments(topics=None)
        mine = nodes_on(self._node.image, self._machine)
        moving = await self._controller.ask(Change(ongoing, timeout_ms=0))
        return any(mine & {*each.partition.replicas} for each in moving)

    async def pass_vote_on(self) -> None:
        """Another broker becomes a voter instead of this machine's, if there is one for it.

        Tried until it is done: without its only voter a cluster knows nothing any more.
        """
        change = successor(self._node.image, self._machine)
        if change is None:
            return
        newcomer, voter = change
        for is_addition, node_id in ((True, newcomer), (False, voter)):
            asked = VoterChange(is_addition=is_addition, node_id=node_id, is_repeated=True)
            while not await self._change_voter(asked):
                await asyncio.sleep(RETRY_SECONDS)
        logger.info("node %d votes on the metadata instead of node %d", newcomer, voter)

    async def _change_voter(self, change: VoterChange) -> bool:
        """Whether it is so now, by this try or an earlier one."""
        try:
            await self._controller.ask(ChangeVoter(change, VOTER_MS))
        except KafkaError as error:
            logger.info("this machine's copy of the metadata still counts: %s", error)
            return False
        return True

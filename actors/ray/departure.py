"""Departure of a machine for good: others get its replicas, and its vote on the metadata.

Each actor of the machine asks for the same, again and again, as each of them is told by Ray alone;
the controller begins what is not in progress yet. The actors only ask: what moves where is
decided by cluster/control/rebalance, and who may vote by cluster/quorum/voter_change.
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
"""Milliseconds for a new voter to catch up with what is committed."""


class Departure:
    """Departure of a machine, as one of its nodes carries it out."""

    def __init__(self, node: Node, controller: Controller, machine: str) -> None:
        self._node = node
        self._controller = controller
        self._machine = machine

    async def move_replicas(self) -> None:
        """Wait until the machine has no replicas, or only some that no other machine can take."""
        while left := replicas_on(self._node.image, self._machine):
            try:
                is_moving = await self._move()
            except NotController as error:
                logger.info("moving the replicas of this machine waits for a controller: %s", error)
            else:
                if not is_moving:
                    logger.warning(
                        "%d replicas not moved: no eligible node on another machine", left
                    )
                    return
            await asyncio.sleep(RETRY_SECONDS)

    async def _move(self) -> bool:
        """Begin moves that have not begun; returns whether any replica here is moving."""
        leave = Rebalance(leave=self._machine)
        if await self._controller.ask(Change(leave, timeout_ms=0)):
            return True
        ongoing = ListPartitionReassignments(topics=None)
        mine = nodes_on(self._node.image, self._machine)
        moving = await self._controller.ask(Change(ongoing, timeout_ms=0))
        return any(mine & {*each.partition.replicas} for each in moving)

    async def pass_vote_on(self) -> None:
        """Replace this machine's voter by another broker, if there is one for it.

        Retried until it is done: a cluster that loses its only voter loses its metadata.
        """
        change = successor(self._node.image, self._machine)
        if change is None:
            return
        newcomer, voter = change
        for is_addition, node_id in ((True, newcomer), (False, voter)):
            asked = VoterChange(is_addition=is_addition, node_id=node_id, is_repeated=True)
            while not await self._change_voter(asked):
                await asyncio.sleep(RETRY_SECONDS)
        logger.info("node %d is now a metadata voter instead of node %d", newcomer, voter)

    async def _change_voter(self, change: VoterChange) -> bool:
        """Try a change of voters; returns whether it is in force, by this try or an earlier one."""
        try:
            await self._controller.ask(ChangeVoter(change, VOTER_MS))
        except KafkaError as error:
            logger.info(
                "the metadata voter of this machine is not replaced yet, retrying: %s", error
            )
            return False
        return True

"""Common part of AddRaftVoter and RemoveRaftVoter: checks the cluster id, finds the directory."""

from __future__ import annotations

from uuid import UUID

from ...cluster.quorum.voter_change import VoterChange
from ...controller.controller_calls import ChangeVoter
from ...protocol.errors import InconsistentClusterId
from ...protocol.schema import ZERO_UUID
from ..ports.context import RequestContext


async def change_voter(
    context: RequestContext,
    *,
    is_addition: bool,
    cluster_id: str | None,
    voter_id: int,
    directory_id: UUID,
    timeout_ms: int,
) -> None:
    """Change the voters; returns when the change is committed.

    `directory_id` zero: the current directory of the broker.

    Raises:
        InconsistentClusterId: the request is for another cluster.
        KafkaError: see controller_calls.ChangeVoter.
    """
    node = context.node
    if cluster_id not in (None, node.image.cluster_id):
        raise InconsistentClusterId(
            f"the request is for cluster {cluster_id}, but this is {node.image.cluster_id}"
        )
    change = VoterChange(
        is_addition=is_addition,
        node_id=voter_id,
        directory_id="" if directory_id == ZERO_UUID else str(directory_id),
    )
    await node.controller.ask(ChangeVoter(change, timeout_ms))

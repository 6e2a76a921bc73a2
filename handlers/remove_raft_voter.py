"""RemoveRaftVoter (API key 81, KIP-853): one directory less that votes on the metadata.

A voter whose disk was replaced is no broker's any more: its directory alone says who it is.
"""

from __future__ import annotations

from ..cluster.voter_change import VoterChange
from ..protocol.errors import InconsistentClusterId, KafkaError
from ..protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from ..protocol.schema import ZERO_UUID
from .context import RequestContext

TIMEOUT_MS = 5_000


async def handle(
    request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    node = context.node
    try:
        if request.cluster_id not in (None, node.image.cluster_id):
            raise InconsistentClusterId(f"this is cluster {node.image.cluster_id}")
        change = VoterChange(
            is_addition=False,
            node_id=request.voter_id,
            directory_id=(
                "" if request.voter_directory_id == ZERO_UUID else str(request.voter_directory_id)
            ),
        )
        await node.controller.change_voter(change, timeout_ms=TIMEOUT_MS)
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
    return RemoveRaftVoterResponse(error_message=None)

"""AddRaftVoter (API key 80, KIP-853): one more directory that votes on the metadata.

It gets the metadata log first, and counts when it has it; REQUEST_TIMED_OUT if that takes too long.
Unlike Kafka: the voter's addresses in the request say nothing, as a broker is known by the address
that it registered with; and the answer comes when the change is committed.
"""

from __future__ import annotations

from ..cluster.voter_change import VoterChange
from ..protocol.errors import InconsistentClusterId, KafkaError
from ..protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ..protocol.schema import ZERO_UUID
from .context import RequestContext

MOST_MS = 60_000


async def handle(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    node = context.node
    try:
        if request.cluster_id not in (None, node.image.cluster_id):
            raise InconsistentClusterId(f"this is cluster {node.image.cluster_id}")
        change = VoterChange(
            is_addition=True,
            node_id=request.voter_id,
            directory_id=(
                "" if request.voter_directory_id == ZERO_UUID else str(request.voter_directory_id)
            ),
        )
        await node.controller.change_voter(change, timeout_ms=min(request.timeout_ms, MOST_MS))
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=str(error))
    return AddRaftVoterResponse(error_message=None)

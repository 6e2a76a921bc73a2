"""AddRaftVoter (API key 80, KIP-853): add a broker's directory to the voters of the metadata log.

It copies the committed log before it becomes a voter; REQUEST_TIMED_OUT if that takes too long.
Unlike Kafka: the voter's addresses in the request are ignored, as a broker is known by the address
that it registered with; and the response is sent when the change is committed.
"""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ..authorization.cluster_access import ADD_RAFT_VOTER
from ..ports.api import api
from ..ports.context import RequestContext
from .voter_request import change_voter

MOST_MS = 60_000


async def handle(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    try:
        await change_voter(
            context,
            is_addition=True,
            cluster_id=request.cluster_id,
            voter_id=request.voter_id,
            directory_id=request.voter_directory_id,
            timeout_ms=min(request.timeout_ms, MOST_MS),
        )
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=str(error))
    return AddRaftVoterResponse(error_message=None)


API = api(0, 0, AddRaftVoterRequest, handle, access=ADD_RAFT_VOTER)

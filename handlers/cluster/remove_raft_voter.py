"""RemoveRaftVoter (API key 81, KIP-853): remove a directory from the voters of the metadata log.

A voter whose disk was replaced belongs to no broker: its directory id alone identifies it.
"""

from __future__ import annotations

from ...protocol.errors import KafkaError
from ...protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from ..authorization.cluster_access import REMOVE_RAFT_VOTER
from ..ports.api import api
from ..ports.context import RequestContext
from .voter_request import change_voter

TIMEOUT_MS = 5_000


async def handle(
    request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    try:
        await change_voter(
            context,
            is_addition=False,
            cluster_id=request.cluster_id,
            voter_id=request.voter_id,
            directory_id=request.voter_directory_id,
            timeout_ms=TIMEOUT_MS,
        )
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
    return RemoveRaftVoterResponse(error_message=None)


API = api(0, 0, RemoveRaftVoterRequest, handle, access=REMOVE_RAFT_VOTER)

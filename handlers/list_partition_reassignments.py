"""ListPartitionReassignments (API key 46): moves of replicas under way. There are none yet.

Unknown partitions are left out of the answer, as Apache Kafka does.
"""

from __future__ import annotations

from ..protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from .context import RequestContext


def handle(
    _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)

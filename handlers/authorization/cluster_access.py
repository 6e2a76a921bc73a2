"""Rights to see and change the cluster: replicas, voters, features, ACLs.

Source: ControllerApis.scala, AclApis.scala, and getErrorResponse of each request for its error.
"""

from __future__ import annotations

from typing import Any

from ...protocol.error_code import ErrorCode
from ...protocol.messages.add_raft_voter import AddRaftVoterResponse
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ...protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ...protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ...protocol.messages.describe_acls import DescribeAclsResponse
from ...protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from ...protocol.messages.describe_quorum import DescribeQuorumResponse
from ...protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ...protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
)
from ...protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from ...protocol.messages.unregister_broker import UnregisterBrokerResponse
from ...protocol.messages.update_features import UpdateFeaturesResponse
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Need, Rights
from ..ports.context import RequestContext
from .guarding import MESSAGES, Handle, on_cluster, then, with_code, with_message
from .topic_access import cluster_operations

ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE


def _refuse_moves(
    request: AlterReplicaLogDirsRequest, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _refuse_elections(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=code, error_message=MESSAGES[code]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _refuse_reassignments(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=MESSAGES[code],
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=MESSAGES[code],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refuse_new_acls(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    refusal = AclCreationResult(error_code=code, error_message=MESSAGES[code])
    return CreateAclsResponse(results=[refusal] * len(request.creations))


def _refuse_acl_deletion(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    refusal = DeleteAclsFilterResult(error_code=code, error_message=MESSAGES[code])
    return DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


ADD_RAFT_VOTER = on_cluster(ALTER, with_message(AddRaftVoterResponse))
REMOVE_RAFT_VOTER = on_cluster(ALTER, with_message(RemoveRaftVoterResponse))
UNREGISTER_BROKER = on_cluster(ALTER, with_message(UnregisterBrokerResponse))
UPDATE_FEATURES = on_cluster(ALTER, with_message(UpdateFeaturesResponse))
ALTER_REPLICA_LOG_DIRS = on_cluster(ALTER, _refuse_moves)
ELECT_LEADERS = on_cluster(ALTER, _refuse_elections)
ALTER_PARTITION_REASSIGNMENTS = on_cluster(ALTER, _refuse_reassignments)
LIST_PARTITION_REASSIGNMENTS = on_cluster(
    DESCRIBE, with_message(ListPartitionReassignmentsResponse)
)
DESCRIBE_LOG_DIRS = on_cluster(DESCRIBE, with_code(DescribeLogDirsResponse))
DESCRIBE_QUORUM = on_cluster(DESCRIBE, with_message(DescribeQuorumResponse))
DESCRIBE_ACLS = on_cluster(DESCRIBE, with_message(DescribeAclsResponse))
CREATE_ACLS = on_cluster(ALTER, _refuse_new_acls)
DELETE_ACLS = on_cluster(ALTER, _refuse_acl_deletion)


def _guard_description(
    request: DescribeClusterRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    def finish(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = cluster_operations(rights)
        return response

    return then(handle(request, context), finish)


DESCRIBE_CLUSTER = Access(
    (Need(DESCRIBE, ResourceType.CLUSTER, what="for the operations on it"),), _guard_description
)

"""Every API this broker speaks: its versions, message classes and handler, in one table.

ApiVersions is derived from it, so a version is advertised exactly when it is served. Ranges follow
Apache Kafka 4.1's; a lower bound is never above Kafka's, because librdkafka, aiokafka and kafkajs
read their features from the lower bounds. How to add an API: docs/adding-an-api.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ...protocol.messages import (
    add_raft_voter as add_raft_voter_messages,
    alter_configs as alter_configs_messages,
    alter_partition_reassignments as alter_partition_reassignments_messages,
    alter_replica_log_dirs as alter_replica_log_dirs_messages,
    api_versions as api_versions_messages,
    create_acls as create_acls_messages,
    create_partitions as create_partitions_messages,
    create_topics as create_topics_messages,
    delete_acls as delete_acls_messages,
    delete_groups as delete_groups_messages,
    delete_records as delete_records_messages,
    delete_topics as delete_topics_messages,
    describe_acls as describe_acls_messages,
    describe_cluster as describe_cluster_messages,
    describe_configs as describe_configs_messages,
    describe_groups as describe_groups_messages,
    describe_log_dirs as describe_log_dirs_messages,
    describe_producers as describe_producers_messages,
    describe_quorum as describe_quorum_messages,
    describe_topic_partitions as describe_topic_partitions_messages,
    elect_leaders as elect_leaders_messages,
    fetch as fetch_messages,
    find_coordinator as find_coordinator_messages,
    heartbeat as heartbeat_messages,
    incremental_alter_configs as incremental_alter_configs_messages,
    init_producer_id as init_producer_id_messages,
    join_group as join_group_messages,
    leave_group as leave_group_messages,
    list_config_resources as list_config_resources_messages,
    list_groups as list_groups_messages,
    list_offsets as list_offsets_messages,
    list_partition_reassignments as list_partition_reassignments_messages,
    metadata as metadata_messages,
    offset_commit as offset_commit_messages,
    offset_delete as offset_delete_messages,
    offset_fetch as offset_fetch_messages,
    offset_for_leader_epoch as offset_for_leader_epoch_messages,
    produce as produce_messages,
    remove_raft_voter as remove_raft_voter_messages,
    sasl_authenticate as sasl_authenticate_messages,
    sasl_handshake as sasl_handshake_messages,
    sync_group as sync_group_messages,
    unregister_broker as unregister_broker_messages,
    update_features as update_features_messages,
)
from ...protocol.schema import Message
from ..cluster import (
    add_raft_voter,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
)
from ..configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from ..groups import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from ..ports.context import RequestContext
from ..records import (
    delete_records,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from ..security import (
    create_acls,
    delete_acls,
    describe_acls,
    sasl_authenticate,
    sasl_handshake,
)
from ..topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    metadata,
)

Handler = Callable[[Any, RequestContext], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Api:
    """One row. `lowest` and `highest` are advertised and served."""

    key: int
    name: str
    lowest: int
    highest: int
    first_flexible: int
    request: type[Message]
    handle: Handler


def _row(lowest: int, highest: int, request: type[Message], handle: Handler) -> Api:
    name = request.__name__.removesuffix("Request")
    return Api(request.API_KEY, name, lowest, highest, request.FLEXIBLE, request, handle)


def _respond_to_api_versions(request: Any, context: RequestContext) -> Any:
    return api_versions.respond(request, context, ADVERTISED)


_ROWS = [
    _row(0, 13, produce_messages.ProduceRequest, produce.handle),
    _row(0, 18, fetch_messages.FetchRequest, fetch.handle),
    _row(0, 10, list_offsets_messages.ListOffsetsRequest, list_offsets.handle),
    _row(0, 13, metadata_messages.MetadataRequest, metadata.handle),
    _row(1, 9, offset_commit_messages.OffsetCommitRequest, offset_commit.handle),
    _row(1, 9, offset_fetch_messages.OffsetFetchRequest, offset_fetch.handle),
    _row(0, 6, find_coordinator_messages.FindCoordinatorRequest, find_coordinator.handle),
    _row(0, 9, join_group_messages.JoinGroupRequest, join_group.handle),
    _row(0, 4, heartbeat_messages.HeartbeatRequest, heartbeat.handle),
    _row(0, 5, leave_group_messages.LeaveGroupRequest, leave_group.handle),
    _row(0, 5, sync_group_messages.SyncGroupRequest, sync_group.handle),
    _row(0, 6, describe_groups_messages.DescribeGroupsRequest, describe_groups.handle),
    _row(0, 5, list_groups_messages.ListGroupsRequest, list_groups.handle),
    _row(0, 1, sasl_handshake_messages.SaslHandshakeRequest, sasl_handshake.handle),
    _row(0, 4, api_versions_messages.ApiVersionsRequest, _respond_to_api_versions),
    _row(2, 7, create_topics_messages.CreateTopicsRequest, create_topics.handle),
    _row(1, 6, delete_topics_messages.DeleteTopicsRequest, delete_topics.handle),
    _row(0, 5, init_producer_id_messages.InitProducerIdRequest, init_producer_id.handle),
    _row(
        2,
        4,
        offset_for_leader_epoch_messages.OffsetForLeaderEpochRequest,
        offset_for_leader_epoch.handle,
    ),
    _row(1, 3, describe_acls_messages.DescribeAclsRequest, describe_acls.handle),
    _row(1, 3, create_acls_messages.CreateAclsRequest, create_acls.handle),
    _row(1, 3, delete_acls_messages.DeleteAclsRequest, delete_acls.handle),
    _row(1, 4, describe_configs_messages.DescribeConfigsRequest, describe_configs.handle),
    _row(
        1,
        2,
        alter_replica_log_dirs_messages.AlterReplicaLogDirsRequest,
        alter_replica_log_dirs.handle,
    ),
    _row(1, 4, describe_log_dirs_messages.DescribeLogDirsRequest, describe_log_dirs.handle),
    _row(0, 2, sasl_authenticate_messages.SaslAuthenticateRequest, sasl_authenticate.handle),
    _row(0, 2, delete_groups_messages.DeleteGroupsRequest, delete_groups.handle),
    _row(0, 0, offset_delete_messages.OffsetDeleteRequest, offset_delete.handle),
    _row(0, 0, describe_producers_messages.DescribeProducersRequest, describe_producers.handle),
    _row(0, 2, describe_cluster_messages.DescribeClusterRequest, describe_cluster.handle),
    _row(0, 2, alter_configs_messages.AlterConfigsRequest, alter_configs.handle),
    _row(
        0,
        1,
        incremental_alter_configs_messages.IncrementalAlterConfigsRequest,
        incremental_alter_configs.handle,
    ),
    _row(
        0,
        1,
        list_config_resources_messages.ListConfigResourcesRequest,
        list_config_resources.handle,
    ),
    _row(0, 2, delete_records_messages.DeleteRecordsRequest, delete_records.handle),
    _row(
        0,
        0,
        describe_topic_partitions_messages.DescribeTopicPartitionsRequest,
        describe_topic_partitions.handle,
    ),
    _row(0, 3, create_partitions_messages.CreatePartitionsRequest, create_partitions.handle),
    _row(0, 2, elect_leaders_messages.ElectLeadersRequest, elect_leaders.handle),
    _row(
        0,
        1,
        alter_partition_reassignments_messages.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.handle,
    ),
    _row(
        0,
        0,
        list_partition_reassignments_messages.ListPartitionReassignmentsRequest,
        list_partition_reassignments.handle,
    ),
    _row(0, 2, describe_quorum_messages.DescribeQuorumRequest, describe_quorum.handle),
    _row(0, 2, update_features_messages.UpdateFeaturesRequest, update_features.handle),
    _row(0, 0, unregister_broker_messages.UnregisterBrokerRequest, unregister_broker.handle),
    _row(0, 0, add_raft_voter_messages.AddRaftVoterRequest, add_raft_voter.handle),
    _row(0, 0, remove_raft_voter_messages.RemoveRaftVoterRequest, remove_raft_voter.handle),
]

APIS: dict[int, Api] = {api.key: api for api in sorted(_ROWS, key=lambda api: api.key)}
ADVERTISED = tuple((api.key, api.lowest, api.highest) for api in APIS.values())

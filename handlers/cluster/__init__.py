"""APIs about the cluster: ApiVersions, nodes, voters, reassignments, elections, log dirs.

api_versions, update_features               what this broker speaks; the levels of features
describe_cluster, unregister_broker         the nodes; one that will not come back
alter_partition_reassignments               other replicas for partitions
list_partition_reassignments                replicas that come and go at this moment
elect_leaders                               partitions back to their first replica, or to any
describe_log_dirs, alter_replica_log_dirs   log directories; replicas that move between them
describe_quorum                             who holds the metadata log, and how far
add_raft_voter, remove_raft_voter           one directory more, or less, that votes on the metadata
voter_request                               what these two share
"""

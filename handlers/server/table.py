"""All APIs that this broker serves, by API key.

Each API is declared in its handler's file. ApiVersions is derived from this table, so a version
is advertised exactly when it is served.
"""

from __future__ import annotations

from typing import Final

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
    txn_offset_commit,
)
from ..ports.api import Api
from ..quotas import alter_client_quotas, describe_client_quotas
from ..records import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from ..security import (
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
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
from ..transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    txn_offset_commit,
    offset_for_leader_epoch,
    write_txn_markers,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_partitions,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_user_scram_credentials,
    alter_user_scram_credentials,
    describe_client_quotas,
    alter_client_quotas,
    describe_quorum,
    update_features,
    describe_cluster,
    describe_producers,
    unregister_broker,
    list_config_resources,
    describe_topic_partitions,
    describe_transactions,
    list_transactions,
    add_raft_voter,
    remove_raft_voter,
)


def _advertised() -> tuple[tuple[int, int, int], ...]:
    return ADVERTISED


_ALL_APIS: Final = [*(module.API for module in _MODULES), api_versions.api_of(_advertised)]
APIS: dict[int, Api] = {api.key: api for api in sorted(_ALL_APIS, key=lambda api: api.key)}
ADVERTISED: Final = tuple((api.key, api.lowest, api.highest) for api in APIS.values())
"""Key, lowest and highest version of each API, for ApiVersions."""

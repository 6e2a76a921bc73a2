"""One sensible request of every API, at any of its versions: what the wire and hostile tests send.

A new API needs one entry in `REQUESTS`: a function of (sample, version) that fills in what the
broker of the sample has. Fields that a version lacks may be filled; they are not written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any
from uuid import UUID

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from bradbury.handlers.server.table import APIS
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from bradbury.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bradbury.protocol.records.records import encode_records
from bradbury.protocol.schema import ZERO_UUID, Message
from tests.support.wire.raw_client import RawClient
from tests.support.wire.sample_user_requests import USER_REQUESTS

NOW = 1_700_000_000_000
SAMPLE_ID = UUID(int=7)
SUBSCRIPTION = bytes.fromhex("000000000001000174ffffffff")


@dataclass
class Sample:
    """A topic with two partitions, a group with one member, and a transactional id, on a broker."""

    topic: str = "sample"
    topic_id: UUID = SAMPLE_ID
    group: str = "sample-group"
    member: str = "member-1"
    generation: int = 1
    log_dir: str = "/nowhere"
    transactional_id: str = "sample-id"
    producer_id: int = 1
    producer_epoch: int = 0
    numbers: "count[int]" = field(default_factory=count)

    @classmethod
    def of(cls, servers: str, topic: str) -> "Sample":
        sample = cls(topic=topic, group=f"group-of-{topic}", transactional_id=f"id-of-{topic}")
        with RawClient(servers) as client:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            sample.topic_id = client.call(asked, MetadataResponse, 12).topics[0].topic_id
            client.find_coordinator(sample.group)
            joined = client.call(join(sample.group), JoinGroupResponse, 3)
            assert joined.error_code == 0, joined
            sample.member, sample.generation = joined.member_id, joined.generation_id
            given = [SyncGroupRequestAssignment(joined.member_id, b"share")]
            synced = SyncGroupRequest(
                sample.group, joined.generation_id, joined.member_id, assignments=given
            )
            assert client.call(synced, SyncGroupResponse, 3).error_code == 0
            begun = client.begin_transactions(sample.transactional_id)
            sample.producer_id, sample.producer_epoch = begun.producer_id, begun.producer_epoch
        return sample


def join(group: str, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def message_set(magic: int, value: bytes) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 20)
    builder.append(0, timestamp=None if magic == 0 else NOW, key=None, value=value)
    return bytes(builder.build())


def records(version: int) -> bytes:
    if version < 3:
        return message_set(1 if version == 2 else 0, b"value")
    return bytes(encode_records([(NOW, b"key", b"value", ())]))


def structs(module: str) -> Any:
    return import_module(f"bradbury.protocol.messages.{module}")


def make(module: str, name: str, /, **values: Any) -> Any:
    return getattr(structs(module), name)(**values)


def _produce(s: Sample, version: int) -> Message:
    part = make("produce", "PartitionProduceData", index=0, records=records(version))
    topic = make(
        "produce", "TopicProduceData", name=s.topic, topic_id=s.topic_id, partition_data=[part]
    )
    return make("produce", "ProduceRequest", acks=1, timeout_ms=5000, topic_data=[topic])


def _fetch(s: Sample, version: int) -> Message:
    parts = [
        make("fetch", "FetchPartition", partition=p, fetch_offset=0, partition_max_bytes=1 << 20)
        for p in (0, 1, 9)
    ]
    topic = make("fetch", "FetchTopic", topic=s.topic, topic_id=s.topic_id, partitions=parts)
    return make(
        "fetch", "FetchRequest", max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]
    )


def _list_offsets(s: Sample, version: int) -> Message:
    parts = [
        make("list_offsets", "ListOffsetsPartition", partition_index=p, timestamp=t)
        for p, t in ((0, -1), (1, -2), (9, -1))
    ]
    topic = make("list_offsets", "ListOffsetsTopic", name=s.topic, partitions=parts)
    return make("list_offsets", "ListOffsetsRequest", replica_id=-1, topics=[topic])


def _metadata(s: Sample, version: int) -> Message:
    topics = [MetadataRequestTopic(name=s.topic), MetadataRequestTopic(name="no such/topic")]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _offset_commit(s: Sample, version: int) -> Message:
    part = make(
        "offset_commit",
        "OffsetCommitRequestPartition",
        partition_index=0,
        committed_offset=3,
        committed_metadata="m",
    )
    topic = make(
        "offset_commit",
        "OffsetCommitRequestTopic",
        topic_id=s.topic_id,
        name=s.topic,
        partitions=[part],
    )
    return make(
        "offset_commit",
        "OffsetCommitRequest",
        group_id=s.group,
        generation_id_or_member_epoch=s.generation,
        member_id=s.member,
        topics=[topic],
    )


def _offset_fetch(s: Sample, version: int) -> Message:
    if version >= 8:
        topic = make(
            "offset_fetch",
            "OffsetFetchRequestTopics",
            topic_id=s.topic_id,
            name=s.topic,
            partition_indexes=[0, 1],
        )
        group = make("offset_fetch", "OffsetFetchRequestGroup", group_id=s.group, topics=[topic])
        return make("offset_fetch", "OffsetFetchRequest", groups=[group])
    topic = make("offset_fetch", "OffsetFetchRequestTopic", name=s.topic, partition_indexes=[0, 1])
    return make("offset_fetch", "OffsetFetchRequest", group_id=s.group, topics=[topic])


def _offset_delete(s: Sample, version: int) -> Message:
    part = make("offset_delete", "OffsetDeleteRequestPartition", partition_index=1)
    topic = make("offset_delete", "OffsetDeleteRequestTopic", name=s.topic, partitions=[part])
    return make("offset_delete", "OffsetDeleteRequest", group_id=s.group, topics=[topic])


def _join_group(s: Sample, version: int) -> Message:
    number = next(s.numbers)
    return join(f"{s.group}-{number}", f"instance-{number}" if version >= 5 else None)


def _leave_group(s: Sample, version: int) -> Message:
    group = f"{s.group}-nobody"
    identity = make("leave_group", "MemberIdentity", member_id="stranger")
    return make(
        "leave_group", "LeaveGroupRequest", group_id=group, member_id="m", members=[identity]
    )


def _create_topics(s: Sample, version: int) -> Message:
    topics = [
        make("create_topics", "CreatableTopic", name=name, num_partitions=1, replication_factor=1)
        for name in (f"{s.topic}-made-{next(s.numbers)}", s.topic)
    ]
    return make("create_topics", "CreateTopicsRequest", topics=topics, timeout_ms=5000)


def _delete_topics(s: Sample, version: int) -> Message:
    state = make("delete_topics", "DeleteTopicState", name="nowhere", topic_id=ZERO_UUID)
    return make(
        "delete_topics",
        "DeleteTopicsRequest",
        topics=[state],
        topic_names=["nowhere"],
        timeout_ms=1000,
    )


def _offset_for_leader_epoch(s: Sample, version: int) -> Message:
    part = make(
        "offset_for_leader_epoch",
        "OffsetForLeaderPartition",
        partition=0,
        current_leader_epoch=-1,
        leader_epoch=0,
    )
    topic = make(
        "offset_for_leader_epoch", "OffsetForLeaderTopic", topic=s.topic, partitions=[part]
    )
    return make(
        "offset_for_leader_epoch", "OffsetForLeaderEpochRequest", replica_id=-1, topics=[topic]
    )


def _describe_client_quotas(s: Sample, version: int) -> Message:
    parts = [
        make("describe_client_quotas", "ComponentData", entity_type="user", match="somebody"),
        make(
            "describe_client_quotas",
            "ComponentData",
            entity_type="client-id",
            match_type=2,
            match=None,
        ),
    ]
    return make("describe_client_quotas", "DescribeClientQuotasRequest", components=parts)


def _alter_client_quotas(s: Sample, version: int) -> Message:
    """Of a user that is not there, and far more than anybody uses."""
    parts = [
        make("alter_client_quotas", "EntityData", entity_type="user", entity_name="somebody-else")
    ]
    ops = [make("alter_client_quotas", "OpData", key="producer_byte_rate", value=2.0**60)]
    entry = make("alter_client_quotas", "EntryData", entity=parts, ops=ops)
    return make("alter_client_quotas", "AlterClientQuotasRequest", entries=[entry])


def _describe_configs(s: Sample, version: int) -> Message:
    resources = [
        make(
            "describe_configs",
            "DescribeConfigsResource",
            resource_type=kind,
            resource_name=name,
            configuration_keys=None,
        )
        for kind, name in ((2, s.topic), (4, ""), (2, "nowhere"))
    ]
    return make(
        "describe_configs",
        "DescribeConfigsRequest",
        resources=resources,
        include_synonyms=True,
        include_documentation=True,
    )


def _find_coordinator(s: Sample, version: int) -> Message:
    return make(
        "find_coordinator",
        "FindCoordinatorRequest",
        key=s.group,
        coordinator_keys=[s.group, "other"],
    )


def _delete_records(s: Sample, version: int) -> Message:
    part = make("delete_records", "DeleteRecordsPartition", partition_index=1, offset=0)
    topic = make("delete_records", "DeleteRecordsTopic", name=s.topic, partitions=[part])
    return make("delete_records", "DeleteRecordsRequest", topics=[topic], timeout_ms=1000)


def _configs(module: str, name: str, **options: Any) -> Callable[[Sample, int], Message]:
    def request(s: Sample, version: int) -> Message:
        config = make(module, "AlterableConfig", name="retention.ms", value="1000000", **options)
        resource = make(
            module,
            "AlterConfigsResource",
            resource_type=2,
            resource_name=s.topic,
            configs=[config],
        )
        return make(module, name, resources=[resource], validate_only=True)

    return request


def _describe_log_dirs(s: Sample, version: int) -> Message:
    topic = make("describe_log_dirs", "DescribableLogDirTopic", topic=s.topic, partitions=[0, 1])
    return make("describe_log_dirs", "DescribeLogDirsRequest", topics=[topic])


def _alter_replica_log_dirs(s: Sample, version: int) -> Message:
    topic = make("alter_replica_log_dirs", "AlterReplicaLogDirTopic", name=s.topic, partitions=[0])
    folder = make("alter_replica_log_dirs", "AlterReplicaLogDir", path=s.log_dir, topics=[topic])
    return make("alter_replica_log_dirs", "AlterReplicaLogDirsRequest", dirs=[folder])


def _create_partitions(s: Sample, version: int) -> Message:
    topic = make(
        "create_partitions", "CreatePartitionsTopic", name=s.topic, count=5, assignments=None
    )
    return make(
        "create_partitions",
        "CreatePartitionsRequest",
        topics=[topic],
        timeout_ms=1000,
        validate_only=True,
    )


def _elect_leaders(s: Sample, version: int) -> Message:
    wanted = make("elect_leaders", "TopicPartitions", topic=s.topic, partitions=[0, 9])
    return make("elect_leaders", "ElectLeadersRequest", topic_partitions=[wanted], timeout_ms=1000)


def _alter_partition_reassignments(s: Sample, version: int) -> Message:
    part = make(
        "alter_partition_reassignments", "ReassignablePartition", partition_index=0, replicas=None
    )
    topic = make(
        "alter_partition_reassignments", "ReassignableTopic", name=s.topic, partitions=[part]
    )
    return make(
        "alter_partition_reassignments",
        "AlterPartitionReassignmentsRequest",
        topics=[topic],
        timeout_ms=1000,
    )


def _describe_quorum(s: Sample, version: int) -> Message:
    part = make("describe_quorum", "PartitionData", partition_index=0)
    topics = [
        make("describe_quorum", "TopicData", topic_name=name, partitions=[part])
        for name in ("__cluster_metadata",)
    ]
    return make("describe_quorum", "DescribeQuorumRequest", topics=topics)


def _create_acls(s: Sample, version: int) -> Message:
    rule = make(
        "create_acls",
        "AclCreation",
        resource_type=2,
        resource_name=s.topic,
        principal="User:somebody",
        host="*",
        operation=3,
        permission_type=3,
    )
    return make("create_acls", "CreateAclsRequest", creations=[rule])


def _delete_acls(s: Sample, version: int) -> Message:
    one = make(
        "delete_acls",
        "DeleteAclsFilter",
        resource_type_filter=2,
        resource_name_filter=s.topic,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return make("delete_acls", "DeleteAclsRequest", filters=[one])


def add_partitions_to_txn(s: Sample, version: int, *indexes: int) -> Message:
    kind = "add_partitions_to_txn"
    topics = [make(kind, "AddPartitionsToTxnTopic", name=s.topic, partitions=list(indexes))]
    if version < 4:
        return make(
            kind,
            "AddPartitionsToTxnRequest",
            v3_and_below_transactional_id=s.transactional_id,
            v3_and_below_producer_id=s.producer_id,
            v3_and_below_producer_epoch=s.producer_epoch,
            v3_and_below_topics=topics,
        )
    transaction = make(
        kind,
        "AddPartitionsToTxnTransaction",
        transactional_id=s.transactional_id,
        producer_id=s.producer_id,
        producer_epoch=s.producer_epoch,
        topics=topics,
    )
    return make(kind, "AddPartitionsToTxnRequest", transactions=[transaction])


def of_producer(module: str, name: str, **rest: Any) -> Callable[[Sample, int], Message]:
    """A request of the sample's transactional producer."""

    def request(s: Sample, version: int) -> Message:
        return make(
            module,
            name,
            transactional_id=s.transactional_id,
            producer_id=s.producer_id,
            producer_epoch=s.producer_epoch,
            **{key: value(s) if callable(value) else value for key, value in rest.items()},
        )

    return request


def _txn_offset_commit(s: Sample, version: int) -> Message:
    kind = "txn_offset_commit"
    part = make(kind, "TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=3)
    return make(
        kind,
        "TxnOffsetCommitRequest",
        transactional_id="sample-transactions",
        group_id=s.group,
        producer_id=next(s.numbers),
        generation_id=s.generation,
        member_id=s.member,
        topics=[make(kind, "TxnOffsetCommitRequestTopic", name=s.topic, partitions=[part])],
    )


def _write_txn_markers(s: Sample, version: int) -> Message:
    kind = "write_txn_markers"
    topic = make(kind, "WritableTxnMarkerTopic", name=s.topic, partition_indexes=[0, 1])
    marker = make(
        kind,
        "WritableTxnMarker",
        producer_id=next(s.numbers),
        transaction_result=True,
        topics=[topic],
    )
    return make(kind, "WriteTxnMarkersRequest", markers=[marker])


def _update_features(s: Sample, version: int) -> Message:
    update = make("update_features", "FeatureUpdateKey", feature="no.such", max_version_level=1)
    return make("update_features", "UpdateFeaturesRequest", feature_updates=[update])


def _describe_producers(s: Sample, version: int) -> Message:
    topic = make("describe_producers", "TopicRequest", name=s.topic, partition_indexes=[0, 1])
    return make("describe_producers", "DescribeProducersRequest", topics=[topic])


def _describe_topic_partitions(s: Sample, version: int) -> Message:
    topic = make("describe_topic_partitions", "TopicRequest", name=s.topic)
    return make("describe_topic_partitions", "DescribeTopicPartitionsRequest", topics=[topic])


REQUESTS: dict[int, Callable[[Sample, int], Message]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: lambda s, v: make(
        "heartbeat",
        "HeartbeatRequest",
        group_id=s.group,
        generation_id=s.generation,
        member_id=s.member,
    ),
    13: _leave_group,
    14: lambda s, v: SyncGroupRequest(
        s.group,
        s.generation,
        s.member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(s.member, b"share")],
    ),
    15: lambda s, v: make("describe_groups", "DescribeGroupsRequest", groups=[s.group, "nobody"]),
    16: lambda s, v: make("list_groups", "ListGroupsRequest"),
    17: lambda s, v: make("sasl_handshake", "SaslHandshakeRequest", mechanism="PLAIN"),
    18: lambda s, v: make(
        "api_versions",
        "ApiVersionsRequest",
        client_software_name="sample",
        client_software_version="1.0",
    ),
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: lambda s, v: make("init_producer_id", "InitProducerIdRequest", transactional_id=None),
    23: _offset_for_leader_epoch,
    24: lambda s, v: add_partitions_to_txn(s, v, 0, 1),
    25: of_producer("add_offsets_to_txn", "AddOffsetsToTxnRequest", group_id=lambda s: s.group),
    26: of_producer("end_txn", "EndTxnRequest", committed=True),
    27: _write_txn_markers,
    28: _txn_offset_commit,
    29: lambda s, v: make(
        "describe_acls",
        "DescribeAclsRequest",
        resource_type_filter=2,
        resource_name_filter=s.topic,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    ),
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _configs("alter_configs", "AlterConfigsRequest"),
    34: _alter_replica_log_dirs,
    35: _describe_log_dirs,
    36: lambda s, v: make("sasl_authenticate", "SaslAuthenticateRequest", auth_bytes=b"\0a\0b"),
    37: _create_partitions,
    **USER_REQUESTS,
    42: lambda s, v: make("delete_groups", "DeleteGroupsRequest", groups_names=["nobody"]),
    43: _elect_leaders,
    44: _configs("incremental_alter_configs", "IncrementalAlterConfigsRequest", config_operation=0),
    45: _alter_partition_reassignments,
    46: lambda s, v: make("list_partition_reassignments", "ListPartitionReassignmentsRequest"),
    47: _offset_delete,
    48: _describe_client_quotas,
    49: _alter_client_quotas,
    55: _describe_quorum,
    57: _update_features,
    60: lambda s, v: make("describe_cluster", "DescribeClusterRequest"),
    61: _describe_producers,
    64: lambda s, v: make("unregister_broker", "UnregisterBrokerRequest", broker_id=77),
    65: lambda s, v: make(
        "describe_transactions",
        "DescribeTransactionsRequest",
        transactional_ids=[s.transactional_id],
    ),
    66: lambda s, v: make(
        "list_transactions", "ListTransactionsRequest", producer_id_filters=[s.producer_id]
    ),
    74: lambda s, v: make("list_config_resources", "ListConfigResourcesRequest"),
    75: _describe_topic_partitions,
    80: lambda s, v: make("add_raft_voter", "AddRaftVoterRequest", cluster_id=None, voter_id=77),
    81: lambda s, v: make(
        "remove_raft_voter", "RemoveRaftVoterRequest", cluster_id=None, voter_id=77
    ),
}


def sample_request(api_key: int, version: int, sample: Sample) -> Message:
    name = APIS[api_key].name if api_key in APIS else api_key
    assert api_key in REQUESTS, (
        f"{name} (API key {api_key}) is new: give it an entry in REQUESTS of "
        "tests/support/wire/sample_requests.py, a function that fills one request"
    )
    request = REQUESTS[api_key](sample, version)
    assert request.API_KEY == api_key
    return request


def every_version() -> list[tuple[int, int]]:
    """(API key, version) of all that the handler table serves."""
    return [
        (key, version)
        for key, api in APIS.items()
        for version in range(api.lowest, api.highest + 1)
    ]

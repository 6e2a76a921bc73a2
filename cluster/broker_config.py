"""Settings of a broker, under Kafka's own names.

One field per setting; see protocol/config_key for what a field holds. The settings that give topics
their defaults (log.retention.ms and so on) stand in storage/log_config, those of groups in
groups/group_config, those of transactions in transactions/transaction_config, those of listeners in
cluster/security/security_config; handlers/ports/server_config joins the five.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import (
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MINUTE_MS,
    Config,
    as_it_is,
    boolean,
    double,
    integer,
    long,
    ratio,
    string,
)
from ..protocol.errors import InvalidConfig
from .daily_hours import parse_daily_hours
from .security.authorizer import parse_super_users

ONE_LOOP = "each process serves its requests on one event loop"
NO_TIERED_STORAGE = "there is no tiered storage"
NO_SECURITY = "this part of Kafka's security is not supported; docs/security.md says what is"
QUOTAS_ARE_METADATA = "quotas are set while brokers run: bradbury quotas, kafka-configs.sh"
NO_METRICS_REPORTERS = "metrics are served to Prometheus; see bradbury.metrics.port"
CONTROLLER_IS_AN_ACTOR = "the controller is a Ray actor, not a quorum of servers"
METADATA_IS_IN_THE_FIRST = "the metadata is in the first data directory of each broker"
NEWEST_SNAPSHOT_ONLY = "a voter keeps the newest snapshot and the log behind it"
CLASSIC_GROUPS = "only the classic group protocol is supported: join, sync, heartbeat"
ONE_FETCHER = "a node asks each leader on one connection, for all partitions at once"


RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Rack-aware replica selector, the one of Kafka's own that is supported; others are Java classes
(KIP-392).
"""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NO_RATE_LIMIT = 1.7976931348623157e308
"""Default of rate settings, meaning no limit, as in Kafka: the largest double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(Config):
    """Settings that every node of a cluster is started with. Immutable; given to `bradbury up
    --config`.

    Defaults are Kafka 4.1's; `bradbury_` settings are ours. Units are in the names.
    """

    kind: ClassVar[str] = "broker"
    refused: ClassVar[Mapping[str, str]] = {
        "log.flush.scheduler.interval.ms": "due fsyncs are checked for continuously",
        "log.message.format.version": "Kafka 4 has removed it",
        "remote.*": NO_TIERED_STORAGE,
        "num.io.threads": ONE_LOOP,
        "num.network.threads": ONE_LOOP,
        "background.threads": ONE_LOOP,
        "queued.max.requests": "memory is bounded by queued.max.request.bytes",
        "num.replica.fetchers": ONE_FETCHER,
        "replica.fetch.min.bytes": "followers are answered as soon as there are records",
        "replica.fetch.backoff.ms": "a follower tries again after 50 ms, then 100, up to 1 s",
        "replica.socket.*": "followers use the system default",
        "leader.imbalance.per.broker.percentage": "every leader goes back to its first replica",
        "group.consumer.*": CLASSIC_GROUPS,
        "group.share.*": CLASSIC_GROUPS,
        "group.streams.*": CLASSIC_GROUPS,
        "group.coordinator.rebalance.protocols": CLASSIC_GROUPS,
        "group.coordinator.threads": ONE_LOOP,
        "group.coordinator.append.linger.ms": "records that arrive meanwhile share the next fsync",
        "broker.id": "node ids are given by the controller",
        "broker.rack": "the rack is the Ray node's label log-rack or zone, else its machine",
        "node.id": "node ids are given by the controller",
        "process.roles": CONTROLLER_IS_AN_ACTOR,
        "controller.*": CONTROLLER_IS_AN_ACTOR,
        "metadata.log.dir": METADATA_IS_IN_THE_FIRST,
        "metadata.log.segment.*": NEWEST_SNAPSHOT_ONLY,
        "metadata.max.retention.*": NEWEST_SNAPSHOT_ONLY,
        "metadata.max.idle.interval.ms": "an idle controller writes nothing",
        "ssl.*": NO_SECURITY,
        "sasl.*": NO_SECURITY,
        "security.*": NO_SECURITY,
        "config.providers*": "${file:path:key}, ${dir:path:file} and ${env:NAME} are always there",
        "quota.*": QUOTAS_ARE_METADATA,
        "client.quota.callback.class": "quotas are in the metadata; Java classes cannot be loaded",
        "metric.reporters": NO_METRICS_REPORTERS,
        "metrics.*": NO_METRICS_REPORTERS,
        "create.topic.policy.class.name": "policies are Java classes",
        "alter.config.policy.class.name": "policies are Java classes",
        "zookeeper.*": "there is no ZooKeeper",
    }

    num_partitions: int = integer(1, 1, "Default number of partitions of a new topic.")
    default_replication_factor: int = integer(1, 1, "Default replication factor of a new topic.")
    auto_create_topics_enable: bool = boolean(
        True, "Whether a client's metadata request for a missing topic may create it."
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Whether leadership returns to the preferred (first) replica once it is in sync."
    )
    leader_imbalance_check_interval_seconds: int = integer(
        300, 1, "Interval of checks for partitions that are not led by their preferred replica."
    )
    delegation_token_expiry_check_interval_ms: int = long(
        HOUR_MS, 1, "Time between two removals of expired delegation tokens."
    )
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    socket_request_max_bytes: int = integer(
        100 * 1024**2, 1, "Largest request in bytes; a larger one ends its connection."
    )
    connections_max_idle_ms: int = long(
        10 * MINUTE_MS, 1, "A connection without a request for this long is closed."
    )
    max_connections: int = integer(
        10_000,
        1,
        "Most connections of one node; further ones are closed at once. Kafka has no bound. Of one "
        "listener: `listener.name.client.max.connections`, else this value. Where there are "
        "several, the listener between nodes is under its own limit only: for a connection of it "
        "above that of the node the least recently used one of the others is closed.",
        dynamic=True,
    )
    max_connections_per_ip: int = integer(
        INT_MAX, 0, "Most connections of one node from one address.", dynamic=True
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Comma-separated `address:count`, for addresses whose limit is not the common one.",
        dynamic=True,
    )
    max_connection_creation_rate: int = integer(
        INT_MAX,
        1,
        "Most connections accepted per second and node; further ones wait in the backlog of "
        "the socket. Of one listener: `listener.name.client.max.connection.creation.rate`, else "
        "this value. Where there are several, the listener between nodes is under its own only.",
        dynamic=True,
    )
    queued_max_request_bytes: int = long(
        512 * 1024**2,
        1,
        "Memory of a node in bytes for requests being received and answers not yet sent; "
        "Kafka has no bound.",
    )
    bradbury_first_request_max_bytes: int = integer(
        512 * 1024, 1, "Largest first request of a connection in bytes, unless it is a Produce."
    )
    bradbury_request_receive_max_ms: int = integer(
        30_000,
        1,
        "Grace period for receiving a request. After it the connection is closed as slow unless "
        "16 KiB have arrived for each second.",
    )
    bradbury_metrics_port: int = integer(
        0,
        -1,
        "HTTP port for Prometheus; the first free one from here on. 0: any free port, -1: none.",
    )
    fetch_max_bytes: int = integer(
        55 * 1024**2, 1, "Maximum bytes of records in one Fetch response."
    )
    max_request_partition_size_limit: int = integer(
        2000, 1, "Maximum partitions in one DescribeTopicPartitions response."
    )
    broker_session_timeout_ms: int = integer(
        9_000,
        1,
        "Time without a heartbeat after which the controller fences a node, so that it leads "
        "no partition.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20 * 1024**2,
        1,
        "Bytes of the metadata log since the last snapshot after which a new one is taken.",
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        60 * MINUTE_MS,
        0,
        "Longest time before a change of the metadata is in a snapshot; 0: snapshots are taken by "
        "size only.",
    )
    log_retention_check_interval_ms: int = long(
        5 * MINUTE_MS, 1, "Time between two checks for segments to delete."
    )
    bradbury_log_deletion_policy: str = string(
        "",
        "A class, `package.module:Class`, that says which old segments go; empty: retention.ms and "
        "retention.bytes. See storage/log/retention.",
    )
    remote_log_storage_system_enable: bool = as_it_is(
        False, "Whether segments may move to another storage.", NO_TIERED_STORAGE
    )
    log_cleaner_enable: bool = boolean(
        True, "Whether logs with cleanup.policy=compact are compacted; without, they only grow."
    )
    log_cleaner_threads: int = integer(
        1, 1, "Logs of a node that are compacted at once.", dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * 1024**2,
        1024**2,
        "Bytes for the keys of a compaction, for all threads together; a key takes 24.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = integer(
        512 * 1024,
        0,
        "Bytes for reading and writing in compactions, for all threads together.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = ratio(
        0.9, "Largest part of the key buffer that a compaction fills.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        NO_RATE_LIMIT,
        1.0,
        "Bytes that all compactions together may read and write per second, on average.",
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = long(
        15_000, 0, "Pause before the next check for logs to compact.", dynamic=True
    )
    bradbury_log_scrub_enable: bool = boolean(
        True,
        "Whether segments are read whole in the background, so that a damaged one is found, "
        "and fetched again from another replica, before a consumer comes to it.",
        dynamic=True,
    )
    bradbury_log_scrub_interval_ms: int = long(
        7 * 24 * 60 * MINUTE_MS,
        1,
        "Time after which all segments are read again; segments that existed at the "
        "start are read first.",
        dynamic=True,
    )
    bradbury_log_scrub_io_max_bytes_per_second: float = double(
        10.0 * 1024**2,
        1.0,
        "Bytes that the scrub of a node reads per second, on average.",
        dynamic=True,
    )
    bradbury_log_scrub_hours: str = string(
        "",
        "Hours of the day (UTC) in which the scrub reads, such as 22-6; empty: all day. "
        "Damage found by readers, and files that are missing or too short, are examined at "
        "any hour.",
        dynamic=True,
    )
    replica_selector_class: str = string(
        "",
        f"Which consumers are sent to a follower: none, or with {RACK_AWARE} those whose "
        "client.rack is that of a replica in sync.",
    )
    replica_lag_time_max_ms: int = long(
        30_000,
        1,
        "A follower that has not caught up with its leader for this long is removed from the ISR.",
    )
    replica_fetch_max_bytes: int = integer(
        1024**2, 1, "The most bytes of one partition in one fetch of a follower."
    )
    replica_fetch_response_max_bytes: int = integer(
        10 * 1024**2, 1, "The most bytes of all partitions in one fetch of a follower."
    )
    replica_fetch_wait_max_ms: int = integer(
        500,
        1,
        "Longest time that a leader lets a follower's fetch wait when it has no new records.",
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        0,
        "The most bytes a second this node sends to followers that are out of sync, of replicas in "
        "leader.replication.throttled.replicas.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        0,
        "The most bytes a second this node receives as a follower that is out of sync, of replicas "
        "in follower.replication.throttled.replicas.",
        dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        0,
        "The most bytes a second that are copied between log directories of this node.",
        dynamic=True,
    )
    quota_window_num: int = integer(
        11,
        1,
        "Number of time slices over which the rates of clients are measured, for their quotas.",
    )
    quota_window_size_seconds: int = integer(1, 1, "Length of each of these time slices.")
    controller_quota_window_num: int = integer(
        11,
        1,
        "Number of time slices whose quota of created and deleted partitions a client may use"
        " at once.",
    )
    controller_quota_window_size_seconds: int = integer(
        1, 1, "Length of each of these time slices."
    )
    replication_quota_window_num: int = integer(
        11, 1, "Number of time slices over which the rates of throttled replicas are measured."
    )
    replication_quota_window_size_seconds: int = integer(
        1, 1, "Length of each of these time slices."
    )
    alter_log_dirs_replication_quota_window_num: int = integer(
        11, 1, "Number of time slices over which the rate of moves between directories is measured."
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        1, 1, "Length of each of these time slices."
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, 1, "Interval of writing high watermarks and recovery points to the disk."
    )
    bradbury_log_dir_min_free_bytes: int = long(
        -1,
        -1,
        "Free space of a disk below which producers are refused; -1: 1 GiB or 3 %, 0: none.",
    )
    offsets_topic_replication_factor: int = integer(
        3,
        1,
        "Replication factor of __consumer_offsets, at most the number of machines when the topic "
        "is created: at the first lookup of a group coordinator.",
    )
    offsets_topic_num_partitions: int = integer(
        50, 1, "Partitions of __consumer_offsets; fixed once the topic is there."
    )
    offsets_topic_segment_bytes: int = integer(
        100 * 1024**2,
        14,
        "Segment size of __consumer_offsets at its creation; only closed segments are compacted.",
    )
    producer_id_expiration_ms: int = integer(
        24 * 60 * MINUTE_MS, 1, "Time for which the sequence of an idle producer is remembered."
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1_000, 1, "Most fetch sessions of one node."
    )
    min_incremental_fetch_session_eviction_ms: int = long(
        2 * MINUTE_MS, 1, "Age below which a fetch session is not evicted for another one."
    )
    bradbury_partition_actors: int = integer(
        0,
        0,
        "Partition actors per node; 0: one for every four cores that Ray counts there, at least "
        "one and at most 14. Fewer than before: those that still have partitions stay.",
    )
    bradbury_auto_join: bool = boolean(
        True,
        "Whether a Ray node that joins, and that the cluster runs on, gets a broker "
        "automatically; otherwise run `bradbury up` again.",
    )
    bradbury_auto_rebalance: bool = boolean(
        False,
        "Whether partitions are moved to nodes that have none, as `bradbury rebalance` moves them, "
        "when nodes have joined.",
    )
    bradbury_auto_rebalance_bytes_per_second: int = long(
        50 * 1024**2,
        1,
        "The most bytes a second that each node sends, and receives, for such moves.",
    )
    bradbury_drain_moves_replicas: bool = boolean(
        False,
        "Whether a node that Ray drains is removed permanently: as many of its replicas as "
        "its deadline allows are moved to others first. Otherwise it only resigns its "
        "leaderships.",
    )

    authorizer_class_name: str = string(
        "",
        "Authorizer class: empty (no authorization), or Kafka's StandardAuthorizer, which "
        "uses the ACLs that CreateAcls makes. Others are Java classes.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = string(
        "",
        "Principals that may do everything, whatever the ACLs: `User:a;User:b`. Needs an "
        "authorizer.",
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether every client may use a resource without ACLs. Needs an authorizer."
    )

    def check_together(self) -> None:
        parse_super_users(self.super_users)
        if not self.authorizer_class_name:
            for name, is_set in (
                ("super.users", bool(self.super_users)),
                ("allow.everyone.if.no.acl.found", self.allow_everyone_if_no_acl_found),
            ):
                if is_set:
                    raise InvalidConfig(
                        f"{name} has no effect without authorizer.class.name; set that, too"
                    )
        try:
            parse_daily_hours(self.bradbury_log_scrub_hours)
        except ValueError as error:
            raise InvalidConfig(f"bradbury.log.scrub.hours: {error}") from None
        self.connection_limits_by_address()
        if self.replica_selector_class not in ("", RACK_AWARE):
            raise InvalidConfig(
                f"replica.selector.class can be {RACK_AWARE} or nothing: others are Java classes"
            )
        if self.replica_lag_time_max_ms <= self.replica_fetch_wait_max_ms:
            raise InvalidConfig(
                "replica.lag.time.max.ms must be greater than replica.fetch.wait.max.ms, or "
                "replicas would be out of sync whenever nothing is written"
            )

    def connection_limit_of(self, address: str) -> int:
        """Most connections from an address: its override, or max.connections.per.ip."""
        limit = self.max_connections_per_ip
        if self.max_connections_per_ip_overrides:
            limit = self.connection_limits_by_address().get(address, limit)
        return limit

    def connection_limits_by_address(self) -> dict[str, int]:
        """Connection limits by address (max.connections.per.ip.overrides). Raises InvalidConfig: a
        part is not `address:count`.
        """
        limits = {}
        for part in filter(None, self.max_connections_per_ip_overrides.split(",")):
            address, _, count = part.strip().rpartition(":")
            if not address or not count.isdecimal():
                raise InvalidConfig(
                    f"max.connections.per.ip.overrides: {part.strip()!r} is not address:count"
                )
            limits[address] = int(count)
        return limits

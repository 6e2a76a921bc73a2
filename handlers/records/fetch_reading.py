"""One pass of a Fetch over its partitions: records, offsets, errors. Nothing waits here.

Partitions are read in request order into one budget of max_bytes. Until something was found, the
first batch of a partition comes whole however large it is, or a consumer with a small buffer would
never get past it (KIP-74).

With replica.selector.class a consumer that sends its rack is redirected to a replica in that rack,
which serves records up to its own high watermark (KIP-392). A follower gets all records of the
leader's log, committed or not, and its fetch offset is how far it has replicated. If its log
diverges from the leader's, the response has the diverging epoch instead of records.

Source: ReplicaManager.readFromLog in apache/kafka.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ...cluster.partition.leader_state import FollowerFetch
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    KafkaError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from ...protocol.messages.fetch import FetchPartition, FetchRequest
from ...protocol.records.fetch_response import Endpoint, FetchedPartition, FetchedTopic
from ...storage.log.aborted_transactions import find_aborted
from ...storage.log.partition_log import LogSlice, PartitionLog
from ..authorization.record_access import may_fetch
from ..ports.context import RequestContext
from ..ports.fetch_session import FIRST_WITH_TOPIC_IDS
from ..ports.replica_port import LeaderReplica
from .fetch_down_conversion import FIRST_WITH_BATCHES, MOST_BYTES

CONSUMER: Final = -1
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
FIRST_WITH_RACK: Final = 11
FIRST_WITH_ZSTD: Final = 10
UNKNOWN_OR_UNAUTHORIZED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
STALE_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Reading:
    """One pass over the partitions of a request: the request's limits, and the results so far.

    size: bytes of records found so far, of `budget`.
    must_respond_now: an error was found, or more can be read right after this: waiting is useless.
    is_throttled: whether the replication throttle withholds the records of the partition read last.
    """

    __slots__ = (
        "budget",
        "context",
        "endpoints",
        "follower_id",
        "is_committed",
        "is_for_follower",
        "is_restricted",
        "is_throttled",
        "must_respond_now",
        "replicas",
        "request",
        "size",
        "topics",
    )

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self.request = request
        self.context = context
        self.follower_id = follower_id = max(request.replica_id, request.replica_state.replica_id)
        self.is_for_follower = is_for_follower = follower_id >= 0
        self.is_committed = request.isolation_level == READ_COMMITTED and not is_for_follower
        self.is_restricted = context.authorizer is not None
        budget = context.node.server_config.broker.fetch_max_bytes
        if context.api_version < FIRST_WITH_BATCHES:
            budget = min(budget, MOST_BYTES)
        self.budget = min(request.max_bytes, budget)
        self.topics: list[FetchedTopic] = []
        self.endpoints: list[Endpoint] = []
        self.begin()

    def begin(self) -> None:
        """Begin a pass: nothing is found yet."""
        self.size = 0
        self.must_respond_now = False
        self.is_throttled = False
        self.replicas: list[LeaderReplica] = []


def is_follower(request: FetchRequest) -> bool:
    return request.replica_state.replica_id >= 0 or request.replica_id >= 0


def may_skip_damage(request: FetchRequest) -> bool:
    """Whether a consumer sent the request; a replica must not take a gap for missing records."""
    return request.replica_id == request.replica_state.replica_id == CONSUMER


def topic_name(topic_id: UUID, context: RequestContext) -> str:
    found = context.node.image.topic_by_id(topic_id)
    return "" if found is None else found.name


def read_all(request: FetchRequest, context: RequestContext) -> Reading:
    reading = Reading(request, context)
    endpoints: dict[int, Endpoint] = {}
    for topic in request.topics:
        name = topic.topic
        if context.api_version >= FIRST_WITH_TOPIC_IDS:
            name = topic_name(topic.topic_id, context)
        partitions = []
        for wanted in topic.partitions:
            partition = read_partition(name, topic.topic_id, wanted, reading)
            partitions.append(partition)
            if partition.error_code in STALE_LEADER_ERRORS:
                add_endpoint(endpoints, partition, context)
        reading.topics.append(FetchedTopic(name, topic.topic_id, partitions))
    reading.endpoints = list(endpoints.values())
    return reading


def read_partition(
    topic: str, topic_id: UUID, wanted: FetchPartition, reading: Reading
) -> FetchedPartition:
    request, context = reading.request, reading.context
    for_follower = reading.is_for_follower
    partition, fetch_offset = wanted.partition, wanted.fetch_offset
    reading.is_throttled = False
    try:
        if not topic and context.api_version >= FIRST_WITH_TOPIC_IDS:
            raise UnknownTopicId(f"unknown topic id {topic_id}")
        if reading.is_restricted and not may_fetch(topic, context, is_follower=for_follower):
            raise TopicAuthorizationFailed(f"not authorized to read topic {topic}")
        replica = _replica(topic, wanted, reading)
        log = replica.log
        if context.api_version < FIRST_WITH_ZSTD and log.config.compression_type == "zstd":
            raise UnsupportedCompressionType("zstd needs Fetch version 10 or newer")
        diverging: tuple[int, int] | None = None
        if for_follower:
            diverging = _on_follower_fetch(replica, request, wanted, context)
        elif wanted.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(replica, wanted)
        if diverging is not None:
            reading.must_respond_now = True
            return FetchedPartition(partition, diverging=diverging)
        # The offsets are read before the records, so that a client never sees records beyond them.
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        log_start_offset = log.log_start_offset
        nearest = _nearest(replica, wanted, request, context) if request.rack_id else None
        if nearest is not None:
            reading.must_respond_now = True
            return FetchedPartition(
                partition,
                ErrorCode.NONE,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                preferred_read_replica=nearest,
            )
        if for_follower:
            reading.is_throttled = context.node.partitions.throttle.should_throttle(
                topic, partition, reading.follower_id
            )
            up_to = fetch_offset if reading.is_throttled else log.log_end_offset
        else:
            up_to = _consumer_end(
                high_watermark, last_stable_offset, committed=reading.is_committed
            )
        if for_follower or not may_skip_damage(request):
            log.damage.refuse_gap(fetch_offset)
        records = log.read(
            fetch_offset,
            max_bytes=max(0, min(wanted.partition_max_bytes, reading.budget - reading.size)),
            up_to=up_to,
            min_one_batch=reading.size == 0,
        )
        _, _, size, next_offset, is_limited = records
        if is_limited or 0 <= next_offset < up_to:
            reading.must_respond_now = True
        aborted: list[tuple[int, int]] | None = None
        if reading.is_committed:
            aborted = _aborted(log, fetch_offset, records)
    except KafkaError as error:
        reading.must_respond_now = True
        return FetchedPartition(
            partition,
            error.code,
            aborted=() if error.code in UNKNOWN_OR_UNAUTHORIZED else None,
            current_leader=_current_leader(topic, partition, error, context),
        )
    if for_follower:
        context.node.partitions.throttle.on_sent(topic, partition, size)
        if size:
            log.damage.on_sent(reading.follower_id, fetch_offset, next_offset)
    reading.size += size
    reading.replicas.append(replica)
    return FetchedPartition(
        partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, records
    )


def _aborted(log: PartitionLog, fetch_offset: int, records: LogSlice) -> list[tuple[int, int]]:
    """Aborted transactions whose records the consumer skips: (producer id, first offset)."""
    if not records.size:
        return []
    return [
        (transaction.producer_id, transaction.first_offset)
        for transaction in find_aborted(log, fetch_offset, records.next_offset)
    ]


def _consumer_end(high_watermark: int, last_stable_offset: int, *, committed: bool) -> int:
    """End offset, exclusive, of the records that a consumer may read."""
    return last_stable_offset if committed else high_watermark


def _replica(topic: str, wanted: FetchPartition, reading: Reading) -> LeaderReplica:
    """Leader replica here; or a follower, for a consumer whose version supports it (KIP-392)."""
    partitions = reading.context.node.partitions
    epoch = max(wanted.current_leader_epoch, -1)
    try:
        return partitions.leader_of(topic, wanted.partition, current_leader_epoch=epoch)
    except NotLeaderOrFollower:
        if reading.context.api_version < FIRST_WITH_RACK or reading.is_for_follower:
            raise
        replica = partitions.follower_of(topic, wanted.partition, current_leader_epoch=epoch)
        if replica is None:
            raise
        if wanted.fetch_offset > replica.log.log_end_offset:
            raise OffsetNotAvailable(
                f"offset {wanted.fetch_offset} is not replicated here yet"
            ) from None
        return replica


def _diverging_epoch(replica: LeaderReplica, wanted: FetchPartition) -> tuple[int, int] | None:
    """(epoch, end offset) where the log diverges from what was read (KIP-595), or None."""
    epoch, end_offset = replica.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        return None  # the epoch is unknown here
    is_diverging = epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset
    return (epoch, end_offset) if is_diverging else None


def _nearest(
    replica: LeaderReplica, wanted: FetchPartition, request: FetchRequest, context: RequestContext
) -> int | None:
    """Another node in the consumer's rack to read from, or None."""
    if not context.node.server_config.broker.replica_selector_class:
        return None
    nodes = context.node.image.nodes
    own = nodes.get(context.node.node_id)
    if is_follower(request) or own is None or own.rack == request.rack_id:
        return None
    for node_id in replica.in_sync_with(wanted.fetch_offset):
        node = nodes.get(node_id)
        if node is not None and not node.fenced and node.rack == request.rack_id:
            return node_id
    return None


def _on_follower_fetch(
    replica: LeaderReplica, request: FetchRequest, wanted: FetchPartition, context: RequestContext
) -> tuple[int, int] | None:
    """Note a follower's fetch; without epochs UnknownLeaderEpoch becomes NotLeaderOrFollower."""
    try:
        return replica.on_follower_fetch(_follower_fetch(request, wanted, context))
    except UnknownLeaderEpoch as error:
        if wanted.current_leader_epoch >= 0:
            raise
        raise NotLeaderOrFollower(str(error)) from None


def _follower_fetch(
    request: FetchRequest, wanted: FetchPartition, context: RequestContext
) -> FollowerFetch:
    """Make a FollowerFetch. Raises NotLeaderOrFollower if its broker epoch is old (KIP-903)."""
    state = request.replica_state
    node_id = max(request.replica_id, state.replica_id)
    _check_broker_epoch(node_id, state.replica_epoch, context)
    context.node.partitions.on_follower_fetch_from(node_id, context.peer)
    return FollowerFetch(
        node_id,
        state.replica_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
        wanted.log_start_offset,
    )


def _check_broker_epoch(node_id: int, broker_epoch: int, context: RequestContext) -> None:
    """Raise NotLeaderOrFollower for a request from before the follower's latest registration."""
    known = context.node.image.nodes.get(node_id)
    if known is not None and -1 < broker_epoch < known.epoch:
        raise NotLeaderOrFollower(
            f"node {node_id} is registered with broker epoch {known.epoch}, "
            f"and fetches with epoch {broker_epoch}"
        )


def _current_leader(
    topic: str, partition: int, error: KafkaError, context: RequestContext
) -> tuple[int, int] | None:
    if error.code not in STALE_LEADER_ERRORS:
        return None
    image = context.node.image.partition(topic, partition)
    return None if image is None else (image.leader, image.leader_epoch)


def add_endpoint(
    endpoints: dict[int, Endpoint], partition: FetchedPartition, context: RequestContext
) -> None:
    if partition.current_leader is None:
        return
    node = context.node.image.nodes.get(partition.current_leader[0])
    endpoint = None if node is None else context.endpoint_of(node)
    if node is not None and endpoint is not None:
        endpoints[node.node_id] = Endpoint(node.node_id, endpoint.host, endpoint.port, node.rack)

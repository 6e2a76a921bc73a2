"""The metrics of one node as users see them: names, types, labels, and where each value is from.

METRICS is the whole list; docs/metrics.md shows it (a test compares). Names that begin with kafka_
mean what the JMX exporter's usual rules make of Kafka's own beans, so dashboards for Kafka go on
working; bradbury_ ones have no counterpart or, like the histograms, a better form.

A scrape has two halves. On the loop plain numbers are read, PARTITIONS_AT_ONCE partitions at a
time; then a thread formats them. So it does not stall a node of 10,000 partitions.
At most MAX_PARTITIONS partitions have their own labels; the number of others is a metric. A node
that coordinates groups asks the partitions' leaders for their lag (lag_reader).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Sample,
)

from ...groups.coordinator.group_coordinators import GroupNumbers
from ...groups.group_counters import GroupCounters
from ...groups.offsets.lag_query import GroupPartitionLag
from ...handlers.ports.request_metrics import ApiMetrics, Histogram
from ...protocol.error_code import ErrorCode
from ...storage.cleaner.cleaner import CleaningReport
from ..coordinators.lag_reader import read_lags
from ..coordinators.transaction_host import TransactionNumbers

if TYPE_CHECKING:
    from ...cluster.metadata.metadata_image import MetadataImage
    from ...handlers.ports.server_config import ServerConfig
    from ...replication.partition.replica import Replica
    from ..coordinators.group_host import GroupHost
    from ..coordinators.transaction_host import TransactionHost
    from ..coordinators.transaction_partitions import HostedTransactionPartitions
    from ..loop.node_metrics import NodeMetrics
    from ..network.peers import Peers
    from ..network.socket_server import SocketServer
    from ..replication.log_cleaner import LogCleaner
    from ..replication.log_scrubber import LogScrubber
    from ..replication.partition_host import PartitionHost

PARTITIONS_AT_ONCE = 250
SAMPLES_AT_ONCE = 200
PAUSE_SECONDS = 0.0002
MAX_PARTITIONS = 20_000
# 2**i microseconds: 64 us, 256 us, 1 ms, ... 67 s.
SHOWN_BUCKETS = range(6, 27, 2)


T = TypeVar("T")


class Metric(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("group", "topic", "partition")
METRICS = [
    Metric("kafka_network_requestmetrics_requests_total", "counter", ("request",),
           "Requests answered (with acks=0: handled)"),
    Metric("kafka_network_requestmetrics_errors_total", "counter", ("request", "error"),
           "Error codes in responses, counted per partition"),
    Metric("bradbury_request_bytes_total", "counter", ("request",), "Bytes of requests"),
    Metric("bradbury_response_bytes_total", "counter", ("request",), "Bytes of responses"),
    Metric("bradbury_request_total_seconds", "histogram", ("request",),
           "Time from a request's last byte received to its response's last byte sent"),
    Metric("bradbury_request_handling_seconds", "histogram", ("request",),
           "Part of the total time in which the request was handled on the event loop"),
    Metric("bradbury_request_waiting_seconds", "histogram", ("request",),
           "Part of the total time spent waiting: for an fsync, records, or others; if it waited"),
    Metric("bradbury_request_sending_seconds", "histogram", ("request",),
           "Part of the total time from ready to sent, including the responses before it"),
    Metric("kafka_server_brokertopicmetrics_bytesin_total", "counter", ("topic",),
           "Bytes of record batches appended"),
    Metric("kafka_server_brokertopicmetrics_messagesin_total", "counter", ("topic",),
           "Records appended"),
    Metric("bradbury_topic_batches_in_total", "counter", ("topic",), "Record batches appended"),
    Metric("kafka_server_brokertopicmetrics_bytesout_total", "counter", ("topic",),
           "Bytes of record batches given to consumers"),
    Metric("kafka_log_log_size", "gauge", _PARTITION, "Bytes of the partition's segments"),
    Metric("kafka_log_log_numlogsegments", "gauge", _PARTITION, "Segments of the partition"),
    Metric("kafka_log_log_logstartoffset", "gauge", _PARTITION, "Log start offset"),
    Metric("kafka_log_log_logendoffset", "gauge", _PARTITION, "Log end offset"),
    Metric("kafka_server_replicamanager_partitioncount", "gauge", (), "Partitions of this node"),
    Metric("kafka_server_replicamanager_leadercount", "gauge", (), "Partitions led by this node"),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        (),
        "Partitions led by this node with a replica outside the ISR",
    ),
    Metric(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        (),
        "Partitions led by this node whose ISR is smaller than min.insync.replicas",
    ),
    Metric(
        "kafka_server_replicamanager_isrshrinks_total",
        "counter",
        (),
        "Replicas that left the ISR of partitions led by this node",
    ),
    Metric(
        "kafka_server_replicamanager_isrexpands_total",
        "counter",
        (),
        "Replicas that joined the ISR of partitions led by this node",
    ),
    Metric(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "counter",
        (),
        "Bytes of records that this node has fetched from leaders",
    ),
    Metric("bradbury_metrics_partitions_omitted", "gauge", (),
           "Partitions without their own labels, beyond the limit of labels"),
    Metric("kafka_log_logmanager_offlinelogdirectorycount", "gauge", (),
           "Log directories that failed or could not be opened"),
    Metric("bradbury_log_directories_short_of_space", "gauge", (),
           "Log directories with too little free space: producers are refused"),
    Metric("bradbury_fsync_seconds", "histogram", (), "Time of flushes of partitions to the disk"),
    Metric("kafka_log_logcleanermanager_max_dirty_percent", "gauge", (),
           "Largest dirty share of a compacted log, in percent"),
    Metric("kafka_log_logcleanermanager_uncleanable_partitions_count", "gauge", (),
           "Logs excluded from compaction, since it failed on them"),
    Metric("bradbury_cleanings_total", "counter", (), "Compactions finished"),
    Metric("bradbury_cleaner_read_bytes_total", "counter", (), "Bytes read by compaction"),
    Metric("bradbury_cleaner_written_bytes_total", "counter", (),
           "Bytes written by compaction"),
    Metric("bradbury_log_damaged_partitions", "gauge", (),
           "Partitions of this node with unreadable records in a damaged file"),
    Metric("bradbury_log_damaged_offsets", "gauge", (),
           "Offsets of unreadable records in damaged files; other replicas are asked for them"),
    Metric("bradbury_log_skipped_offsets_total", "counter", (),
           "Unreadable offsets that readers skipped, with bradbury.damaged.segment=skip"),
    Metric("bradbury_log_healed_segments_total", "counter", (),
           "Damaged segments repaired from another replica"),
    Metric("bradbury_log_scrubbed_bytes_total", "counter", (),
           "Bytes of segments read to check them for damage"),
    Metric("bradbury_connections", "gauge", (), "Open connections of clients"),
    Metric("bradbury_connections_accepted_total", "counter", (), "Connections accepted"),
    Metric("bradbury_connections_refused_total", "counter", ("limit",),
           "Connections refused, by the limit that was reached"),
    Metric("bradbury_connections_closed_total", "counter", ("reason",), "Connections closed"),
    Metric("bradbury_request_memory_bytes", "gauge", (),
           "Memory held for requests and responses; the limit is queued.max.request.bytes"),
    Metric("bradbury_request_memory_waiting", "gauge", (),
           "Connections whose request waits for memory"),
    Metric("bradbury_unexpected_errors_total", "counter", (),
           "Requests that failed by a bug of the broker; each is logged with a traceback"),
    Metric("bradbury_throttle_seconds", "histogram", ("quota",),
           "Time that clients beyond a quota were told to wait"),
    Metric("bradbury_event_loop_lag_seconds", "histogram", (),
           "Delay of a timer of the event loop, measured ten times a second"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroups", "gauge", (),
           "Consumer groups coordinated here"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", "gauge", (),
           "Groups whose members are rejoining"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance", "gauge",
           (), "Groups that wait for the assignment of their leader"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", "gauge", (),
           "Groups whose members have their assignments"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "gauge", (),
           "Groups without members that have committed offsets"),
    Metric("kafka_coordinator_group_groupmetadatamanager_numoffsets", "gauge", (),
           "Partitions with a committed offset, of all groups coordinated here"),
    Metric("bradbury_group_members", "gauge", (), "Members of the groups coordinated here"),
    Metric("bradbury_group_memory_bytes", "gauge", (),
           "Memory held for members; the limit is bradbury.group.members.max.bytes"),
    Metric("bradbury_group_partitions", "gauge", ("state",),
           "Partitions of __consumer_offsets coordinated here: active, or still loading"),
    Metric("bradbury_group_completed_rebalances_total", "counter", (), "Rebalances completed"),
    Metric("bradbury_group_members_removed_total", "counter", (),
           "Members removed: session expired, or too late to rejoin or to sync"),
    Metric("bradbury_group_offset_commits_total", "counter", (),
           "Offset commits accepted, counted per partition"),
    Metric("bradbury_group_offsets_expired_total", "counter", (),
           "Committed offsets expired by offsets.retention.minutes"),
    Metric("bradbury_group_offsets_deleted_total", "counter", (),
           "Committed offsets deleted: alone, with their group, or with their topic"),
    Metric("kafka_consumergroup_lag", "gauge", _GROUP_PARTITION,
           "Records between a group's committed offset and the high watermark"),
    Metric("kafka_consumergroup_lag_seconds", "gauge", _GROUP_PARTITION,
           "Age of the first record that a group has not committed; 0 if there is none"),
    Metric("bradbury_metrics_group_partitions_omitted", "gauge", (),
           "Committed partitions of groups coordinated here whose lag is not shown"),
    Metric("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
           "gauge", (), "Ended transactions whose marker waits for a partition to have a leader"),
    Metric("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
           "gauge", (), "Ended transactions whose last record was refused and is retried"),
    Metric("bradbury_transaction_partitions", "gauge", ("state",),
           "Partitions of __transaction_state coordinated here: active, or still loading"),
    Metric("bradbury_transactional_ids", "gauge", (), "Transactional ids coordinated here"),
    Metric("bradbury_transaction_load_seconds", "histogram", (),
           "Time from leading a partition of __transaction_state until its coordinator serves"),
    Metric("bradbury_transaction_verification_seconds", "histogram", (),
           "Time from asking a coordinator about partitions in a transaction to its answer"),
    Metric("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total", "counter", (),
           "Partitions that coordinators did not confirm to be in a transaction"),
    Metric("kafka_server_replicamanager_partitionswithlatetransactionscount", "gauge", (),
           "Partitions led by this node with a transaction open beyond its timeout"),
    Metric("bradbury_metadata_offset", "gauge", (), "Metadata records this node has applied"),
    Metric("bradbury_scrape_seconds", "gauge", (), "Seconds spent reading this scrape's values"),
]  # fmt: skip


class PartitionNumbers(NamedTuple):
    topic: str
    partition: int
    is_led: bool
    bytes_in: int
    records_in: int
    batches_in: int
    size: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    has_late_transaction: bool


@dataclass(slots=True)
class Numbers:
    """All values of one scrape, read but not yet written."""

    apis: list[ApiMetrics]
    partitions: list[PartitionNumbers] = field(default_factory=list)
    omitted: int = 0
    bytes_out: dict[str, int] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    by_label: dict[str, dict[str, int]] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    throttles: dict[str, Histogram] = field(default_factory=dict)
    lags: list[GroupPartitionLag] = field(default_factory=list)


class MeasuredStorage(Protocol):
    """See actors/node_storage."""

    @property
    def partition_host(self) -> PartitionHost | None: ...


class MeasuredNode(Protocol):
    """The part of a node that its metrics are read from. Implemented by actors/node."""

    metrics: NodeMetrics
    groups: GroupHost | None
    transactions: TransactionHost | None
    transaction_partitions: HostedTransactionPartitions
    socket_server: SocketServer
    peers: Peers

    def now_ms(self) -> int: ...
    @property
    def node_id(self) -> int: ...
    @property
    def server_config(self) -> ServerConfig: ...
    @property
    def storage(self) -> MeasuredStorage: ...
    @property
    def image(self) -> MetadataImage: ...


async def read_numbers(node: MeasuredNode) -> Numbers:
    """Read the node's counters on its loop, in slices, so that other work runs in between."""
    started = time.perf_counter()
    metrics = node.metrics
    numbers = Numbers(list(metrics.apis.values()))
    lags, omitted_lags = await read_lags(node)
    numbers.lags = lags
    host = node.storage.partition_host
    offline = short = 0
    if host is not None:
        offline, short = host.directories.offline_count, host.directories.short_count
    replicas = [] if host is None else host.replicas
    now_ms = node.now_ms()
    max_transaction_ms = node.server_config.transactions.transaction_max_timeout_ms
    for index, replica in enumerate(replicas):
        log = replica.log
        segments = log.segments
        numbers.partitions.append(
            PartitionNumbers(
                replica.topic,
                replica.partition,
                replica.leader is not None,
                replica.bytes_in,
                replica.records_in,
                replica.batches_in,
                log.segments.size_in_bytes,
                len(segments),
                log.log_start_offset,
                log.log_end_offset,
                replica.leader is not None
                and log.local.producers.has_late_transaction(now_ms, max_transaction_ms),
            )
        )
        if index % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
            await asyncio.sleep(0)
    numbers.omitted = max(0, len(numbers.partitions) - MAX_PARTITIONS)
    for topic in metrics.bytes_out.keys() - node.image.topics.keys():
        del metrics.bytes_out[topic]  # the topic was deleted, so its label goes, too
    numbers.bytes_out = dict(metrics.bytes_out)
    groups = GroupNumbers() if node.groups is None else node.groups.numbers()
    counted = GroupCounters() if node.groups is None else node.groups.counters
    numbers.values = {
        "kafka_server_replicamanager_partitioncount": len(numbers.partitions),
        "kafka_server_replicamanager_leadercount": sum(p.is_led for p in numbers.partitions),
        **_of_replication(replicas),
        "bradbury_metrics_partitions_omitted": numbers.omitted,
        "kafka_log_logmanager_offlinelogdirectorycount": offline,
        "bradbury_log_directories_short_of_space": short,
        **_of_cleaner(None if host is None else host.cleaner),
        **_of_damage(replicas, None if host is None else host.scrubber),
        "bradbury_connections": node.socket_server.connection_count,
        "bradbury_connections_accepted_total": metrics.connections_accepted,
        "bradbury_request_memory_bytes": node.socket_server.memory.used,
        "bradbury_request_memory_waiting": node.socket_server.memory.waiting,
        "bradbury_unexpected_errors_total": metrics.unexpected_errors,
        "kafka_coordinator_group_groupmetadatamanager_numgroups": sum(groups.states.values()),
        **{
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}": count
            for state, count in groups.states.items()
        },
        "kafka_coordinator_group_groupmetadatamanager_numoffsets": groups.offsets,
        "bradbury_group_members": groups.members,
        "bradbury_group_memory_bytes": groups.memory_bytes,
        "bradbury_group_completed_rebalances_total": counted.completed_rebalances,
        "bradbury_group_members_removed_total": counted.members_removed,
        "bradbury_group_offset_commits_total": counted.offset_commits,
        "bradbury_group_offsets_expired_total": counted.offsets_expired,
        "bradbury_group_offsets_deleted_total": counted.offsets_deleted,
        "kafka_server_replicamanager_partitionswithlatetransactionscount": sum(
            partition.has_late_transaction for partition in numbers.partitions
        ),
        "bradbury_metadata_offset": node.image.offset,
        "bradbury_metrics_group_partitions_omitted": omitted_lags,
    }
    numbers.by_label = {
        "bradbury_connections_refused_total": dict(metrics.connections_refused),
        "bradbury_connections_closed_total": dict(metrics.connections_closed),
        "bradbury_group_partitions": {
            "active": groups.partitions,
            "loading": groups.partitions_loading,
        },
    }
    numbers.throttles = metrics.throttles
    numbers.histograms = {
        "bradbury_fsync_seconds": Histogram() if host is None else host.fsyncs,
        "bradbury_event_loop_lag_seconds": metrics.loop_lag,
    }
    _add_transactions(numbers, node)
    numbers.values["bradbury_scrape_seconds"] = time.perf_counter() - started
    for api in numbers.apis:  # last, as more requests come in between two slices
        api.settle()
    return numbers


def _add_transactions(numbers: Numbers, node: MeasuredNode) -> None:
    host, asked = node.transactions, node.transaction_partitions
    found = TransactionNumbers() if host is None else host.numbers()
    manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    numbers.values |= {
        f"{manager}_unknowndestinationqueuesize": found.unknown_leaders,
        f"{manager}_logappendretryqueuesize": found.append_retries,
        "bradbury_transactional_ids": found.transactional_ids,
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total": (
            asked.failed_partitions
        ),
    }
    numbers.by_label["bradbury_transaction_partitions"] = {
        "active": found.partitions,
        "loading": found.partitions_loading,
    }
    numbers.histograms |= {
        "bradbury_transaction_load_seconds": Histogram() if host is None else host.load_times,
        "bradbury_transaction_verification_seconds": asked.answer_times,
    }


def _of_replication(replicas: list[Replica]) -> dict[str, float]:
    led = [replica.leader for replica in replicas if replica.leader is not None]
    return {
        "kafka_server_replicamanager_underreplicatedpartitions": sum(
            leader.isr_size <= len(leader.followers) for leader in led
        ),
        "kafka_server_replicamanager_underminisrpartitioncount": sum(
            not leader.has_enough_insync for leader in led
        ),
        "kafka_server_replicamanager_isrshrinks_total": sum(
            replica.isr_shrinks for replica in replicas
        ),
        "kafka_server_replicamanager_isrexpands_total": sum(
            replica.isr_expands for replica in replicas
        ),
        "kafka_server_brokertopicmetrics_replicationbytesin_total": sum(
            replica.bytes_copied for replica in replicas
        ),
    }


def _of_cleaner(driver: LogCleaner | None) -> dict[str, float]:
    cleaner = None if driver is None else driver.step
    totals = CleaningReport() if cleaner is None else cleaner.totals
    return {
        "kafka_log_logcleanermanager_max_dirty_percent": (
            0 if cleaner is None else 100 * cleaner.max_dirty_ratio
        ),
        "kafka_log_logcleanermanager_uncleanable_partitions_count": (
            0 if cleaner is None else len(cleaner.uncleanable)
        ),
        "bradbury_cleanings_total": 0 if cleaner is None else cleaner.cleanings,
        "bradbury_cleaner_read_bytes_total": totals.map_bytes_read + totals.bytes_read,
        "bradbury_cleaner_written_bytes_total": totals.bytes_written,
    }


def _of_damage(replicas: list[Replica], scrubber: LogScrubber | None) -> dict[str, float]:
    damaged = [] if scrubber is None else scrubber.healer.damaged()
    return {
        "bradbury_log_damaged_partitions": len({replica for replica, _ in damaged}),
        "bradbury_log_damaged_offsets": sum(each.end - each.start for _, each in damaged),
        "bradbury_log_skipped_offsets_total": sum(
            replica.log.damage.skipped_offsets for replica in replicas
        ),
        "bradbury_log_healed_segments_total": 0 if scrubber is None else scrubber.healer.healed,
        "bradbury_log_scrubbed_bytes_total": 0 if scrubber is None else scrubber.scrubbed_bytes,
    }


def families(numbers: Numbers) -> list[Family]:
    """Make all metrics of METRICS, in its order. For a thread: some 10 us per partition."""
    return [_family(metric, numbers) for metric in METRICS]


def _family(metric: Metric, numbers: Numbers) -> Family:
    made: Family
    if metric.kind == "histogram":
        made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        if metric.name in numbers.histograms:
            _add_histogram(made, [], numbers.histograms[metric.name])
        elif metric.labels == ("quota",):
            for quota, histogram in numbers.throttles.items():
                _add_histogram(made, [quota], histogram)
        else:
            for api in numbers.apis:
                _add_histogram(made, [api.name], HISTOGRAMS[metric.name](api))
        return made
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(metric.name, metric.help, labels=metric.labels)
    made.samples = _LazySamples(metric, numbers)
    return made


def _releasing_gil(items: Iterable[T]) -> Iterator[T]:
    """Release the interpreter lock regularly, in a thread beside the event loop.

    Otherwise a thread keeps the lock for 5 ms at a time, and the loop needs it several times to
    answer one client.
    """
    for index, item in enumerate(items):
        if index % SAMPLES_AT_ONCE == SAMPLES_AT_ONCE - 1:
            time.sleep(PAUSE_SECONDS)
        yield item


class _LazySamples(list[Sample]):
    """Samples that are made while they are written: 40,000 in memory would cost collections."""

    def __init__(self, metric: Metric, numbers: Numbers) -> None:
        super().__init__()
        self._metric = metric
        self._numbers = numbers

    def __iter__(self) -> Iterator[Sample]:
        name, labels = self._metric.name, self._metric.labels
        for values, value in _releasing_gil(_samples(self._metric, self._numbers)):
            yield Sample(name, dict(zip(labels, values, strict=True)), value)


HISTOGRAMS: dict[str, Callable[[ApiMetrics], Histogram]] = {
    "bradbury_request_total_seconds": lambda api: api.total,
    "bradbury_request_handling_seconds": lambda api: api.handling,
    "bradbury_request_waiting_seconds": lambda api: api.waiting,
    "bradbury_request_sending_seconds": lambda api: api.sending,
}
BY_API: dict[str, Callable[[ApiMetrics], int]] = {
    "kafka_network_requestmetrics_requests_total": lambda api: api.requests,
    "bradbury_request_bytes_total": lambda api: api.request_bytes,
    "bradbury_response_bytes_total": lambda api: api.response_bytes,
}
BY_TOPIC: dict[str, Callable[[PartitionNumbers], int]] = {
    "kafka_server_brokertopicmetrics_bytesin_total": lambda p: p.bytes_in,
    "kafka_server_brokertopicmetrics_messagesin_total": lambda p: p.records_in,
    "bradbury_topic_batches_in_total": lambda p: p.batches_in,
}
BY_PARTITION: dict[str, Callable[[PartitionNumbers], int]] = {
    "kafka_log_log_size": lambda p: p.size,
    "kafka_log_log_numlogsegments": lambda p: p.segments,
    "kafka_log_log_logstartoffset": lambda p: p.log_start_offset,
    "kafka_log_log_logendoffset": lambda p: p.log_end_offset,
}

BY_GROUP: dict[str, Callable[[GroupPartitionLag], float | None]] = {
    "kafka_consumergroup_lag": lambda one: one.records,
    "kafka_consumergroup_lag_seconds": lambda one: one.seconds,
}


def _samples(metric: Metric, numbers: Numbers) -> Iterable[tuple[list[str], float]]:
    name = metric.name
    if name in numbers.values:
        return [([], numbers.values[name])]
    if name in numbers.by_label:
        return [([label], value) for label, value in numbers.by_label[name].items()]
    if name in BY_API:
        return [([api.name], BY_API[name](api)) for api in numbers.apis]
    if name in BY_PARTITION:
        value = BY_PARTITION[name]
        shown = numbers.partitions[:MAX_PARTITIONS]
        return (([p.topic, str(p.partition)], value(p)) for p in shown)
    if name in BY_TOPIC:
        totals: Counter[str] = Counter()
        for partition in numbers.partitions:
            totals[partition.topic] += BY_TOPIC[name](partition)
        return [([topic], total) for topic, total in totals.items()]
    if name in BY_GROUP:
        return (
            ([one.group, one.topic, str(one.partition)], lag)
            for one in numbers.lags
            if (lag := BY_GROUP[name](one)) is not None
        )
    if name == "kafka_server_brokertopicmetrics_bytesout_total":
        return [([topic], value) for topic, value in numbers.bytes_out.items()]
    return [
        ([api.name, _ERROR_NAMES.get(code, str(code))], count)
        for api in numbers.apis
        for code, count in list(api.errors.items())
    ]


_ERROR_NAMES = {int(code): code.name for code in ErrorCode}


def _add_histogram(made: Family, labels: list[str], histogram: Histogram) -> None:
    assert isinstance(made, HistogramMetricFamily)
    counts = list(histogram.buckets)
    buckets: list[tuple[str, float]] = []
    below = shown = 0
    for bucket in SHOWN_BUCKETS:
        below += sum(counts[shown : bucket + 1])
        shown = bucket + 1
        buckets.append((str(2**bucket / 1e6), below))
    buckets.append(("+Inf", sum(counts)))
    made.add_metric(labels, buckets, histogram.total_us / 1e6)

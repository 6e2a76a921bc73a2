"""Metrics of a consumer and its group membership, by the names of Kafka's consumers.

Source: FetchMetricsRegistry, ConsumerCoordinatorMetrics, RebalanceCallbackMetricsManager,
HeartbeatMetricsManager, KafkaConsumerMetrics in apache/kafka clients/.../consumer/internals.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping

from ...protocol.topic_partition import TopicPartition
from ..wire.sampled_stats import Average, Figures, Meter, Metrics, SampledStat, tagged
from .fetch_state import UNKNOWN_OFFSET, FetchState

GROUP = "consumer-fetch-manager-metrics"


class _Consumed:
    """Counters of records read of one topic, or of all."""

    def __init__(self) -> None:
        self.records = Meter("records-consumed")
        self.bytes = Meter("bytes-consumed")

    def record(self, count: int, size: int, now: float) -> None:
        self.records.record(count, now)
        self.bytes.record(size, now)

    def figures(self, now: float) -> Figures:
        return self.records.figures(now) | self.bytes.figures(now)


class _Distances:
    """Lag and lead of one partition at decoding. lead: stored negated, to keep its minimum."""

    def __init__(self) -> None:
        self.lag = SampledStat()
        self.lead = SampledStat()


class FetchMetrics:
    """Fetch metrics. Answers are recorded on the I/O thread, decoding on the consumer's thread."""

    def __init__(self) -> None:
        self._fetches = Meter("fetch")
        self._latency = Average("fetch-latency")
        self._size = Average("fetch-size")
        self._throttled = Average("fetch-throttle-time")
        self._consumed = _Consumed()
        self._topics: defaultdict[str, _Consumed] = defaultdict(_Consumed)
        self._distances = _Distances()
        self.corrupt_records = 0
        self._partitions: defaultdict[TopicPartition, _Distances] = defaultdict(_Distances)

    def on_response(self, latency_s: float, throttle_time_ms: int, size: int, now: float) -> None:
        self._fetches.record(1, now)
        self._latency.record(latency_s * 1000, now)
        self._throttled.record(throttle_time_ms, now)
        self._size.record(size, now)

    def on_decoded(self, state: FetchState, count: int, size: int, next_offset: int) -> None:
        """Count a partition's answer that was decoded to a table ending before `next_offset`."""
        now = time.monotonic()
        key = state.topic_partition
        self._consumed.record(count, size, now)
        self._topics[key.topic].record(count, size, now)
        for one in (self._distances, self._partitions[key]):
            one.lag.record(max(0, state.high_watermark - next_offset), now)
            if state.log_start_offset != UNKNOWN_OFFSET:
                one.lead.record(-max(0, next_offset - state.log_start_offset), now)

    def on_corrupt(self, count: int) -> None:
        """Count corrupt records that were skipped (on_corrupt_record="skip")."""
        self.corrupt_records += count

    def figures(
        self, now: float, states: Mapping[TopicPartition, FetchState], *, committed_only: bool
    ) -> Metrics:
        """Return the metrics. states: assigned partitions; others are forgotten."""
        for key in [key for key in list(self._partitions) if key not in states]:
            del self._partitions[key]
        found = self._consumed.figures(now)
        for one in (self._fetches, self._latency, self._size, self._throttled):
            found |= one.figures(now)
        found["records-corrupt-total"] = self.corrupt_records
        found["records-lag-max"] = self._distances.lag.highest(now)
        found["records-lead-min"] = -self._distances.lead.highest(now)
        groups = {GROUP: found}
        for topic, consumed in list(self._topics.items()):
            groups[tagged(GROUP, {"topic": topic})] = consumed.figures(now)
        for key, state in states.items():
            name = tagged(GROUP, {"topic": key.topic, "partition": key.partition})
            groups[name] = self._of_partition(state, now, committed_only=committed_only)
        return groups

    def _of_partition(self, state: FetchState, now: float, *, committed_only: bool) -> Figures:
        end = state.last_stable_offset if committed_only else state.high_watermark
        position, start = state.position, state.log_start_offset
        seen = self._partitions[state.topic_partition]
        return {
            "records-lag": _distance(position, end),
            "records-lag-avg": seen.lag.average(now),
            "records-lag-max": seen.lag.highest(now),
            "records-lead": _distance(start, position),
            "records-lead-avg": -seen.lead.average(now),
            "records-lead-min": -seen.lead.highest(now),
            "preferred-read-replica": state.replica,
        }


def _distance(first: int, last: int) -> float:
    return math.nan if UNKNOWN_OFFSET in (first, last) else max(0, last - first)


class GroupMetrics:
    """Group metrics. Listeners are timed on the consumer's thread, the rest on the I/O thread."""

    def __init__(self) -> None:
        self.heartbeats = Meter("heartbeat")
        self.heartbeat_time = Average("heartbeat-response-time", average=False)
        self.joins = Meter("join")
        self.join_time = Average("join-time")
        self.syncs = Meter("sync")
        self.sync_time = Average("sync-time")
        self.rebalances = Meter("rebalance", per_hour=True)
        self.failed_rebalances = Meter("failed-rebalance", per_hour=True)
        self.rebalance_latency = Average("rebalance-latency")
        self.commits = Meter("commit")
        self.commit_latency = Average("commit-latency")
        self.assigned_latency = Average("partition-assigned-latency")
        self.revoked_latency = Average("partition-revoked-latency")
        self.lost_latency = Average("partition-lost-latency")
        self._rebalance_s = 0.0
        self._heartbeat_at: float | None = None
        self._rebalanced_at: float | None = None

    def on_heartbeat(self, sent_at: float) -> None:
        """Count a heartbeat that was answered."""
        now = time.monotonic()
        self._heartbeat_at = sent_at
        self.heartbeats.record(1, now)
        self.heartbeat_time.record((now - sent_at) * 1000, now)

    def on_join(self, sent_at: float) -> None:
        now = time.monotonic()
        self.joins.record(1, now)
        self.join_time.record((now - sent_at) * 1000, now)

    def on_sync(self, sent_at: float) -> None:
        now = time.monotonic()
        self.syncs.record(1, now)
        self.sync_time.record((now - sent_at) * 1000, now)

    def on_rebalance(self, began_at: float, *, failed: bool) -> None:
        now = time.monotonic()
        if failed:
            self.failed_rebalances.record(1, now)
            return
        self.rebalances.record(1, now)
        self.rebalance_latency.record((now - began_at) * 1000, now)
        self._rebalance_s += now - began_at
        self._rebalanced_at = now

    def on_commit(self, sent_at: float) -> None:
        now = time.monotonic()
        self.commits.record(1, now)
        self.commit_latency.record((now - sent_at) * 1000, now)

    def figures(self, now: float, *, assigned_count: int) -> Figures:
        found: Figures = {
            "assigned-partitions": assigned_count,
            "last-heartbeat-seconds-ago": _ago(self._heartbeat_at, now),
            "last-rebalance-seconds-ago": _ago(self._rebalanced_at, now),
            "rebalance-latency-total": self._rebalance_s * 1000,
        }
        for one in (
            self.heartbeats,
            self.heartbeat_time,
            self.joins,
            self.join_time,
            self.syncs,
            self.sync_time,
            self.rebalances,
            self.failed_rebalances,
            self.rebalance_latency,
            self.commits,
            self.commit_latency,
            self.assigned_latency,
            self.revoked_latency,
            self.lost_latency,
        ):
            found |= one.figures(now)
        return found


class PollMetrics:
    """Poll metrics, recorded on the consumer's thread."""

    def __init__(self) -> None:
        self.commit_s = 0.0
        self.committed_s = 0.0
        self._between = Average("time-between-poll")
        self._idle_ratio = Average("poll-idle-ratio", highest=False)
        self._began_at: float | None = None
        self._pause_s = 0.0

    def on_poll(self) -> None:
        """Record the start of a poll."""
        now = time.monotonic()
        if self._began_at is not None:
            self._pause_s = now - self._began_at
            self._between.record(self._pause_s * 1000, now)
        self._began_at = now

    def on_polled(self) -> None:
        """Record the end of a poll."""
        assert self._began_at is not None
        now = time.monotonic()
        polling_s = now - self._began_at
        self._idle_ratio.record(polling_s / ((polling_s + self._pause_s) or 1.0), now)

    def figures(self, now: float) -> Figures:
        return {
            **self._between.figures(now),
            **self._idle_ratio.figures(now),
            "last-poll-seconds-ago": _ago(self._began_at, now),
            "commit-sync-time-ns-total": self.commit_s * 1e9,
            "committed-time-ns-total": self.committed_s * 1e9,
        }


def _ago(at: float | None, now: float) -> float:
    """Seconds since `at`; -1 if it never happened, as in Kafka's clients."""
    return -1.0 if at is None else now - at

"""Are counts counted right, bounded, and is the list in the docs the list in the code?"""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

import bradbury
from bradbury.actors.loop.line_limit import BURST, LineLimit
from bradbury.actors.loop.node_metrics import NodeMetrics
from bradbury.actors.metrics.metrics_collector import (
    MAX_PARTITIONS,
    METRICS,
    Numbers,
    families,
    read_numbers,
)
from bradbury.cluster.partition.leader_state import LeaderState
from bradbury.handlers.ports.request_metrics import (
    ApiMetrics,
    Histogram,
    RequestMetrics,
    RequestTrace,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.messages import describe_log_dirs, metadata, offset_fetch
from bradbury.storage.producers.producer_state import ProducerState

DOCS = Path(bradbury.__file__).resolve().parent / "docs" / "metrics.md"


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=50))
def test_every_duration_is_in_the_bucket_that_bounds_it(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    assert histogram.count == len(durations)
    for bucket in range(64):
        expected = sum(int(seconds * 1e6) < 2**bucket for seconds in durations)
        assert sum(histogram.buckets[: bucket + 1]) == expected
    assert histogram.total_us == sum(int(seconds * 1e6) for seconds in durations)


def test_error_codes_are_found_at_any_depth_of_a_response() -> None:
    metrics, api = RequestMetrics(), ApiMetrics("Any")
    topics = [
        metadata.MetadataResponseTopic(error_code=3),
        metadata.MetadataResponseTopic(
            partitions=[
                metadata.MetadataResponsePartition(error_code=5),
                metadata.MetadataResponsePartition(error_code=5),
                metadata.MetadataResponsePartition(),
            ]
        ),
    ]
    metrics.count_errors(api, metadata.MetadataResponse(error_code=41, topics=topics))
    assert api.errors == {41: 1, 3: 1, 5: 2}
    groups = [offset_fetch.OffsetFetchResponseGroup(error_code=14)]
    metrics.count_errors(api, offset_fetch.OffsetFetchResponse(groups=groups))
    results = [describe_log_dirs.DescribeLogDirsResult(error_code=56)]
    metrics.count_errors(api, describe_log_dirs.DescribeLogDirsResponse(results=results))
    assert api.errors == {41: 1, 3: 1, 5: 2, 14: 1, 56: 1}


def test_a_request_is_measured_in_handling_waiting_and_sending() -> None:
    trace = RequestTrace(received_at=10.0, request_bytes=100)
    trace.api = ApiMetrics("Fetch")
    trace.handled_at, trace.ready_at, trace.response_bytes = 10.5, 12.5, 1000
    trace.finish(13.5)
    api = trace.api
    api.settle()
    totals = [api.handling.total_us, api.waiting.total_us, api.sending.total_us, api.total.total_us]
    assert totals == [500_000, 2_000_000, 1_000_000, 3_500_000]
    assert (api.requests, api.request_bytes, api.response_bytes) == (1, 100, 1000)


class TwoSegments(tuple[int, int]):  # noqa: SLOT001
    size_in_bytes = 4


def fake_node(partitions: int) -> Any:
    """As much of a node as a scrape looks at."""
    replicas = [
        SimpleNamespace(
            topic=f"topic-{number % 100}",
            partition=number,
            leader=LeaderState(0, 0, 0),
            isr_shrinks=0,
            isr_expands=0,
            bytes_copied=0,
            bytes_in=1,
            records_in=2,
            batches_in=3,
            log=SimpleNamespace(
                segments=TwoSegments((1, 2)),
                damage=SimpleNamespace(skipped_offsets=0),
                log_start_offset=5,
                log_end_offset=6,
                local=SimpleNamespace(producers=ProducerState()),
            ),
        )
        for number in range(partitions)
    ]
    host = SimpleNamespace(
        replicas=replicas,
        directories=SimpleNamespace(offline_count=1, short_count=0),
        fsyncs=Histogram(),
        cleaner=None,
        scrubber=None,
    )
    return SimpleNamespace(
        metrics=NodeMetrics(),
        storage=SimpleNamespace(partition_host=host),
        groups=None,
        transactions=None,
        transaction_partitions=SimpleNamespace(answer_times=Histogram(), failed_partitions=0),
        server_config=ServerConfig(),
        now_ms=lambda: 1_700_000_000_000,
        image=SimpleNamespace(topics={}, offset=9),
        socket_server=SimpleNamespace(
            connection_count=1, memory=SimpleNamespace(used=0, waiting=0)
        ),
    )


def test_the_number_of_labels_is_bounded_and_what_is_left_out_is_said() -> None:
    numbers = asyncio.run(read_numbers(fake_node(MAX_PARTITIONS + 7)))
    by_name = {family.name: family for family in families(numbers)}

    def values(name: str) -> list[float]:
        return [sample.value for sample in by_name[name].samples]

    assert values("kafka_log_log_size") == [4] * MAX_PARTITIONS
    assert values("bradbury_metrics_partitions_omitted") == [7]
    assert values("kafka_server_replicamanager_partitioncount") == [MAX_PARTITIONS + 7]


def test_reading_the_numbers_of_ten_thousand_partitions_leaves_turns_to_others() -> None:
    async def turns() -> tuple[int, Numbers]:
        reading = asyncio.create_task(read_numbers(fake_node(10_000)))
        count = 0
        while not reading.done():
            await asyncio.sleep(0)
            count += 1
        return count, reading.result()

    count, numbers = asyncio.run(turns())
    assert len(numbers.partitions) == 10_000
    assert count >= 40


def test_the_cost_of_a_trace_is_a_few_microseconds_at_most() -> None:
    """A guard against an accident, not a benchmark: the figure is in docs/metrics.md."""
    api = ApiMetrics("Produce")
    started = time.process_time()
    for _ in range(10_000):
        trace = RequestTrace(1.0, 100)
        trace.api = api
        trace.finish(1.1)
    assert (time.process_time() - started) / 10_000 < 20e-6


def documented() -> list[tuple[str, str, str, str]]:
    rows = [line.strip("|").split("|") for line in DOCS.read_text().splitlines()]
    return [
        (name.strip(" `"), kind.strip(), labels.strip(), text.strip())
        for name, kind, labels, text in (row for row in rows if len(row) == 4)
        if name.strip().startswith("`")
    ]


def test_the_docs_list_exactly_the_metrics_there_are() -> None:
    expected = [
        (metric.name, metric.kind, ", ".join(metric.labels), metric.help) for metric in METRICS
    ]
    assert documented() == expected


def test_a_flood_of_lines_is_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    import logging

    now = 0.0
    limit = LineLimit(logging.getLogger("bradbury.actors.network.socket_server"), clock=lambda: now)
    with caplog.at_level(logging.WARNING, "bradbury.actors.network.socket_server"):
        for number in range(1000):
            limit.warning("peer %d is bad", number)
        assert len(caplog.records) == BURST
        now = 1.0
        limit.report_suppressed()
        limit.warning("one more")
    texts = [record.getMessage() for record in caplog.records]
    assert texts[BURST:] == [f"{1000 - BURST} lines about peers were suppressed", "one more"]

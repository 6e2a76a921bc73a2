"""Runner of flows whose steps are map_batches of Ray Data: one bounded Dataset after another.

    transactional.id, group   bradbury-flow-{name}

Each round reads from the group's committed offsets to the current ends of the topic (at most about
`commit_records` records), and writes the output of the steps and the new offsets in one
transaction. So output is written exactly once, however a round ends, and steps may drop, repeat,
sort and aggregate the rows of a round.

Invariants: of two runs of a flow the one that started later writes; the other is fenced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ...clients.admin.group_offsets_admin import group_offsets
from ...clients.producer.producer import Producer
from ...clients.wire.record_metadata import OffsetAndMetadata
from ...protocol.topic_partition import TopicPartition
from ..loads.loaded_offsets import next_ranges
from ..ranges.partition_range import PartitionRange
from ..ranges.read_arguments import read_limits
from ..ranges.reading_client import reading_client
from ..ranges.registry_values import latest_schema
from ..ranges.topic_offsets import resolve_ranges
from ..ray_data.ray_data_missing import require_ray_data
from ..ray_data.read_topic import read_topic
from ..replays.replayed_columns import ReplayedColumns
from .flow import Flow, FlowFailed, FlowTarget
from .flow_progress import FlowProgress
from .flow_topics import check_topics_of

LOOK_SECONDS: Final = 0.5
TIMEOUT_MS: Final = 60_000
TRANSACTION_MS: Final = 900_000


class RayFlow:
    """A flow with steps of Ray Data.

    Raises RayDataMissing: the extra [data] is not installed; also what latest_schema raises.
    """

    def __init__(self, flow: Flow, servers: str) -> None:
        require_ray_data()
        self._flow = flow
        self._servers = servers
        self._group = f"bradbury-flow-{flow.name}"
        (source,) = flow.sources
        assert source.topic is not None
        self._source = source
        self._topic = source.topic
        self._schema = source.schema
        if source.schema_registry is not None and source.schema is None:
            # Requested once, so that the columns of steps do not change while the flow runs.
            self._schema = latest_schema(source.schema_registry, source.value, [source.topic])
        self._limits = read_limits(
            "read_committed",
            self._group,
            poll_timeout_ms=120_000,
            fail_on_data_loss=True,
            allow_data_loss="set the flow's offsets: `bradbury groups reset-offsets "
            f"{self._group} --topic {self._topic} --to-earliest --execute`",
        )
        self._client = reading_client(servers, self._limits.fetch)

    def run(
        self,
        stopped: threading.Event,
        on_progress: Callable[[Sequence[FlowProgress]], None],
        *,
        once: bool,
    ) -> list[FlowProgress]:
        """Run rounds until `stopped` is set or, with `once`, until the topic's ends at the start.

        Raises FlowFailed: the source's schema is invalid, a step failed, or its output lacks a
        column that a target needs.
        """
        check_topics_of(self._flow, self._client)
        records = batches = 0
        rate = 0.0
        with Producer(
            self._servers,
            transactional_id=self._group,
            transaction_timeout_ms=TRANSACTION_MS,
            client_id=self._group,
        ) as producer:
            producer.init_transactions()  # aborts an open transaction of an earlier run
            ranges = self._ranges(self._committed())

            def report(of_round: int) -> list[FlowProgress]:
                """of_round: records of the current round that are through the steps."""
                behind = sum(one.size for one in ranges) - of_round
                found = [
                    FlowProgress(target.name, records + of_round, batches, behind, rate)
                    for target in self._flow.targets
                ]
                on_progress(found)
                return found

            while True:
                part = next_ranges(ranges, self._flow.commit_records)
                if part:
                    report(0)
                    began = time.monotonic()
                    count = sum(one.size for one in part)
                    for rows in self._round(producer, part):
                        rate = min(rows, count) / max(1e-9, time.monotonic() - began)
                        report(min(rows, count))
                    rate = count / max(1e-9, time.monotonic() - began)
                    records, batches = records + count, batches + 1
                    ends = {one.topic_partition: one.end for one in part}
                    ranges = [
                        one._replace(start=ends.get(one.topic_partition, one.start))
                        for one in ranges
                    ]
                found = report(0)
                behind = sum(one.size for one in ranges)
                if stopped.is_set() or (once and not behind):
                    return found
                if not behind and stopped.wait(LOOK_SECONDS):
                    return found
                if not once:
                    done = {one.topic_partition: one.start for one in ranges}
                    ranges = self._ranges(done)

    def _committed(self) -> dict[TopicPartition, int]:
        steps = group_offsets(self._client, [self._group], timeout_ms=TIMEOUT_MS)
        found = self._client.run(steps, TIMEOUT_MS)
        return {
            TopicPartition(*key): committed.offset
            for key, committed in found[self._group].items()
            if committed is not None and key[0] == self._topic
        }

    def _ranges(self, done: dict[TopicPartition, int]) -> list[PartitionRange]:
        return resolve_ranges(
            self._client,
            [self._topic],
            "earliest",
            "latest",
            self._limits,
            keep_empty=True,
            committed=done,
        )

    def _round(self, producer: Producer, part: Sequence[PartitionRange]) -> Iterator[int]:
        """Read, process and commit a round. Yields the rows so far, after each batch of them.

        Ray Data does not tell how many records a row was made of, so rows stand for records.
        """
        try:
            dataset: Any = read_topic(
                self._topic,
                bootstrap_servers=self._servers,
                start_offset={self._topic: {one.partition: one.start for one in part}},
                end_offset={self._topic: {one.partition: one.end for one in part}},
                value_decoder=self._source.value,
                value_schema=self._schema,
                schema_registry=self._source.schema_registry,
            )
        except ValueError as error:  # an invalid schema: the other arguments were checked
            raise FlowFailed(f"sources.{self._source.name}: {error}") from None
        for step in self._flow.steps:
            dataset = dataset.map_batches(step.map_batches, **step.options)
        rows = 0
        with producer.transaction():
            for batch in self._batches(dataset):
                for target in self._flow.targets:
                    _send(producer, target, batch)
                rows += len(batch)
                yield rows
            producer.send_offsets(
                {one.topic_partition: OffsetAndMetadata(one.end) for one in part}, self._group
            )

    def _batches(self, dataset: Any) -> Any:
        """Arrow tables in the order of the records. Raises FlowFailed, in one line, for a step."""
        import ray
        from ray.data import DataContext

        DataContext.get_current().execution_options.preserve_order = True
        try:
            yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            said = " ".join(str(cause).split())[:300]
            raise FlowFailed(f"a step failed: {type(cause).__name__}: {said}") from None


def _send(producer: Producer, target: FlowTarget, table: Any) -> None:
    if not len(table):
        return
    try:
        columns = ReplayedColumns(
            table.schema,
            key=target.key or "",
            value=target.value,
            columns=None,
            timestamp="",
            headers="",
            keep_partitions=False,
        )
        for batch in table.combine_chunks().to_batches():
            producer.send_batch(str(target.topic), columns.records(batch, 0))
    except ValueError as error:
        raise FlowFailed(f"targets.{target.name}: {error}") from None

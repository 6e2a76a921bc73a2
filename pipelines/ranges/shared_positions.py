"""Keys and values of all that is committed in a topic where several producers keep their positions.

"latest" of read_committed is the last stable offset: where the first open transaction of anybody
begins. What one producer has committed may lie behind it, and is what that one has to know when it
begins again. Waiting for the other's end would take its time-out where nobody is left to end it.

So up to the last stable offset records are read as everybody does; behind it, where compaction has
not been yet, the markers say whose transaction was committed, and what is still open is left out.

The caller has ended its own transaction before: then all of its own records are decided.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ...clients.fetch.batch_reader import BatchReader
from ...clients.wire.cluster_client import ClusterClient
from ...clients.wire.record_metadata import TopicPartition
from ...protocol.errors import RequestTimedOut
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import ControlType, control_type, iterate_records
from .partition_range import PartitionRange, ReadLimits
from .range_reader import RangeReader
from .topic_offsets import resolve_ranges

Pair = tuple[bytes | None, bytes | None]


def shared_positions(client: ClusterClient, topic: str, limits: ReadLimits) -> Iterator[Pair]:
    """Of each producer in the order it has committed them.

    Raises:
        UnknownTopicOrPartition: there is no such topic.
        RequestTimedOut, KafkaError: as RangeReader.read.
    """
    committed, uncommitted = (
        replace(limits, fetch=replace(limits.fetch, isolation_level=level)) for level in (1, 0)
    )
    stable = resolve_ranges(client, [topic], "earliest", "latest", committed, keep_empty=True)
    whole = resolve_ranges(client, [topic], "earliest", "latest", uncommitted, keep_empty=True)
    with RangeReader(client, committed) as reader:
        for decoded in reader.read(stable):
            yield from zip(decoded.keys.to_pylist(), decoded.values.to_pylist(), strict=True)
    yield from _behind(stable, whole, client, limits)


def _behind(
    stable: list[PartitionRange],
    whole: list[PartitionRange],
    client: ClusterClient,
    limits: ReadLimits,
) -> Iterator[Pair]:
    """What is committed between the ends of `stable` and those of `whole`."""
    begins = {one.topic_partition: one.end for one in stable}
    ranges = {one.topic_partition: (begins[one.topic_partition], one.end) for one in whole}
    undecided: dict[tuple[TopicPartition, int], list[Pair]] = defaultdict(list)
    deadline = time.monotonic() + limits.poll_timeout_ms / 1000
    with BatchReader(ranges, isolation_level=0, client=client) as reader:
        while not reader.is_done:
            fetched = reader.read()
            if fetched is None:
                if time.monotonic() > deadline:
                    raise RequestTimedOut(
                        f"the end of {whole[0].topic} was not read in {limits.poll_timeout_ms} ms; "
                        "are its brokers up?"
                    )
                continue
            key = fetched.state.topic_partition
            for position, header in walk_batches(fetched.records):
                batch = fetched.records[position : position + header.size]
                records = list(iterate_records(batch))
                pairs = [(record.key, record.value) for record in records]
                producer = (key, header.producer_id)
                if header.is_control:
                    ended = undecided.pop(producer, [])
                    if control_type(records[0].key) is ControlType.COMMIT:
                        yield from ended
                elif header.is_transactional:
                    undecided[producer] += pairs
                else:
                    yield from pairs

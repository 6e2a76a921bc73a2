"""Committed keys and values of a topic in which several producers keep their positions.

"latest" with read_committed is the last stable offset: the start of the first open transaction of
any producer. Records that another producer committed may lie after it, and that producer needs them
when it restarts. Waiting for the open transaction may take until its timeout, if its producer died.
So records are read normally up to the last stable offset; after it, where logs are never compacted,
control records show which transactions were committed, and open ones are left out.
The caller has ended its own transaction before: the outcome of all its own records is known.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ...clients.fetch.batch_reader import BatchReader
from ...clients.wire.cluster_client import ClusterClient
from ...protocol.errors import RequestTimedOut
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import ControlType, control_type, iterate_records
from ...protocol.topic_partition import TopicPartition
from .partition_range import PartitionRange, ReadLimits
from .range_reader import RangeReader
from .topic_offsets import resolve_ranges

Pair = tuple[bytes | None, bytes | None]


def shared_positions(client: ClusterClient, topic: str, limits: ReadLimits) -> Iterator[Pair]:
    """Committed (key, value) pairs; those of each producer in the order of its commits.

    Raises:
        UnknownTopicOrPartition: the topic does not exist.
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
    """Committed pairs between the ends of `stable` and those of `whole`."""
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

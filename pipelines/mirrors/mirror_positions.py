"""How far a mirror is: a compacted topic of the target cluster, written in the same transactions.

    mirror-offsets.<alias>.internal
        key    {"cluster": id of the source, "topic": ..., "partition": ...}
        value  {"offset": next one to be copied, "to": topic of the target, "topic_id": source's,
                "syncs": [[source start, end, target start, end, 1 if exact], ...]}

What always holds: a committed position says exactly which records of its partition are in the
target, because it became visible with them. So a mirror goes on there, whatever ended the former.

The idea is Kafka Connect's (KIP-618: source offsets committed by the records' own transaction).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...clients.wire.record_metadata import TopicPartition
from ...protocol.errors import TopicAlreadyExists
from ..loads.loaded_offsets import LoadedOffsets
from ..ranges.partition_range import ReadLimits
from ..ranges.range_reader import RangeReader
from ..ranges.reading_client import reading_client
from ..ranges.topic_offsets import resolve_ranges
from .offset_syncs import OffsetSync, OffsetSyncs

_TOPIC: Final = re.compile(r"mirror-offsets\..+\.internal")


class MirrorPosition(NamedTuple):
    """cluster: id of the source that the records come from."""

    cluster: str
    source: TopicPartition
    target: str
    topic_id: str
    offset: int
    syncs: OffsetSyncs


def positions_topic(alias: str) -> str:
    return f"mirror-offsets.{alias}.internal"


def make_positions_topic(admin: Admin, name: str, replication_factor: int) -> None:
    if name in admin.list_topics(include_internal=True):
        return
    try:
        admin.create_topic(name, 1, replication_factor, configs={"cleanup.policy": "compact"})
    except TopicAlreadyExists:
        pass


def read_positions(
    bootstrap: str, topic: str, limits: ReadLimits
) -> dict[tuple[str, TopicPartition], MirrorPosition]:
    """What is committed, by source cluster and partition. The newest of each partition counts."""
    client = reading_client(bootstrap, limits.fetch)
    ranges = resolve_ranges(client, [topic], "earliest", "latest", limits)
    found = {}
    with RangeReader(client, limits) as reader:
        for decoded in reader.read(ranges):
            table = decoded.table
            pairs = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
            for position in _decode(pairs):
                found[position.cluster, position.source] = position
    return found


def mirrored_from(admin: Admin, cluster: str, limits: ReadLimits) -> set[str]:
    """Topics of admin's cluster that some mirror fills from the cluster of this id."""
    return {
        position.target
        for topic in admin.list_topics(include_internal=True)
        if _TOPIC.fullmatch(topic)
        for position in read_positions(admin.bootstrap_servers, topic, limits).values()
        if position.cluster == cluster
    }


def write_positions(
    producer: Producer,
    topic: str,
    cluster: str,
    positions: LoadedOffsets,
    targets: Mapping[str, str],
    syncs: Mapping[TopicPartition, OffsetSyncs],
    changed: Iterable[TopicPartition],
) -> None:
    """Send the positions of these partitions; to be called in the transaction of their records."""
    for source in changed:
        key = {"cluster": cluster, "topic": source.topic, "partition": source.partition}
        value = {
            "offset": positions.offsets[source],
            "to": targets[source.topic],
            "topic_id": positions.topic_ids[source.topic],
            "syncs": [[*map(int, piece)] for piece in syncs.get(source, OffsetSyncs()).pieces],
        }
        producer.send(topic, key=_json(key), value=_json(value), partition=0)


def as_offsets(positions: Iterable[MirrorPosition]) -> LoadedOffsets:
    known = list(positions)
    return LoadedOffsets(
        {one.source: one.offset for one in known},
        {one.source.topic: one.topic_id for one in known},
    )


def _decode(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Iterator[MirrorPosition]:
    """Raises ValueError for records that no mirror wrote."""
    for key, value in pairs:
        try:
            of, at = json.loads(key or b""), json.loads(value or b"")
            source = TopicPartition(str(of["topic"]), int(of["partition"]))
            pieces = tuple(_sync(each) for each in at["syncs"])
            yield MirrorPosition(
                str(of["cluster"]),
                source,
                str(at["to"]),
                str(at["topic_id"]),
                int(at["offset"]),
                OffsetSyncs(pieces),
            )
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a position of a mirror: {key!r}: {value!r}") from error


def _sync(numbers: list[int]) -> OffsetSync:
    source_start, source_end, target_start, target_end, is_exact = map(int, numbers)
    return OffsetSync(source_start, source_end, target_start, target_end, bool(is_exact))


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()

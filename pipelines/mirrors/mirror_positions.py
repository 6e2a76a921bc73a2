"""Positions of a mirror: a compacted topic of the target, written in the records' transactions.

    mirror-offsets.<alias>.internal
        key    {"cluster": id of the source, "topic": ..., "partition": ...}
        value  {"offset": next one to be copied, "to": topic of the target, "topic_id": source's,
                "syncs": [[source start, end, target start, end, 1 if exact], ...],
                "complete": 1 if syncs cover all that was ever copied into the partition}
        key    {"cluster": ..., "note": name}    what else a mirror or a migration remembers
        value  its content

Invariants: a committed position says exactly which records of its partition are in the
target, as both are committed together. So a mirror resumes there, however the former one ended.

The idea is Kafka Connect's (KIP-618: source offsets committed by the records' own transaction).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...clients.wire.record_metadata import RecordMetadata
from ...protocol.errors import TopicAlreadyExists, UnknownTopicOrPartition
from ...protocol.topic_partition import TopicPartition
from ..loads.loaded_offsets import LoadedOffsets
from ..ranges.partition_range import ReadLimits
from ..ranges.reading_client import reading_client
from ..ranges.shared_positions import shared_positions
from .offset_syncs import OffsetSync, OffsetSyncs

_TOPIC: Final = re.compile(r"mirror-offsets\..+\.internal")


class MirrorPosition(NamedTuple):
    """Position of a mirror in one partition. cluster: id of the cluster that it copies from.

    is_complete: all records that its mirror ever copied into the partition lie within the syncs.
    """

    cluster: str
    source: TopicPartition
    target: str
    topic_id: str
    offset: int
    syncs: OffsetSyncs
    is_complete: bool = False


Notes = Mapping[str, Mapping[str, Any]]
"""Contents of notes, by name."""


class MirrorState(NamedTuple):
    """Content of a positions topic: the newest record of each key."""

    positions: tuple[MirrorPosition, ...] = ()
    noted: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    """Notes: (id of the source cluster, name, content)."""

    def notes(self, cluster: str) -> Notes:
        return {name: content for of, name, content in self.noted if of == cluster}


def positions_topic(alias: str) -> str:
    return f"mirror-offsets.{alias}.internal"


def make_positions_topic(admin: Admin, name: str, replication_factor: int) -> None:
    if name in admin.list_topics(include_internal=True):
        return
    try:
        admin.create_topic(name, 1, replication_factor, configs={"cleanup.policy": "compact"})
    except TopicAlreadyExists:
        pass


def read_state(admin: Admin, topic: str, limits: ReadLimits) -> MirrorState:
    """Committed state in admin's cluster; empty if the topic does not exist.

    Raises:
        ValueError: a record was not written by a mirror.
    """
    if topic not in admin.list_topics(include_internal=True):
        return MirrorState()
    client = reading_client(admin.bootstrap_servers, limits.fetch)
    newest: dict[bytes | None, bytes] = {}
    try:
        for key, value in shared_positions(client, topic, limits):
            if value is None:
                newest.pop(key, None)
            else:
                newest[key] = value
    except UnknownTopicOrPartition:  # it has just been deleted
        return MirrorState()
    decoded_records = [_decode(key, value) for key, value in newest.items()]
    return MirrorState(
        tuple(one for one in decoded_records if isinstance(one, MirrorPosition)),
        tuple(one for one in decoded_records if not isinstance(one, MirrorPosition)),
    )


def mirrored_from(
    admin: Admin, cluster: str, limits: ReadLimits, *, but: frozenset[str] = frozenset()
) -> dict[str, list[MirrorPosition]]:
    """Positions of mirrors from the cluster of this id to admin's cluster, by positions topic.

    but: positions topics to ignore.
    """
    found = {
        topic: [one for one in read_state(admin, topic, limits).positions if one.cluster == cluster]
        for topic in admin.list_topics(include_internal=True)
        if _TOPIC.fullmatch(topic) and topic not in but
    }
    return {topic: positions for topic, positions in found.items() if positions}


def write_positions(
    producer: Producer,
    topic: str,
    cluster: str,
    positions: LoadedOffsets,
    targets: Mapping[str, str],
    syncs: Mapping[TopicPartition, OffsetSyncs],
    changed: Iterable[TopicPartition],
    complete: Collection[TopicPartition] = (),
) -> None:
    """Send the positions of these partitions; call it in the transaction of their records."""
    for source in changed:
        key = _key(cluster, source)
        value = {
            "offset": positions.offsets[source],
            "to": targets[source.topic],
            "topic_id": positions.topic_ids[source.topic],
            "syncs": [[*map(int, piece)] for piece in syncs.get(source, OffsetSyncs()).pieces],
            "complete": int(source in complete),
        }
        producer.send(topic, key=_json(key), value=_json(value), partition=0)


def write_note(
    producer: Producer, topic: str, cluster: str, name: str, content: Mapping[str, object]
) -> Future[RecordMetadata]:
    """Send a note; within a transaction if one is open."""
    key = {"cluster": cluster, "note": name}
    return producer.send(topic, key=_json(key), value=_json(content), partition=0)


def withdraw_positions(
    producer: Producer, topic: str, cluster: str, partitions: Iterable[TopicPartition]
) -> None:
    """Delete the positions of these partitions; call it in a transaction."""
    for source in partitions:
        producer.send(topic, key=_json(_key(cluster, source)), value=None, partition=0)


def _key(cluster: str, source: TopicPartition) -> dict[str, object]:
    return {"cluster": cluster, "topic": source.topic, "partition": source.partition}


def of_these_topics(
    positions: Iterable[MirrorPosition], topic_ids: Mapping[str, str]
) -> list[MirrorPosition]:
    """Positions without those of a former topic of the same name, if the current topic has any.

    A topic that was recreated with fewer partitions leaves positions of the others behind.
    """
    known = list(positions)
    current = {one.source.topic for one in known if topic_ids.get(one.source.topic) == one.topic_id}
    return [
        one
        for one in known
        if one.source.topic not in current or topic_ids[one.source.topic] == one.topic_id
    ]


def as_offsets(positions: Iterable[MirrorPosition]) -> LoadedOffsets:
    known = list(positions)
    return LoadedOffsets(
        {one.source: one.offset for one in known},
        {one.source.topic: one.topic_id for one in known},
    )


def _decode(key: bytes | None, value: bytes) -> MirrorPosition | tuple[str, str, Mapping[str, Any]]:
    """Decode a record. Raises ValueError for one that no mirror wrote."""
    try:
        of, at = json.loads(key or b""), json.loads(value)
        if "note" in of:
            return str(of["cluster"]), str(of["note"]), dict(at)
        return MirrorPosition(
            str(of["cluster"]),
            TopicPartition(str(of["topic"]), int(of["partition"])),
            str(at["to"]),
            str(at["topic_id"]),
            int(at["offset"]),
            OffsetSyncs(tuple(read_sync(each) for each in at["syncs"])),
            bool(at.get("complete", 0)),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a position of a mirror: {key!r}: {value!r}") from error


def read_sync(numbers: Sequence[int]) -> OffsetSync:
    source_start, source_end, target_start, target_end, is_exact = map(int, numbers)
    return OffsetSync(source_start, source_end, target_start, target_end, bool(is_exact))


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()

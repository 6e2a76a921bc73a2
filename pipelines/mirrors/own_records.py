"""Records that no mirror copied, in a topic that is left out because a mirror fills it.

With the policy identity, a topic has the same name in both clusters. Of mirrors in both directions
the later one leaves the topic out, as records would otherwise be copied back and forth forever;
records that producers send to its source are then never copied.
(MirrorMaker 2's IdentityReplicationPolicy is not for both ways either: it cannot detect a cycle.)

Invariants: a record that is found was copied by no mirror from the other cluster. Only offsets
between the pieces of the positions are searched, which were committed in the same transactions as
the records; and only in topics whose positions are marked complete. Records within a piece are not
found: joined pieces also cover the offsets between them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ...clients.admin.admin import Admin
from ...protocol.topic_partition import TopicPartition
from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.range_reader import RangeReader
from ..ranges.reading_client import reading_client
from . import mirror_positions
from .mirror_positions import MirrorPosition

logger = logging.getLogger(__name__)

DECIDED_SECONDS: Final = 2.0
"""Seconds to wait for the ends of transactions in positions topics."""
LOOK_SECONDS: Final = 0.1


class OwnRecord(NamedTuple):
    """Record that no mirror copied. positions_topic: of the mirror that fills its topic."""

    partition: TopicPartition
    offset: int
    positions_topic: str


def find_own_record(
    admin: Admin,
    cluster: str,
    topics: Collection[str],
    limits: ReadLimits,
    *,
    but: frozenset[str] = frozenset(),
) -> OwnRecord | None:
    """Find the first record in these topics of admin's cluster that no mirror of `cluster` copied.

    Topics that a mirror filled under another name are not searched: they belong to it.

    but: positions topics to ignore.

    Returns:
        None: there is none, or it is not known.
    """
    described = admin.describe_topics(sorted(topics))
    keys = [
        TopicPartition(each.name, one.partition) for each in described for one in each.partitions
    ]
    starts = {key: at.offset for key, at in admin.list_offsets(keys, "earliest").items()}
    stable = admin.list_offsets(keys, isolation_level="read_committed")
    # Positions are read after the records' ends, once the transactions up to there are decided.
    fillings = mirror_positions.mirrored_from(admin, cluster, limits, but=but)
    if not _are_decided(admin, list(fillings)):
        logger.warning(
            "cannot check excluded topics for local records: transactions are open; retrying"
        )
        return None
    fillings = mirror_positions.mirrored_from(admin, cluster, limits, but=but)
    known = [
        (name, one)
        for name, positions in fillings.items()
        for one in positions
        if one.target in topics
    ]
    for topic in sorted(topics):
        mine = [one for _, one in known if one.target == topic]
        by = [name for name, one in known if one.target == topic == one.source.topic]
        if not by or not all(one.is_complete for one in mine):
            continue
        for key in (key for key in keys if key.topic == topic):
            here = [one for one in mine if one.source.partition == key.partition]
            for start, end in _gaps(here, starts[key], stable[key].offset):
                offset = _first_record(admin, PartitionRange(*key, start, end), limits)
                if offset is not None:
                    return OwnRecord(key, offset, by[0])
    return None


def _are_decided(admin: Admin, topics: Sequence[str]) -> bool:
    """Wait until each topic was without an open transaction once; False: not in DECIDED_SECONDS.

    A transaction's markers are written to its partitions one after another, so records may be
    visible a little before the position that was committed with them.
    """
    deadline = time.monotonic() + DECIDED_SECONDS
    undecided = [TopicPartition(topic, 0) for topic in topics]
    while undecided:
        stable = admin.list_offsets(undecided, isolation_level="read_committed")
        ends = admin.list_offsets(undecided)
        undecided = [key for key in undecided if stable[key].offset < ends[key].offset]
        if undecided and time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS if undecided else 0)
    return True


def _gaps(positions: Sequence[MirrorPosition], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets in [start, end) that no piece covers."""
    pieces = sorted(
        (piece.target_start, piece.target_end) for one in positions for piece in one.syncs.pieces
    )
    is_behind_piece = False
    for piece_start, piece_end in [*pieces, (end, end)]:
        # Behind a piece is the marker of its transaction, at least.
        if min(piece_start, end) - start > is_behind_piece:
            yield start, min(piece_start, end)
        if piece_end > start:
            start, is_behind_piece = piece_end, True


def _first_record(admin: Admin, where: PartitionRange, limits: ReadLimits) -> int | None:
    limits = replace(limits, fail_on_data_loss=False)
    client = reading_client(admin.bootstrap_servers, limits.fetch)
    with RangeReader(client, limits) as reader:
        for decoded in reader.read([where]):
            if len(decoded):
                return int(decoded.offsets[0])
    return None

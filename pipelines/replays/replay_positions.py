"""Positions of replays: a compacted topic of the cluster, written in the records' transactions.

    replay-positions.internal
        key    {"replay": its name}
        value  {"table": its id, "to": topic, "topic_id": ..., "part": number, "whole": bool,
                "rows": of that part that are in the topic, "done": bool, "digest": of its files,
                "order": [columns]}

Invariants: the first `rows` rows of that part, in that order, and all of the parts before
it are in the topic, and no other rows of the table: the position is committed with them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...clients.admin.admin import Admin
from ...clients.producer.producer import Producer
from ...protocol.errors import TopicAlreadyExists
from ..ranges.partition_range import ReadLimits
from ..ranges.reading_client import reading_client
from ..ranges.shared_positions import shared_positions

POSITIONS: Final = "replay-positions.internal"


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """Position of one replay; for its fields see the module docstring."""

    table: str
    to: str
    topic_id: str
    part: int
    whole: bool
    rows: int
    done: bool
    digest: str
    order: tuple[str, ...]


def make_positions_topic(admin: Admin, replicas: int) -> None:
    """Create the topic of positions if it does not exist.

    replicas: as many as the topic has that is written to, so that a replay outlives as many nodes.
    """
    if POSITIONS in admin.list_topics(include_internal=True):
        return
    try:
        admin.create_topic(POSITIONS, 1, replicas, configs={"cleanup.policy": "compact"})
    except TopicAlreadyExists:
        pass


def read_position(bootstrap: str, name: str, limits: ReadLimits) -> ReplayPosition | None:
    """The position last committed under this name; None: there is none.

    Raises ValueError for a record that no replay wrote.
    """
    client = reading_client(bootstrap, limits.fetch)
    own, found = _key(name), None
    for key, value in shared_positions(client, POSITIONS, limits):
        if key == own:
            found = value
    if found is None:
        return None
    try:
        content: dict[str, Any] = json.loads(found)
        return ReplayPosition(**{**content, "order": tuple(content["order"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a position of a replay: {found!r}") from error


def write_position(producer: Producer, name: str, position: ReplayPosition) -> None:
    """Send a position; call it in the transaction of the records."""
    value = json.dumps(asdict(position), separators=(",", ":"))
    producer.send(POSITIONS, key=_key(name), value=value.encode(), partition=0)


def _key(name: str) -> bytes:
    return json.dumps({"replay": name}, separators=(",", ":")).encode()

"""Files of committed offsets.

    CSV    topic,partition,offset            what kafka-consumer-groups --from-file reads
           group,topic,partition,offset      the same of several groups, as its --export writes
    JSON   {"version": 1, "group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 5,
            "leader_epoch": 0, "metadata": ""}]}

CSV fields may be quoted. JSON also has the leader epochs and metadata, which CSV does not.

Invariants: a file with an error in it changes nothing; the error names the line.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.failure import CommandFailed, UsageError
from ..terminal.output import print_json

if TYPE_CHECKING:
    from ...clients.admin.group_offsets_admin import CommittedOffset
    from ...protocol.topic_partition import TopicPartition

VERSION = 1
STDIN = "-"


def read_offsets(path: Path, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Read the offsets of `group` from a file; those of other groups are ignored.

    Raises:
        UsageError: there is no such file.
        CommandFailed: not a file of offsets, none of this group, or a partition is listed twice.
    """
    if str(path) == STDIN:
        text = sys.stdin.read()
    else:
        try:
            text = path.read_text()
        except FileNotFoundError:
            raise UsageError(f"{path} is not there; `bradbury groups export` writes one") from None
        except UnicodeDecodeError:
            raise CommandFailed(
                f"{path} is not text; `bradbury groups export` writes one"
            ) from None
    rows = _of_json(path, text, group) if text.lstrip().startswith("{") else _of_csv(path, text)
    from ...protocol.topic_partition import TopicPartition

    found: dict[TopicPartition, CommittedOffset] = {}
    for number, owner, topic, partition, committed in rows:
        if owner is not None and owner != group:
            continue
        key = TopicPartition(topic, partition)
        if key in found:
            raise CommandFailed(f"{path}, line {number}: {topic}-{partition} is listed twice")
        found[key] = committed
    if not found:
        raise CommandFailed(
            f"{path} has no offsets of group {group!r}; a line is topic,partition,offset"
        )
    return found


Row = tuple[int, str | None, str, int, "CommittedOffset"]
"""Row of a file: (line, group or None, topic, partition, offset)."""


def _of_csv(path: Path, text: str) -> list[Row]:
    from ...clients.admin.group_offsets_admin import CommittedOffset

    rows: list[Row] = []
    for number, words in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), start=1):
        if not words:
            continue
        try:
            *names, partition, offset = words
            if len(names) not in (1, 2) or not names[-1]:
                raise ValueError
            rows.append(
                (
                    number,
                    names[0] if len(names) == 2 else None,
                    names[-1],
                    _number(partition),
                    CommittedOffset(_number(offset)),
                )
            )
        except ValueError:
            line = ",".join(words)
            raise CommandFailed(
                f"{path}, line {number}: {line[:80]!r} is not topic,partition,offset"
            ) from None
    return rows


def _of_json(path: Path, text: str, group: str) -> list[Row]:
    from ...clients.admin.group_offsets_admin import CommittedOffset

    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise CommandFailed(f"{path} has version {document['version']}; {VERSION} can be read")
        return [
            (
                number,
                group,  # a file of one group may be given to another
                str(one["topic"]),
                _number(one["partition"]),
                CommittedOffset(
                    _number(one["offset"]),
                    int(one.get("leader_epoch", -1)),
                    str(one.get("metadata") or ""),
                ),
            )
            for number, one in enumerate(document["offsets"], start=1)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(
            f"{path} is not a file of `bradbury groups export --json` ({error})"
        ) from None


def _number(value: object) -> int:
    """Return a whole number of 0 or more. Raises ValueError for any other value."""
    number = int(str(value))
    if number < 0:
        raise ValueError(f"{number} is below 0")
    return number


def write_csv(rows: Iterable[tuple[object, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(rows)


def write_json(group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    described: list[dict[str, Any]] = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "offset": one.offset,
            "leader_epoch": one.leader_epoch,
            "metadata": one.metadata,
        }
        for key, one in offsets.items()
    ]
    print_json({"version": VERSION, "group": group, "offsets": described})

"""What happened in a run of groups, as values; the files it is kept in are lines of JSON.

    produced.jsonl          {"partition", "offset", "value"}           one per acknowledged record
    <member>.jsonl          {"event", "time", ...}                      what a member saw and did
    <member>.out            lines of Kafka's console consumer           the same, of Java
    nemesis.jsonl           {"event", "time", ...}                      what was done to them
    log.jsonl               {"record": "commit" | "generation", ...}    __consumer_offsets, in order

Times are seconds of CLOCK_MONOTONIC, which all processes of a machine share. Every line is written
at once, before what follows from it is done (records before their commit): so what a member did not
live to write, it did not do. A last line that was cut off by a kill is no line.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

JAVA_LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t(\d+)")


@dataclass(frozen=True)
class Acknowledged:
    """A record that its producer was told is in the log. The values of a run are unique."""

    partition: int
    offset: int
    value: int


@dataclass(frozen=True)
class Seen:
    """A record that a member was handed, and processed."""

    group: str
    process: str
    partition: int
    offset: int
    value: int


@dataclass(frozen=True)
class Assigned:
    """What a member was told it owns. generation: None where its client does not tell."""

    group: str
    process: str
    member_id: str
    generation: int | None
    partitions: frozenset[int]


@dataclass(frozen=True)
class Commit:
    """A commit in `__consumer_offsets`, in the order of the log."""

    group: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Generation:
    """A group's metadata in `__consumer_offsets`, in the order of the log.

    owners: partitions by member; a static member goes by its instance id, as it may come back
    under another member id within one generation.
    """

    group: str
    generation: int
    owners: dict[str, frozenset[int]]
    instances: dict[str, str] = field(default_factory=dict)
    """Instance id by member id."""


@dataclass
class History:
    """partitions: of the one topic. groups: that read all of it."""

    partitions: int
    groups: tuple[str, ...]
    acknowledged: list[Acknowledged] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    assigned: list[Assigned] = field(default_factory=list)
    log: list[Commit | Generation] = field(default_factory=list)


class Lines:
    """A file of JSON lines, each given to the operating system at once: a kill -9 loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields).encode() + b"\n")

    def event(self, event: str, **fields: Any) -> None:
        self.write(event=event, time=round(time.monotonic(), 3), **fields)

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)


# --- a run's folder ------------------------------------------------------------------------------


def write_log(folder: Path, log: Iterable[Commit | Generation]) -> None:
    lines = Lines(folder / "log.jsonl")
    for one in log:
        if isinstance(one, Commit):
            lines.write(record="commit", **asdict(one))
        else:
            owners = {member: sorted(owned) for member, owned in one.owners.items()}
            lines.write(
                record="generation",
                group=one.group,
                generation=one.generation,
                owners=owners,
                instances=one.instances,
            )
    lines.close()


def write_plan(folder: Path, partitions: int, processes: dict[str, str]) -> None:
    """processes: the group of each."""
    plan = {"partitions": partitions, "processes": processes}
    (folder / "plan.json").write_text(json.dumps(plan))


def read_history(folder: Path) -> History:
    """All that the files of a run say."""
    plan = json.loads((folder / "plan.json").read_text())
    groups: dict[str, str] = plan["processes"]
    history = History(plan["partitions"], tuple(sorted(set(groups.values()))))
    for line in read_lines(folder / "produced.jsonl"):
        history.acknowledged.append(Acknowledged(**line))
    _read_members(history, folder, groups)
    for line in read_lines(folder / "log.jsonl"):
        kind = line.pop("record")
        if kind == "commit":
            history.log.append(Commit(**line))
        else:
            owners = {member: frozenset(owned) for member, owned in line.pop("owners").items()}
            history.log.append(Generation(owners=owners, **line))
    return history


def who_has_read(folder: Path, processes: Iterable[str]) -> set[str]:
    """The members that have been given a record by now."""
    history = History(0, ())
    _read_members(history, folder, dict.fromkeys(processes, ""))
    return {one.process for one in history.seen}


def _read_members(history: History, folder: Path, groups: Mapping[str, str]) -> None:
    for process, group in groups.items():
        if (path := folder / f"{process}.jsonl").is_file():
            _read_member(history, path, process, group)
        if (path := folder / f"{process}.out").is_file():
            _read_java(history, path, process, group)


def _read_member(history: History, path: Path, process: str, group: str) -> None:
    for line in read_lines(path):
        if line["event"] == "records":
            for partition, records in line["records"].items():
                history.seen += [
                    Seen(group, process, int(partition), offset, value) for offset, value in records
                ]
        elif line["event"] == "assigned":
            history.assigned.append(
                Assigned(
                    group,
                    process,
                    line["member_id"],
                    line["generation"],
                    frozenset(line["partitions"]),
                )
            )


def _read_java(history: History, path: Path, process: str, group: str) -> None:
    for line in path.read_bytes().splitlines(keepends=True):
        found = JAVA_LINE.fullmatch(line.decode(errors="replace").rstrip("\n"))
        if found and line.endswith(b"\n"):
            partition, offset, value = map(int, found.groups())
            history.seen.append(Seen(group, process, partition, offset, value))

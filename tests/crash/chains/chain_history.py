"""What happened in a run of transactions, as values; and the files it is kept in, lines of JSON.

    <source>.jsonl     {"event": "ready"}                     it is the only one of its transactional id
                       {"event": "begin", "number"}           before the first record is sent
                       {"event": "committed", "number"}       it was told so
                       {"event": "aborted", "number"}         the same
                       {"event": "failed", "number", "error"} nobody knows, or it is fenced
    <reader>.jsonl     {"event": "records", "records": {"topic/partition": [[offset, value], ...]}}
    stable.jsonl       {"event": "asked", "begin", "stable": {"topic/partition": offset}, "ends": {...}}
    faults.jsonl       {"event": "fault", "what", ...}
    plan.json          topics in the order of the chain, partitions, sources by id, readers
    end.json           committed offsets of each group in the end

Every line has "time", nanoseconds of CLOCK_MONOTONIC. A record's value says what it is:

    source-1-2:17:3:8:c:34    process, its transaction's number, the record's in it, of how many,
                              c: to be committed, a: to be aborted; an amount

The amounts of a transaction sum up to zero. A copier appends "!" to what it is going to abort.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bradbury.tests.crash.history import Lines, write_json
from bradbury.tests.groups_soak.history import read_lines

ABORTED_COPY = "!"
Place = tuple[str, int]
"""topic, partition"""


class Part(NamedTuple):
    """A record of a transaction, as its value says."""

    process: str
    number: int
    index: int
    size: int
    verdict: str
    amount: int


def write_part(part: Part) -> str:
    return ":".join(map(str, part))


def read_part(value: str) -> Part:
    process, number, index, size, verdict, amount = value.split(":")
    return Part(process, int(number), int(index), int(size), verdict, int(amount))


@dataclass(slots=True)
class Transaction:
    """One of a source. outcome: what the source was told; "info" is nothing it could trust."""

    process: str
    number: int
    begin: int
    end: int | None = None
    outcome: Literal["committed", "aborted", "info"] = "info"


@dataclass(slots=True)
class Source:
    """A process with a transactional id. ready: it was initialised then; None if it never was."""

    name: str
    transactional_id: str
    ready: int | None = None
    transactions: dict[int, Transaction] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Asked:
    """Last stable offsets and ends (high watermarks) as somebody was told who asked at `begin`."""

    begin: int
    end: int
    stable: dict[Place, int]
    ends: dict[Place, int]


@dataclass(slots=True)
class Reading:
    """All that a read_committed reader was handed, by place and in its order."""

    name: str
    records: dict[Place, list[tuple[int, str]]] = field(default_factory=dict)


@dataclass(slots=True)
class ChainHistory:
    """topics: in the order in which records go. final: read from the beginning after all faults.

    committed: of the group that reads a place, where it has come to in the end.
    """

    topics: list[str]
    partitions: int
    sources: list[Source] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    final: Reading = field(default_factory=lambda: Reading("final"))
    asked: list[Asked] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)
    faults: int = 0


# --- a run's folder ------------------------------------------------------------------------------


def read_chain_history(folder: Path) -> ChainHistory:
    plan = json.loads((folder / "plan.json").read_text())
    history = ChainHistory(plan["topics"], plan["partitions"])
    for name, transactional_id in plan["sources"].items():
        lines = _lines_of(folder / f"{name}.jsonl")
        history.sources.append(_read_source(Source(name, transactional_id), lines))
    for name in plan["readers"]:
        history.readings.append(_read_reading(name, _lines_of(folder / f"{name}.jsonl")))
    history.final = _read_reading("final", _lines_of(folder / "final.jsonl"))
    history.asked = [
        Asked(line["begin"], line["time"], _by_place(line["stable"]), _by_place(line["ends"]))
        for line in _lines_of(folder / "stable.jsonl")
    ]
    history.faults = sum(line["event"] == "fault" for line in _lines_of(folder / "faults.jsonl"))
    if (folder / "end.json").is_file():
        history.committed = _by_place(json.loads((folder / "end.json").read_text()))
    return history


def _lines_of(path: Path) -> Iterable[dict[str, Any]]:
    return read_lines(path) if path.is_file() else ()


def _by_place(content: dict[str, Any]) -> dict[Place, Any]:
    found = {}
    for name, value in content.items():
        topic, _, partition = name.rpartition("/")
        found[topic, int(partition)] = value
    return found


def _read_source(source: Source, lines: Iterable[dict[str, Any]]) -> Source:
    for line in lines:
        match line["event"]:
            case "ready":
                source.ready = line["time"]
            case "begin":
                number = line["number"]
                source.transactions[number] = Transaction(source.name, number, line["time"])
            case "committed" | "aborted" as outcome:
                transaction = source.transactions[line["number"]]
                transaction.outcome, transaction.end = outcome, line["time"]
    return source


def _read_reading(name: str, lines: Iterable[dict[str, Any]]) -> Reading:
    reading = Reading(name)
    for line in lines:
        if line["event"] == "records":
            for place, records in _by_place(line["records"]).items():
                found = reading.records.setdefault(place, [])
                found += [(offset, value) for offset, value in records]
    return reading


__all__ = [
    "ABORTED_COPY",
    "Asked",
    "ChainHistory",
    "Lines",
    "Part",
    "Place",
    "Reading",
    "Source",
    "Transaction",
    "read_chain_history",
    "read_part",
    "write_json",
    "write_part",
]

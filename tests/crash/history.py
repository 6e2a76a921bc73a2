"""What happened in a run, as values; and the files it is kept in, which are lines of JSON.

    <writer>.jsonl     {"event": "send", "first", "count"}         values first, first + 1, ...
                       {"event": "acked", "records": [[partition, offset, value], ...]}
                       {"event": "failed", "values": [...], "error", "certain"}
    <reader>.jsonl     {"event": "assigned"}                        it begins again, from the beginning
                       {"event": "records", "records": {partition: [[offset, value], ...]}}
    <member>.jsonl     the same events, as members of a group write them (see groups_soak.history)
    offsets.jsonl      {"event": "fetched", "group", "begin", "offsets": {partition: offset}}
    faults.jsonl       {"event": "fault", "what", ...}               what was done to the brokers
    watch.jsonl        {"event": "state", "leaders": [...], "in_sync": [...]}   when they changed
    plan.json          partitions, groups, names of the final readers
    end.json           what the cluster and its groups were like in the end

Every line has "time", nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share (in
members' lines: seconds). A send is written down before it is done and an answer after it came, so
the times enclose what happened. Value v goes to partition v % partitions, and is written once.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bradbury.tests.groups_soak.history import Lines, read_lines

WRITER_VALUES = 10**12
"""Values of writer n begin at n times as much."""
SECOND = 10**9


@dataclass(slots=True)
class Send:
    """A record on its way. end and offset: of its acknowledgement.

    outcome: "ok" it is in the log; "fail" it surely is not; "info" nobody knows.
    """

    process: str
    partition: int
    value: int
    begin: int
    end: int | None = None
    outcome: Literal["ok", "fail", "info"] = "info"
    offset: int | None = None


@dataclass(slots=True, frozen=True)
class Poll:
    """What a reader was handed of one partition at once.

    span: grows when the process was assigned again. in_group: others assign it partitions.
    final: read from the beginning after all faults.
    """

    process: str
    span: int
    partition: int
    time: int
    records: tuple[tuple[int, int], ...]
    in_group: bool = False
    final: bool = False


@dataclass(slots=True, frozen=True)
class Committed:
    """A group was told at `end` that an offset is committed."""

    group: str
    partition: int
    offset: int
    end: int


@dataclass(slots=True, frozen=True)
class Fetched:
    """A committed offset as somebody was told who began to ask at `begin`."""

    group: str
    partition: int
    offset: int
    begin: int


@dataclass(slots=True, frozen=True)
class Fault:
    """What was done to the brokers, and when."""

    what: str
    time: int


@dataclass(slots=True, frozen=True)
class State:
    """What Metadata said from `time` on: of each partition the leader (-1: none) and ISR's size."""

    time: int
    leaders: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(slots=True)
class EndState:
    """in_sync: replicas of each partition in the ISR. lags, states: of each group."""

    replication_factor: int = 0
    in_sync: dict[int, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    partitions: int
    idempotent: bool = True
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    end: EndState = field(default_factory=EndState)


# --- a run's folder ------------------------------------------------------------------------------


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


def read_history(folder: Path) -> History:
    """All that the files of a run say."""
    plan = json.loads((folder / "plan.json").read_text())
    history = History(plan["partitions"], plan["idempotent"])
    for name in plan["writers"]:
        history.sends += _read_writer(read_lines(folder / f"{name}.jsonl"), name, plan)
    for name, group in plan["readers"].items():
        lines = read_lines(folder / f"{name}.jsonl")
        _read_reader(history, lines, name, group, is_final=name in plan["final"])
    for line in _lines_of(folder / "offsets.jsonl"):
        if line["event"] == "fetched":
            history.fetched += [
                Fetched(line["group"], int(partition), offset, line["begin"])
                for partition, offset in line["offsets"].items()
            ]
    history.faults = [
        Fault(line["what"], line["time"])
        for line in _lines_of(folder / "faults.jsonl")
        if line["event"] == "fault"
    ]
    history.states = [
        State(line["time"], tuple(line["leaders"]), tuple(line["in_sync"]))
        for line in _lines_of(folder / "watch.jsonl")
    ]
    if (folder / "end.json").is_file():
        history.end = _read_end(json.loads((folder / "end.json").read_text()))
    return history


def _lines_of(path: Path) -> Iterable[dict[str, Any]]:
    return read_lines(path) if path.is_file() else ()


def _read_end(content: dict[str, Any]) -> EndState:
    in_sync = {int(number): count for number, count in content.pop("in_sync").items()}
    return EndState(in_sync=in_sync, **content)


def _read_writer(
    lines: Iterable[dict[str, Any]], name: str, plan: dict[str, Any]
) -> Iterable[Send]:
    sends: dict[int, Send] = {}
    session = 0
    for line in lines:
        match line["event"]:
            case "session":  # what a client forgets in the middle is not its order any more
                session += 1
            case "send":
                for value in range(line["first"], line["first"] + line["count"]):
                    process = f"{name}/{session}"
                    partition = value % plan["partitions"]
                    sends[value] = Send(process, partition, value, line["time"])
            case "acked":
                for partition, offset, value in line["records"]:
                    send = sends[value]
                    assert partition == send.partition, f"{value} went to partition {partition}"
                    send.outcome, send.end = "ok", line["time"]
                    send.offset = None if offset is None or offset < 0 else offset
            case "failed":
                for value in line["values"]:
                    sends[value].outcome = "fail" if line["certain"] else "info"
    return sends.values()


def _read_reader(
    history: History,
    lines: Iterable[dict[str, Any]],
    name: str,
    group: str | None,
    *,
    is_final: bool,
) -> None:
    span = 0
    for line in lines:
        time = line["time"] if group is None else int(line["time"] * SECOND)
        match line["event"]:
            case "assigned" | "revoked" | "lost":
                span += 1
            case "records":
                for partition, records in line["records"].items():
                    found = tuple((offset, value) for offset, value in records)
                    history.polls.append(
                        Poll(name, span, int(partition), time, found, group is not None, is_final)
                    )
            case "committed" if group is not None:
                history.committed += [
                    Committed(group, int(partition), offset, time)
                    for partition, offset in line["offsets"].items()
                ]


__all__ = [
    "SECOND",
    "WRITER_VALUES",
    "Committed",
    "EndState",
    "Fault",
    "Fetched",
    "History",
    "Lines",
    "Poll",
    "Send",
    "State",
    "read_history",
    "write_json",
]

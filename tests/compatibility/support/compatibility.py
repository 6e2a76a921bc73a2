"""What foreign clients really ran against Bradbury: recorded by tests, rendered as a document.

    .cache/compatibility.json   {tool: {"version", "calls": {call: {"outcome", "note", "deep"}}}}

An outcome is "works", "refused" (not there yet, and the client was told so by a clear error, which is
the note) or "fails". Deep calls are made by tests with that mark, which only `make compatibility`
runs. `python -m bradbury.tests.compatibility.support.compatibility` renders docs/compatibility.md.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypedDict

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECORDS = ROOT / ".cache" / "compatibility.json"
DOCUMENT = ROOT / "docs" / "compatibility.md"
SIGNS = {"works": "yes", "refused": "not yet", "fails": "**fails**"}
MAX_NOTE = 150
DEEP = "deep"

HEAD = """# Compatibility

The calls of each client that were tested against a Bradbury cluster. `make compatibility` generates
this file from the tests in tests/compatibility: it lists a call only if a test made it and checked
the result.

*yes*: the call behaves as with Apache Kafka. *not yet*: refused with a clear error, which is
quoted. *fails*: its test failed in the run that generated this file. A run omits tools that are not
installed. *deep*: tested by `make compatibility` only; `make test` or `make test-long` run all
others, too.

"""


class Call(TypedDict):
    outcome: str
    note: str
    deep: bool


class Claim(NamedTuple):
    """What the document says of a call."""

    outcome: str
    deep: bool


class Ran(NamedTuple):
    """What a tool left behind."""

    code: int
    out: str
    err: str


class Tool:
    """The calls of one client, and how they ended."""

    def __init__(self, name: str, version: str, *, deep: bool = False) -> None:
        self.name = name
        self.version = version
        self.deep = deep
        self.calls: dict[str, Call] = {}

    @contextmanager
    def call(self, *names: str) -> Iterator[None]:
        """The block makes these calls; they work if it ends."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, pytest.skip.Exception):
                self._note(names, "fails", type(error).__name__)
            raise
        self._note(names, "works", "")

    def works(self, *names: str) -> None:
        self._note(names, "works", "")

    def refused(self, name: str, reason: str) -> None:
        """The client was told `reason`: a text for people, and not empty."""
        reason = " ".join(reason.split())
        assert reason
        self._note((name,), "refused", reason[:MAX_NOTE])

    def _note(self, names: tuple[str, ...], outcome: str, note: str) -> None:
        for name in names:
            deep = self.deep and self.calls.get(name, {"deep": True})["deep"]
            self.calls[name] = {"outcome": outcome, "note": note, "deep": deep}


class Recorder:
    """All tools of one test run, on top of what earlier runs wrote down."""

    def __init__(self, before: dict[str, dict]) -> None:
        self._before = before
        self._tools: dict[str, Tool] = {}
        self.deep = False  # the test that runs

    @classmethod
    def load(cls) -> "Recorder":
        return cls(json.loads(RECORDS.read_text()) if RECORDS.is_file() else {})

    def tool(self, name: str, version: str) -> Tool:
        tool = self._tools.setdefault(name, Tool(name, version))
        tool.deep = self.deep
        return tool

    def records(self) -> dict[str, dict]:
        """Calls made now count for more; those of another version of a tool are forgotten. A tool
        that was asked for and made none is not here (Go without its compiler).
        """
        merged = {name: tool for name, tool in self._before.items() if tool["calls"]}
        for name, tool in self._tools.items():
            if not tool.calls:
                continue
            before = merged.get(name, {})
            calls = before["calls"] if before.get("version") == tool.version else {}
            merged[name] = {"version": tool.version, "calls": {**calls, **tool.calls}}
        return merged

    def save(self) -> None:
        if self._tools:
            RECORDS.parent.mkdir(exist_ok=True)
            RECORDS.write_text(json.dumps(self.records(), indent=1, sort_keys=True))


def render(records: dict[str, dict]) -> str:
    """The document."""
    parts = [HEAD, "| client | version | calls | work | not yet |\n|---|---|---|---|---|\n"]
    for name, tool in sorted(records.items(), key=lambda item: item[0].lower()):
        outcomes = [call["outcome"] for call in tool["calls"].values()]
        works, refused = outcomes.count("works"), outcomes.count("refused")
        parts.append(f"| {name} | {tool['version']} | {len(outcomes)} | {works} | {refused} |\n")
    for name, tool in sorted(records.items(), key=lambda item: item[0].lower()):
        parts.append(f"\n## {name} · {tool['version']}\n\n| call | | |\n|---|---|---|\n")
        for call, found in sorted(tool["calls"].items()):
            notes = [DEEP] if found["deep"] else []
            notes += [found["note"].replace("|", "\\|")] if found["note"] else []
            parts.append(f"| `{call}` | {SIGNS[found['outcome']]} | {': '.join(notes)} |\n")
    return "".join(parts)


def claims(document: str) -> dict[tuple[str, str], dict[str, Claim]]:
    """What a document says: (tool, version) -> call -> outcome."""
    outcomes = {sign: outcome for outcome, sign in SIGNS.items()}
    found: dict[tuple[str, str], dict[str, Claim]] = {}
    calls: dict[str, Claim] = {}
    for line in document.splitlines():
        if line.startswith("## "):
            name, _, version = line[3:].rpartition(" · ")
            calls = found.setdefault((name, version), {})
        elif row := re.fullmatch(r"\| `(.+?)` \| (.+?) \| (.*) \|", line):
            calls[row[1]] = Claim(outcomes[row[2]], row[3].partition(":")[0] == DEEP)
    return found


if __name__ == "__main__":
    DOCUMENT.write_text(render(json.loads(RECORDS.read_text())))

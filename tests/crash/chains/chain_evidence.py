"""What a run that went wrong has left beside its history: what copiers read, and what was logged.

One line each, in order of the file: faults, copiers that went back, positions that librdkafka reset, and
warnings of the actors.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from bradbury.tests.groups_soak.history import read_lines

MOST_LINES = 60
_WARNING = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b")


def evidence(folder: Path) -> list[str]:
    """Of the run in `folder`; no more than MOST_LINES of a kind."""
    found: list[str] = []
    for lines in (_faults(folder), _steps_back(folder), _resets(folder), _warnings(folder)):
        kind = list(lines)
        found += kind[:MOST_LINES]
        if len(kind) > MOST_LINES:
            found.append(f"... and {len(kind) - MOST_LINES} more like that")
    return found


def _faults(folder: Path) -> Iterator[str]:
    for line in read_lines(folder / "faults.jsonl"):
        yield f"at {line['time'] / 1e9:.3f}: {line}"


def _steps_back(folder: Path) -> Iterator[str]:
    """Copiers that were told of, or read from, a place before the one that they had committed."""
    for path in sorted(folder.glob("*.jsonl")):
        known: dict[str, int] = {}
        taken: dict[str, int] = {}
        for line in read_lines(path):
            match line.get("event"):
                case "taken":
                    back = _below(line["first"], known)
                    taken = line["after"]
                case "rewound":
                    back = _below(line["committed"], known)
                case "committed":
                    known.update(taken)
                    back = {}
                case _:
                    continue
            if back:
                yield f"{path.stem}, after it had committed {known}: {line}"


def _below(offsets: dict[str, int], known: dict[str, int]) -> dict[str, int]:
    return {key: offset for key, offset in offsets.items() if offset < known.get(key, -1)}


def _resets(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.err")):
        for line in path.read_text(errors="replace").splitlines():
            if "offset reset" in line or "truncat" in line:
                yield f"{path.stem}: {line}"


def _warnings(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "logs").glob("*.err")):
        for line in path.read_text(errors="replace").splitlines():
            if _WARNING.search(line):
                yield f"{path.stem[-8:]}: {line[:300]}"

"""Vote of a voter on its disk: `quorum-state`, and a copy of it, `quorum-state.copy`.

    {"epoch": 7, "owner": "...", "voters": ["..."], "directory": "...", "catches_up": false,
     "crc32c": 123}

    voters         who voted when this one joined the cluster
    directory      id of the directory, in case its meta.properties is lost
    catches_up     part of its log was lost: it does not vote until it has everything again

Invariants: both files are on the disk before a vote is answered, so the loss of one does no harm:
the vote is that of the newest epoch among the undamaged files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crc32c import crc32c

from ...cluster.quorum.voter import Candidate
from ...storage.disk.checkpoint_file import write_atomically
from ...storage.disk.file_system import FileSystem, read_file

FILE_NAME = "quorum-state"
COPY_NAME = "quorum-state.copy"
CRC = "crc32c"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStateOnDisk:
    """Content of the file, see above. Defaults: nothing was ever stored."""

    vote: Candidate = field(default_factory=Candidate)
    voters: tuple[str, ...] = ()
    directory_id: str = ""
    catches_up: bool = False


class FoundQuorumState(NamedTuple):
    """State found at a start. state: None if no file has it. flaws: messages about damage."""

    state: QuorumStateOnDisk | None
    flaws: tuple[str, ...]
    is_new: bool
    """Whether neither file exists."""


def read_quorum_state(file_system: FileSystem, directory: str) -> FoundQuorumState:
    found: list[QuorumStateOnDisk] = []
    flaws: list[str] = []
    missing = 0
    for name in (FILE_NAME, COPY_NAME):
        path = f"{directory}/{name}"
        try:
            found.append(_decode(read_file(file_system, path)))
        except FileNotFoundError:
            missing += 1
            flaws.append(f"{path} is missing")
        except OSError as error:
            flaws.append(f"{path} cannot be read ({error.strerror or error})")
        except (ValueError, TypeError, AttributeError) as error:
            flaws.append(f"{path} is damaged ({error})")
    newest = max(found, key=lambda each: each.vote.epoch, default=None)
    return FoundQuorumState(newest, tuple(flaws), missing == len((FILE_NAME, COPY_NAME)))


def write_quorum_state(file_system: FileSystem, directory: str, state: QuorumStateOnDisk) -> None:
    """Write both files durably. Raises OSError; then either state may be on the disk."""
    body = {
        "epoch": state.vote.epoch,
        "owner": state.vote.owner,
        "voters": state.voters,
        "directory": state.directory_id,
        "catches_up": state.catches_up,
    }
    data = json.dumps({**body, CRC: _crc(body)}).encode()
    write_atomically(file_system, f"{directory}/{FILE_NAME}", data)
    write_atomically(file_system, f"{directory}/{COPY_NAME}", data)


def _decode(content: bytes) -> QuorumStateOnDisk:
    """Decode a file. Raises ValueError, TypeError, AttributeError: it is not a quorum state."""
    body = json.loads(content.decode())
    if CRC in body and body.pop(CRC) != _crc(body):  # former versions wrote none
        raise ValueError("wrong CRC")
    if "epoch" not in body:
        raise ValueError("no valid epoch")
    voters = tuple(body.get("voters", ()))
    owner = body.get("owner", "")
    if not all(isinstance(each, str) for each in (owner, *voters)):
        raise ValueError("owner or voters are not strings")
    return QuorumStateOnDisk(
        vote=Candidate(epoch=int(body["epoch"]), owner=owner),
        voters=voters,
        directory_id=str(body.get("directory", "")),
        catches_up=bool(body.get("catches_up", False)),
    )


def _crc(body: dict[str, Any]) -> int:
    value: int = crc32c(json.dumps(body, sort_keys=True).encode())
    return value

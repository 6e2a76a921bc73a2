"""Voters as one voter's log names them: its newest record of voters counts, committed or not.

Truncating an entry also removes the voters that it named, and the previous ones apply again; so the
voters are derived from the log, not stored beside it. A snapshot has the voters at its end offset.
Source: raft/.../internals/VoterSetHistory.java in apache/kafka; Raft (Ongaro), 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.buffer import Buffer
from ...protocol.records.record_batch import walk_batches
from ...protocol.records.records import iterate_records
from ..metadata.metadata_records import ClusterRecord, VotersRecord, decode_metadata_record

_MARKS = tuple(f'"type":"{cls.__name__}"'.encode() for cls in (ClusterRecord, VotersRecord))


class VoterHistory:
    """History of the voters. `before`: voters at the beginning of the log."""

    def __init__(self, before: tuple[str, ...] = ()) -> None:
        self._before = before
        self._changes: list[tuple[int, tuple[str, ...]]] = []

    @property
    def newest(self) -> tuple[str, ...]:
        return self._changes[-1][1] if self._changes else self._before

    def append(self, batches: Buffer) -> None:
        """Note batches that were appended to the log."""
        for offset, voters in voters_in(batches):
            self._changes.append((offset, voters))

    def truncate(self, offset: int) -> None:
        """Note that the log was truncated to `offset`."""
        self._changes = [each for each in self._changes if each[0] < offset]

    def compact(self, offset: int) -> None:
        """Note that the log now begins at `offset`."""
        self._before = self._voters_at(offset)
        self._changes = [each for each in self._changes if each[0] >= offset]

    def restart(self, voters: tuple[str, ...]) -> None:
        """Note that the log restarted, empty, with these voters."""
        self._before, self._changes = voters, []

    def _voters_at(self, offset: int) -> tuple[str, ...]:
        return next((voters for at, voters in reversed(self._changes) if at < offset), self._before)


def voters_in(batches: Buffer) -> Iterable[tuple[int, tuple[str, ...]]]:
    """(offset, voters) of each record that names voters, in order.

    Only batches with the type's name in them are opened: what a record says elsewhere is quoted in
    JSON, so it cannot look like that.
    """
    view = memoryview(batches)
    for position, header in walk_batches(view):
        batch = view[position : position + header.size]
        text = bytes(batch)
        if not any(mark in text for mark in _MARKS):
            continue
        for record in iterate_records(batch, check_crc=False):
            fact = decode_metadata_record(record.value or b"")
            if isinstance(fact, ClusterRecord | VotersRecord):
                yield record.offset, fact.voters

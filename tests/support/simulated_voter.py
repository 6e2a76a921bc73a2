"""A metadata voter of the simulation: cluster/voter's rules over a list that outlives processes.

An entry is the records of one batch. Composed as actors/voter_host does: the promise is on the disk
before it is answered, an append before it is acknowledged. What the disk has is kept apart from
what the process knows, so that a planted fault can leave the two different.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bradbury.cluster.metadata_records import ClusterRecord, MetadataRecord, VotersRecord
from bradbury.cluster.voter import (
    NO_SNAPSHOT,
    DoesNotJoin,
    Entry,
    LogEnd,
    Promise,
    on_append,
    on_prepare,
    on_snapshot,
)
from bradbury.protocol.errors import FencedLeaderEpoch


class MetadataEntry(NamedTuple):
    """Records [base_offset, end_offset) that one controller wrote at once."""

    base_offset: int
    end_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]


class VoterState(NamedTuple):
    directory_id: str
    promise: Promise
    end: LogEnd
    voters: tuple[str, ...] = ()
    """As its log says; none if it has no log."""
    snapshot: LogEnd = NO_SNAPSHOT


class Appended(NamedTuple):
    is_there: bool
    offset: int


class Installed(NamedTuple):
    end_offset: int


class SimulatedVoter:
    """The promise and the log of one directory.

    `entries` is all of the log, also what the snapshot stands for: it says the same.
    """

    def __init__(self, directory_id: str) -> None:
        self.directory_id = directory_id
        self.snapshot = NO_SNAPSHOT
        self.promise = Promise()
        self.entries: list[MetadataEntry] = []
        self.promise_on_disk = Promise()
        self.entries_on_disk = 0
        self._committed = 0

    # --- the disk --------------------------------------------------------------------------------

    def keep_promise(self) -> None:
        self.promise_on_disk = self.promise

    def sync(self) -> None:
        self.entries_on_disk = len(self.entries)

    def on_process_death(self) -> None:
        self.promise = self.promise_on_disk
        self._committed = 0

    def on_power_loss(self) -> None:
        self.on_process_death()
        del self.entries[self.entries_on_disk :]

    # --- cluster.voter.VoterLog ------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else 0

    def _number_of(self, offset: int) -> int:
        for number in range(len(self.entries) - 1, -1, -1):
            if self.entries[number].base_offset <= offset:
                return number if offset < self.entries[number].end_offset else -1
        return -1

    def epoch_at(self, offset: int) -> int:
        assert offset >= self.snapshot.offset - 1, "that is no more in the log"
        number = self._number_of(offset)
        return self.entries[number].epoch if number >= 0 else -1

    def epoch_start(self, offset: int) -> int:
        number = self._number_of(offset)
        while number > 0 and self.entries[number - 1].epoch == self.entries[number].epoch:
            number -= 1
        return self.entries[max(0, number)].base_offset

    # --- what a controller asks ------------------------------------------------------------------

    def state(self) -> VoterState:
        epoch = self.entries[-1].epoch if self.entries else -1
        end = LogEnd(epoch, self.log_end_offset)
        return VoterState(self.directory_id, self.promise, end, self.voters(), self.snapshot)

    def voters(self) -> tuple[str, ...]:
        """As the newest record in the log says that names them."""
        for entry in reversed(self.entries):
            for record in reversed(entry.records):
                if isinstance(record, ClusterRecord | VotersRecord):
                    return record.voters
        return ()

    def prepare(self, asked: Promise) -> VoterState | FencedLeaderEpoch:
        try:
            self.promise = on_prepare(self.promise, asked)
        except FencedLeaderEpoch as error:
            return error
        self.keep_promise()
        return self.state()

    def fetch(self, asked: Promise) -> list[MetadataEntry] | FencedLeaderEpoch:
        if self.promise != asked:
            return FencedLeaderEpoch(f"epoch {self.promise.epoch} is promised")
        return list(self.entries)

    def append(
        self, asked: Promise, previous: LogEnd, entries: Sequence[MetadataEntry], committed: int
    ) -> Appended | FencedLeaderEpoch:
        try:
            plan = on_append(
                self.promise,
                asked,
                self,
                previous=previous,
                entries=[Entry(each.base_offset, each.end_offset, each.epoch) for each in entries],
                committed=self._committed,
            )
        except FencedLeaderEpoch as error:
            return error
        self.promise = plan.promise
        self.keep_promise()
        if isinstance(plan, DoesNotJoin):
            return Appended(is_there=False, offset=plan.try_offset)
        if plan.truncate_to is not None:
            while self.entries and self.entries[-1].end_offset > plan.truncate_to:
                self.entries.pop()
            self.entries_on_disk = min(self.entries_on_disk, len(self.entries))
        self.entries += entries[plan.first_missing :]
        self.sync()
        end_offset = entries[-1].end_offset if entries else previous.offset
        self._committed = max(self._committed, min(committed, end_offset))
        return Appended(is_there=True, offset=end_offset)

    def install(
        self, asked: Promise, end: LogEnd, entries: Sequence[MetadataEntry]
    ) -> Installed | FencedLeaderEpoch:
        """Take a snapshot; `entries` are what it stands for."""
        try:
            plan = on_snapshot(self.promise, asked, self, end=end, committed=self._committed)
        except FencedLeaderEpoch as error:
            return error
        self.promise = plan.promise
        self.keep_promise()
        if plan.is_newer:
            if not plan.keeps_log:
                self.entries = list(entries)
            self.snapshot = end
            self.sync()
            self._committed = max(self._committed, end.offset)
        return Installed(end.offset)

"""Rules of the controller's side of the metadata log: votes, each voter's log, the committed
offset.

    1. vote      ask all voters for the epoch; a majority's votes make this controller the only
                 one that can commit from now on
    2. adopt     take over the voters' log with the greatest (epoch, offset), if a majority of
                 the voters that this log lists has granted it: all committed entries are in it,
                 because the majority that has them shares a voter with ours
    3. append    first an entry of the own epoch; it commits only with a majority's
                 acknowledgements, and with it everything before (Raft 5.4.2: entries of former
                 epochs are never committed by counting)

    4. voters    are added and removed one at a time, by an entry of the own epoch behind a
                 committed one of it; they count from that entry on, committed or not (Raft 4.1)

Invariants: `committed` never falls; it covers only entries that a majority has on disk.
The voter's side is voter.py. Not here: sending, waiting, the log's bytes (actors/).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from .voter import NO_SNAPSHOT, Candidate, LogEnd


class MetadataQuorum:
    """State of one controller in one epoch. Voters are identified by their directory ids."""

    def __init__(self, me: Candidate, voters: Collection[str]) -> None:
        self.me = me
        self._voters = frozenset(voters)
        self._granted: dict[str, LogEnd] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._voters_from = 0
        self.acknowledged: dict[str, int] = {}
        """Offset up to which each voter has our log on its disk; without voters that never
        acknowledged.
        """
        self._next: dict[str, int] = {}
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._led_from: int | None = None
        self.snapshots: dict[str, int] = {}
        """End of the snapshot that each voter is known to have; it may not belong to our log."""
        self.start = NO_SNAPSHOT
        """Start of this controller's copy of the log; a snapshot covers everything before it."""
        self.end = LogEnd(-1, 0)
        """End of this controller's copy of the log."""
        self.committed = 0
        """Committed offset: everything before it is committed."""

    @property
    def voters(self) -> frozenset[str]:
        """Current voters, committed or not."""
        return self._voters

    # --- becoming the leader ---------------------------------------------------------------------

    def on_vote(self, voter: str, end: LogEnd, voters: Collection[str] = ()) -> None:
        """Called when `voter` has granted its vote; its log ends at `end`.

        `voters`: the voters that its log lists; empty: the ones that we know. The best log may be
        that of a node that is no voter, but only voters count for a majority.
        """
        self._granted[voter] = end
        self._named[voter] = frozenset(voters) or self._voters

    @property
    def has_majority(self) -> bool:
        """Whether a majority has voted for us, of the voters that the most advanced of their logs
        lists.
        """
        if not self._granted:
            return False
        voters = self._named[self._best()]
        return len(voters & self._granted.keys()) >= self._majority_of(len(voters))

    def best_log(self) -> str:
        """Voter with the most advanced log, which is to be adopted; the first by name of equal
        ones.
        """
        assert self.has_majority, "only the logs of a majority hold all that was committed"
        return self._best()

    def _best(self) -> str:
        return min(self._granted, key=lambda name: (_descending(self._granted[name]), name))

    def adopt(
        self,
        epochs: Collection[tuple[int, int]],
        end: LogEnd,
        *,
        start: LogEnd = NO_SNAPSHOT,
    ) -> None:
        """Adopt the best log: its (epoch, start offset), ascending, its end and its start."""
        assert self._led_from is None
        self.start = start
        self._voters = self._named[self.best_log()]
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]
        self.end = end
        self._led_from = end.offset
        self._next = {name: min(has.offset, end.offset) for name, has in self._granted.items()}

    # --- leading ---------------------------------------------------------------------------------

    def append(self, count: int) -> int:
        """Note that our copy has grown by an entry of `count` records; returns its end offset."""
        assert self._led_from is not None, "adopt() comes first"
        if not self._epochs or self._epochs[-1] != self.me.epoch:
            self._epochs.append(self.me.epoch)
            self._starts.append(self.end.offset)
        self.end = LogEnd(self.me.epoch, self.end.offset + count)
        return self.end.offset

    def next_offset(self, voter: str) -> int:
        """Start of the next append to `voter`; our log end if nothing else is known."""
        return self._next.get(voter, self.end.offset)

    def before(self, offset: int) -> LogEnd:
        """End of our log as it was at `offset`, which is not before its start."""
        if offset == self.start.offset:
            return self.start
        number = bisect_right(self._starts, offset - 1) - 1
        return LogEnd(self._epochs[number] if offset > 0 and number >= 0 else -1, offset)

    def on_acknowledged(self, voter: str, end_offset: int) -> bool:
        """Note that `voter` has our log up to `end_offset` on its disk. True if more is committed
        now.
        """
        self._next[voter] = max(end_offset, self.acknowledged.get(voter, 0))
        self.acknowledged[voter] = self._next[voter]
        return self._advance()

    def on_mismatch(self, voter: str, try_offset: int) -> None:
        """Note that the log of `voter` differs; continue from `try_offset`, or one offset earlier
        if that is no step back.
        """
        now = self.next_offset(voter)
        self._next[voter] = max(0, min(try_offset, now - 1), self.acknowledged.get(voter, 0))

    # --- snapshots -------------------------------------------------------------------------------

    def compact(self, end: LogEnd) -> None:
        """Replace everything before `end`, all of which is committed, by a snapshot."""
        assert self.start.offset <= end.offset <= self.committed
        self.start = end

    def on_snapshot(self, voter: str, end_offset: int) -> bool:
        """Note that `voter` has a snapshot of that end on disk. True if more is committed now."""
        self.snapshots[voter] = max(end_offset, self.snapshots.get(voter, 0))
        return self.on_acknowledged(voter, end_offset)

    def needs_snapshot(self, voter: str) -> bool:
        """Whether the next entry to send to `voter` is no longer in our log."""
        return self.next_offset(voter) < self.start.offset

    def lacks_snapshot(self, voter: str) -> bool:
        """Whether `voter` is not known to have our snapshot, so that its log may still be long."""
        return self.snapshots.get(voter, 0) < self.start.offset

    def change_voters(self, voters: Collection[str]) -> None:
        """Change the voters: the next appended entry lists them; they count from now on.

        One voter is added or removed at a time, so that any majority of the old voters shares a
        voter with any of the new. The former change and an entry of the own epoch must be
        committed, or the majorities of changes by two controllers might share no voter.

        Raises ValueError otherwise.
        """
        changed = frozenset(voters)
        if len(changed ^ self._voters) != 1 or not changed:
            raise ValueError("voters are added and removed one at a time")
        if self._led_from is None or self.committed <= max(self._led_from, self._voters_from):
            raise ValueError("the previous change of the voters is not committed yet")
        self._voters_from = self.end.offset
        self._voters = changed

    @staticmethod
    def _majority_of(count: int) -> int:
        return count // 2 + 1

    def _advance(self) -> bool:
        ends = sorted((self.acknowledged.get(name, 0) for name in self._voters), reverse=True)
        everywhere = ends[self._majority_of(len(self._voters)) - 1]
        # An entry of the own epoch has to be among them: see the module's step 3.
        if self._led_from is None or everywhere <= max(self._led_from, self.committed):
            return False
        self.committed = everywhere
        return True


def _descending(end: LogEnd) -> tuple[int, int]:
    return (-end.epoch, -end.offset)

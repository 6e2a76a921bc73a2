"""A controller's side of the metadata log: promises, what each voter has, what is committed.

    1. prepare   ask all voters for the epoch; a majority's promises make this controller the only
                 one that can commit from now on
    2. adopt     take over the promised log with the greatest (epoch, offset): whatever was
                 committed is in it, because the majority that had it shares a voter with ours
    3. append    first an entry of the own epoch; it commits only with a majority's
                 acknowledgements, and with it everything before (Raft 5.4.2: entries of former
                 epochs are never committed by counting)

What always holds: `committed` never falls; it covers only entries that a majority has on disk.
The voter's side is voter.py. Not here: sending, waiting, the log's bytes (actors/).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping

from .voter import LogEnd, Promise


class MetadataQuorum:
    """One attempt of one controller. Voters are named by their directory ids."""

    def __init__(self, me: Promise, voters: Collection[str]) -> None:
        self.me = me
        self._voters = frozenset(voters)
        self._promised: dict[str, LogEnd] = {}
        self._acknowledged: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._led_from: int | None = None
        self.end = LogEnd(-1, 0)
        """Of this controller's copy of the log."""
        self.committed = 0
        """Everything before this offset is committed."""

    @property
    def voters(self) -> frozenset[str]:
        return self._voters

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """Up to where each voter has our log on its disk; without those that never said."""
        return self._acknowledged

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    # --- becoming the leader ---------------------------------------------------------------------

    def on_promise(self, voter: str, end: LogEnd) -> None:
        """`voter` keeps its log, which ends at `end`, for us. A stranger's counts nothing."""
        if voter in self._voters:
            self._promised[voter] = end

    @property
    def has_promises(self) -> bool:
        """Whether a majority has promised."""
        return len(self._promised) >= self.majority

    def best_log(self) -> str:
        """The voter whose log to adopt; of equal ones the first by name."""
        assert self.has_promises, "only the logs of a majority hold all that was committed"
        return min(self._promised, key=lambda name: (_descending(self._promised[name]), name))

    def adopt(self, epochs: Collection[tuple[int, int]], end: LogEnd) -> None:
        """Go on from the best log: its (epoch, start offset), ascending, and its end."""
        assert self._led_from is None
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]
        self.end = end
        self._led_from = end.offset
        self._next = {name: min(has.offset, end.offset) for name, has in self._promised.items()}

    # --- leading ---------------------------------------------------------------------------------

    def append(self, count: int) -> int:
        """Our copy has grown by an entry of `count` records; returns its end offset."""
        assert self._led_from is not None, "adopt() comes first"
        if not self._epochs or self._epochs[-1] != self.me.epoch:
            self._epochs.append(self.me.epoch)
            self._starts.append(self.end.offset)
        self.end = LogEnd(self.me.epoch, self.end.offset + count)
        return self.end.offset

    def next_offset(self, voter: str) -> int:
        """Where the next append to `voter` begins; its own end if nothing else is known."""
        return self._next.get(voter, self.end.offset)

    def before(self, offset: int) -> LogEnd:
        """The end of our log if it ended at `offset`."""
        number = bisect_right(self._starts, offset - 1) - 1
        return LogEnd(self._epochs[number] if offset > 0 and number >= 0 else -1, offset)

    def on_acknowledged(self, voter: str, end_offset: int) -> bool:
        """`voter` has our log up to `end_offset` on its disk. True if more is committed now."""
        self._next[voter] = max(end_offset, self._acknowledged.get(voter, 0))
        self._acknowledged[voter] = self._next[voter]
        return self._advance()

    def on_mismatch(self, voter: str, try_offset: int) -> None:
        """`voter` has another log; go on from `try_offset`, or one earlier if that is no step."""
        now = self.next_offset(voter)
        self._next[voter] = max(0, min(try_offset, now - 1), self._acknowledged.get(voter, 0))

    def change_voters(self, voters: Collection[str]) -> None:
        """From the entry on that says so (committed or not) these are the voters.

        At most one is added or removed at a time, so any majority of the old ones shares a voter
        with any of the new. Raises ValueError otherwise.
        """
        changed = frozenset(voters)
        if len(changed ^ self._voters) > 1:
            raise ValueError("voters are added and removed one at a time")
        self._voters = changed
        self._advance()

    def _advance(self) -> bool:
        ends = sorted((self._acknowledged.get(name, 0) for name in self._voters), reverse=True)
        everywhere = ends[self.majority - 1]
        # An entry of the own epoch has to be among them: see the module's step 3.
        if self._led_from is None or everywhere <= max(self._led_from, self.committed):
            return False
        self.committed = everywhere
        return True


def _descending(end: LogEnd) -> tuple[int, int]:
    return (-end.epoch, -end.offset)

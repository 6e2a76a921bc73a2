"""Voters, rival controllers and a network that loses, repeats and reorders, all from one seed.

It drives the rules the broker runs (cluster/quorum/voter, cluster/quorum/metadata_quorum). Each record of the
log is one entry. Nothing here knows a clock: a step is one random event. Snapshots take the place
of what is committed; voters are added, from a few that do not vote yet, and removed.

A planted fault is a word in `faults`; the tests see that each one is found.
    counting      entries of former epochs are committed by counting (Raft, figure 8)
    longest       the longest log is adopted, not the one with the greatest epoch
    half          half of the voters pass for a majority
    forgetful     a voter's promise does not survive a restart
    hasty         a voter answers an append before it is on the disk
    uncut         a voter keeps what contradicts an append
    eager         a snapshot is taken of what is not committed yet
    kept          a voter keeps its log behind a snapshot of another one
    two at once   the voters are changed again before the last change is committed
    not caught up a new voter is counted as having what it was never sent
    hurried       the voters are changed before an entry of the own epoch is committed
    old voters    a new controller goes by the voters that it knows, not by those of the log
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bradbury.cluster.quorum.metadata_quorum import MetadataQuorum
from bradbury.cluster.quorum.voter import (
    NO_SNAPSHOT,
    Append,
    Entry,
    LogEnd,
    Promise,
    on_append,
    on_prepare,
    on_snapshot,
)
from bradbury.protocol.errors import FencedLeaderEpoch

FAULTS: dict[str, dict[str, Any]] = {
    "counting": {"snapshots": 0, "changes": 0},
    "longest": {},
    "half": {},
    "forgetful": {},
    "hasty": {},
    "uncut": {},
    "eager": {},
    "kept": {"changes": 0, "snapshots": 1},
    "two at once": {"changes": 4},
    "not caught up": {"changes": 4, "voters": 1},
    "hurried": {"changes": 4},
    "old voters": {"changes": 4},
}
"""Each with what a world is like in which it shows."""
MOST_ENTRIES = 3
SPARES = 2

VOTERS = "voters "
Value = tuple[int, str]
"""(epoch, what the controller wrote)"""


class LostRecord(AssertionError):
    """What was committed is gone, or is two things; or a log is none any more."""


class CountingQuorum(MetadataQuorum):
    def _advance(self) -> bool:
        ends = sorted((self._acknowledged.get(name, 0) for name in self._voters), reverse=True)
        everywhere = ends[self._majority_of(len(self._voters)) - 1]
        if everywhere <= self.committed:
            return False
        self.committed = everywhere
        return True


class RashQuorum(MetadataQuorum):
    """It changes the voters whenever it is told to."""

    def change_voters(self, voters: Collection[str]) -> None:
        self._voters = frozenset(voters)


class HurriedQuorum(MetadataQuorum):
    """It does not wait for an entry of its own epoch, only for the last change."""

    def change_voters(self, voters: Collection[str]) -> None:
        if self._voters_from and self.committed <= self._voters_from:
            raise ValueError("a former change of the voters is not committed yet")
        self._voters_from = self.end.offset
        self._voters = frozenset(voters)


class TrustingQuorum(MetadataQuorum):
    """Whoever is added passes for one that has everything."""

    def change_voters(self, voters: Collection[str]) -> None:
        new = frozenset(voters) - self._voters
        super().change_voters(voters)
        for name in new:
            self._acknowledged[name] = 1 << 60

    def _advance(self) -> bool:
        advanced = super()._advance()
        self.committed = min(self.committed, self.end.offset)
        return advanced


class OldVotersQuorum(MetadataQuorum):
    def on_promise(self, voter: str, end: LogEnd, voters: Collection[str] = ()) -> None:
        del voters
        super().on_promise(voter, end)


class HalfQuorum(MetadataQuorum):
    @staticmethod
    def _majority_of(count: int) -> int:
        return max(1, count // 2)


class LongestQuorum(MetadataQuorum):
    def _best(self) -> str:
        return max(self._promised, key=lambda name: (self._promised[name].offset, name))


@dataclass
class SimVoter:
    """One voter's disk, and what its process knows beyond.

    `log` is all of it: what the snapshot stands for, and what is behind.
    """

    name: str
    faults: frozenset[str]
    first_voters: tuple[str, ...] = ()
    snapshot: LogEnd = NO_SNAPSHOT
    promise: Promise = field(default_factory=Promise)
    log: list[Value] = field(default_factory=list)
    on_disk: int = 0
    known_committed: int = 0
    is_up: bool = True

    @property
    def log_end_offset(self) -> int:
        return len(self.log)

    def epoch_at(self, offset: int) -> int:
        assert offset >= self.snapshot.offset - 1, "that is no more in the log"
        return self.log[offset][0] if offset < len(self.log) else -1

    def voters(self) -> tuple[str, ...]:
        """As its log says."""
        return next(filter(None, map(_voters_in, reversed(self.log))), self.first_voters)

    def epoch_start(self, offset: int) -> int:
        while offset and self.log[offset - 1][0] == self.log[offset][0]:
            offset -= 1
        return offset

    def end(self) -> LogEnd:
        return LogEnd(self.log[-1][0] if self.log else -1, len(self.log))

    def crash(self) -> None:
        self.is_up = False
        self.known_committed = 0
        if "hasty" in self.faults:
            del self.log[self.on_disk :]
        if "forgetful" in self.faults:
            self.promise = Promise()

    def prepare(self, asked: Promise) -> LogEnd | None:
        try:
            self.promise = on_prepare(self.promise, asked)
        except FencedLeaderEpoch:
            return None
        self.on_disk = len(self.log)
        return self.end()

    def fetch(self, asked: Promise) -> tuple[LogEnd, list[Value]] | None:
        if self.promise != asked:
            return None
        return self.snapshot, list(self.log)

    def install(self, asked: Promise, end: LogEnd, values: list[Value]) -> tuple[str, int]:
        try:
            plan = on_snapshot(self.promise, asked, self, end=end, committed=self.known_committed)
        except FencedLeaderEpoch:
            return "refused", 0
        self.promise = plan.promise
        if plan.is_newer:
            self.snapshot = end
            if plan.keeps_log or "kept" in self.faults:
                self.log[: end.offset] = values
            else:
                self.log = list(values)
            self.on_disk = len(self.log)
            self.known_committed = max(self.known_committed, end.offset)
        return "installed", end.offset

    def append(
        self, asked: Promise, previous: LogEnd, values: Sequence[Value], committed: int
    ) -> tuple[str, int]:
        start = previous.offset
        entries = [Entry(start + n, start + n + 1, epoch) for n, (epoch, _) in enumerate(values)]
        try:
            plan = on_append(
                self.promise,
                asked,
                self,
                previous=previous,
                entries=entries,
                committed=self.known_committed,
            )
        except FencedLeaderEpoch:
            return "refused", 0
        self.promise = plan.promise
        if not isinstance(plan, Append):
            return "mismatch", plan.try_offset
        if plan.truncate_to is not None:
            if "uncut" in self.faults:
                return "acknowledged", start + len(values)
            del self.log[plan.truncate_to :]
            self.on_disk = min(self.on_disk, plan.truncate_to)
        self.log += values[plan.first_missing :]
        epochs = [epoch for epoch, _ in self.log]
        if epochs != sorted(epochs):
            raise LostRecord(f"the epochs of {self.name} go backwards: {epochs}")
        if "hasty" not in self.faults:
            self.on_disk = len(self.log)
        self.known_committed = max(self.known_committed, min(committed, start + len(values)))
        return "acknowledged", start + len(values)


class SimController:
    """One process: prepares, adopts, appends, and is gone when it is refused."""

    def __init__(self, world: QuorumWorld, number: int, epoch: int) -> None:
        self.world = world
        self.name = f"c{number}"
        kinds = {
            "counting": CountingQuorum,
            "half": HalfQuorum,
            "longest": LongestQuorum,
            "two at once": RashQuorum,
            "hurried": HurriedQuorum,
            "not caught up": TrustingQuorum,
            "old voters": OldVotersQuorum,
        }
        kind = next((kinds[fault] for fault in kinds if fault in world.faults), MetadataQuorum)
        self.quorum = kind(Promise(epoch=epoch, owner=self.name), world.first_voters)
        self.log: list[Value] = []
        self.is_leading = False
        self.is_over = False
        for name in world.voters:
            world.send(partial(self._ask, name))

    def _ask(self, name: str) -> None:
        voter = self.world.voters[name]
        if voter.is_up:
            end = voter.prepare(self.quorum.me)
            voters = voter.voters()
            self.world.send(lambda: self._on_promise(name, end, voters))

    def _on_promise(self, name: str, end: LogEnd | None, voters: tuple[str, ...]) -> None:
        if self.is_over or self.is_leading:
            return
        if end is None:
            self.is_over = True
            return
        if not self.quorum.has_promises:  # a late one changes nothing, but to ask once more
            self.quorum.on_promise(name, end, voters)
        if self.quorum.has_promises:
            best = self.quorum.best_log()
            self.world.send(lambda: self._fetch(best))

    def _fetch(self, name: str) -> None:
        voter = self.world.voters[name]
        if voter.is_up:
            found = voter.fetch(self.quorum.me)
            self.world.send(lambda: self._on_fetched(found))

    def _on_fetched(self, found: tuple[LogEnd, list[Value]] | None) -> None:
        if self.is_over or self.is_leading:
            return
        if found is None:
            self.is_over = True
            return
        start, log = found
        self.log = log
        epochs = [
            (epoch, offset)
            for offset, (epoch, _) in enumerate(log)
            if offset >= start.offset and (offset == start.offset or log[offset - 1][0] != epoch)
        ]
        end = LogEnd(log[-1][0] if log else -1, len(log))
        self.quorum.adopt(epochs, end, start=start)
        self.is_leading = True
        self.write("epoch")

    def snapshot(self) -> None:
        """A snapshot of what is committed."""
        quorum = self.quorum
        offset = quorum.committed
        if "eager" in self.world.faults:
            offset = quorum.committed = len(self.log)
        if offset > quorum.start.offset:
            quorum.compact(LogEnd(self.log[offset - 1][0], offset))

    def change_voters(self) -> None:
        """One more, which has everything that is committed, or one less."""
        quorum, random = self.quorum, self.world.random
        others = [name for name in self.world.voters if name not in quorum.voters]
        if "not caught up" not in self.world.faults:
            has = quorum.acknowledged
            others = [name for name in others if has.get(name, 0) >= quorum.committed]
        new = set(quorum.voters)
        if random.random() < 0.5:
            if not others:
                return
            new.add(random.choice(others))
        elif len(new) > 1:
            new.remove(random.choice(sorted(new)))
        try:
            quorum.change_voters(new)
        except ValueError:
            return
        self.write(f"{len(self.log)} {VOTERS}{' '.join(sorted(new))}")

    def write(self, what: str) -> None:
        self.log.append((self.quorum.me.epoch, f"{self.name} {what}"))
        self.quorum.append(1)

    def replicate(self, name: str) -> None:
        quorum = self.quorum
        if quorum.needs_snapshot(name) or (
            quorum.lacks_snapshot(name) and self.world.random.random() < 0.5
        ):
            self._install(name)
            return
        start = min(quorum.next_offset(name), len(self.log))
        previous, committed = quorum.before(start), quorum.committed
        count = self.world.random.randint(1, MOST_ENTRIES)
        values = self.log[start : start + count]

        def arrive() -> None:
            voter = self.world.voters[name]
            if voter.is_up:
                answer, offset = voter.append(quorum.me, previous, values, committed)
                self.world.send(lambda: self._on_answer(name, answer, offset))

        self.world.send(arrive)

    def _install(self, name: str) -> None:
        quorum = self.quorum
        end = quorum.start
        values = self.log[: end.offset]

        def arrive() -> None:
            voter = self.world.voters[name]
            if voter.is_up:
                answer, offset = voter.install(quorum.me, end, values)
                self.world.send(lambda: self._on_answer(name, answer, offset))

        self.world.send(arrive)

    def _on_answer(self, name: str, answer: str, offset: int) -> None:
        if self.is_over:
            return
        if answer == "refused":
            self.is_over = True
        elif answer == "installed":
            if self.quorum.on_snapshot(name, offset):
                self.world.on_committed(self.log[: self.quorum.committed])
        elif answer == "mismatch":
            self.quorum.on_mismatch(name, offset)
        elif self.quorum.on_acknowledged(name, offset):
            self.world.on_committed(self.log[: self.quorum.committed])


class QuorumWorld:
    """All of it. `run` raises LostRecord when what was committed is not any more."""

    def __init__(
        self,
        seed: object,
        *,
        voters: int = 3,
        faults: Sequence[str] = (),
        snapshots: float | None = None,
        changes: float | None = None,
        rivals: float | None = None,
    ) -> None:
        """`snapshots`, `changes` of the voters, `rivals`: how often; None: as the seed says."""
        self.random = random.Random(str(seed))
        self.faults = frozenset(faults)
        # Swarm: in some of the seeds the voters stay the same.
        often = self.random.choice([0, 0.5, 2, 6])
        self._changes = often if changes is None else changes
        often = self.random.choice([0, 0.3, 1])
        self._snapshots = often if snapshots is None else snapshots
        often = self.random.choice([0.3, 1, 2])
        self._rivals = often if rivals is None else rivals
        spares = SPARES if self._changes else 0
        self.first_voters = tuple(f"v{n}" for n in range(voters))
        self.voters = {
            f"v{n}": SimVoter(f"v{n}", self.faults, self.first_voters if n < voters else ())
            for n in range(voters + spares)
        }
        self.controllers: list[SimController] = []
        self.committed: list[Value] = []
        self.steps: list[str] = []
        self._network: list[Callable[[], None]] = []

    def send(self, delivery: Callable[[], None]) -> None:
        self._network.append(delivery)

    def on_committed(self, log: list[Value]) -> None:
        common = min(len(log), len(self.committed))
        for offset in range(common):
            if log[offset] != self.committed[offset]:
                raise LostRecord(
                    f"offset {offset} was {self.committed[offset]} and is {log[offset]}"
                )
        self.committed += log[common:]

    def run(self, steps: int) -> None:
        """Random events, then calm: a last controller must find everything, and go on."""
        loss, repeat = self.random.choice([(0.0, 0.0), (0.1, 0.1), (0.3, 0.05)])
        # Swarm: each seed has its own idea of what happens often.
        weights = [
            20,
            self._rivals,
            self.random.choice([1, 4]),
            self.random.choice([4, 10]),
            self.random.choice([0.1, 0.5]),
            self.random.choice([0, 0.5, 1]),
            2,
            self._snapshots,
            self._changes,
        ]
        events = [
            lambda: self._deliver(loss, repeat),
            self._start_controller,
            self._write,
            self._replicate,
            self._end_controller,
            self._crash,
            self._restart,
            self._snapshot,
            self._change_voters,
        ]
        for _ in range(steps):
            self.random.choices(events, weights)[0]()
        self._settle()

    def _start_controller(self) -> None:
        newest = max(voter.promise.epoch for voter in self.voters.values())
        # It has asked some of the voters, so what it knows may be old.
        self._start(self.random.randint(max(0, newest - 1), newest + 1))

    def _start(self, epoch: int) -> SimController:
        controller = SimController(self, len(self.controllers), epoch)
        self.controllers.append(controller)
        return controller

    def _settle(self) -> None:
        for voter in self.voters.values():
            voter.is_up = True
        for controller in self.controllers:
            controller.is_over = True
        self._network.clear()
        last = self._start(max(voter.promise.epoch for voter in self.voters.values()) + 1)
        wanted = 0
        for _ in range(2_000):
            while self._network:
                self._network.pop(0)()
            assert not last.is_over, "nobody stands against the last controller"
            if last.is_leading:
                wanted = wanted or len(last.log)
                if last.quorum.committed >= wanted:
                    break
                for name in self.voters:
                    last.replicate(name)
        else:
            raise LostRecord("the last controller does not get to commit")
        if last.log[: len(self.committed)] != self.committed:
            raise LostRecord("the last controller's log lacks committed entries")

    def _deliver(self, loss: float, repeat: float) -> None:
        if not self._network:
            return
        # Mostly in order: a network that only shuffles gets nothing done.
        late = self.random.random() < 0.3
        position = self.random.randrange(len(self._network)) if late else 0
        delivery = self._network[position]
        if self.random.random() >= repeat:
            del self._network[position]
        if self.random.random() >= loss:
            delivery()

    def _leaders(self) -> list[SimController]:
        return [each for each in self.controllers if each.is_leading and not each.is_over]

    def _write(self) -> None:
        if leaders := self._leaders():
            leader = self.random.choice(leaders)
            leader.write(str(len(leader.log)))

    def _replicate(self) -> None:
        if leaders := self._leaders():
            self.random.choice(leaders).replicate(self.random.choice(list(self.voters)))

    def _snapshot(self) -> None:
        if leaders := self._leaders():
            self.random.choice(leaders).snapshot()

    def _change_voters(self) -> None:
        if leaders := self._leaders():
            self.random.choice(leaders).change_voters()

    def _end_controller(self) -> None:
        if self.controllers:
            self.random.choice(self.controllers).is_over = True

    def _crash(self) -> None:
        voter = self.random.choice(list(self.voters.values()))
        if voter.is_up:
            voter.crash()

    def _restart(self) -> None:
        for voter in self.voters.values():
            if not voter.is_up:
                voter.is_up = True
                return


def _voters_in(value: Value) -> tuple[str, ...]:
    """The voters that the entry names, if it is about voters."""
    _, mark, names = value[1].partition(VOTERS)
    return tuple(names.split()) if mark else ()

"""Voters, rival controllers and a network that loses, repeats and reorders, all from one seed.

It drives the rules the broker runs (cluster/voter, cluster/metadata_quorum). Each record of the
log is one entry. Nothing here knows a clock: a step is one random event.

A planted fault is a word in `faults`; the tests see that each one is found.
    counting      entries of former epochs are committed by counting (Raft, figure 8)
    longest       the longest log is adopted, not the one with the greatest epoch
    half          half of the voters pass for a majority
    forgetful     a voter's promise does not survive a restart
    hasty         a voter answers an append before it is on the disk
    uncut         a voter keeps what contradicts an append
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from bradbury.cluster.metadata_quorum import MetadataQuorum
from bradbury.cluster.voter import (
    Append,
    Entry,
    LogEnd,
    Promise,
    on_append,
    on_prepare,
)
from bradbury.protocol.errors import FencedLeaderEpoch

FAULTS = ("counting", "longest", "half", "forgetful", "hasty", "uncut")
MOST_ENTRIES = 3

Value = tuple[int, str]
"""(epoch, what the controller wrote)"""


class LostRecord(AssertionError):
    """What was committed is gone, or is two things; or a log is none any more."""


class CountingQuorum(MetadataQuorum):
    def _advance(self) -> bool:
        ends = sorted((self._acknowledged.get(name, 0) for name in self._voters), reverse=True)
        everywhere = ends[self.majority - 1]
        if everywhere <= self.committed:
            return False
        self.committed = everywhere
        return True


class HalfQuorum(MetadataQuorum):
    @property
    def majority(self) -> int:
        return max(1, len(self.voters) // 2)


class LongestQuorum(MetadataQuorum):
    def best_log(self) -> str:
        return max(self._promised, key=lambda name: (self._promised[name].offset, name))


@dataclass
class SimVoter:
    """One voter's disk, and what its process knows beyond."""

    name: str
    faults: frozenset[str]
    promise: Promise = field(default_factory=Promise)
    log: list[Value] = field(default_factory=list)
    on_disk: int = 0
    known_committed: int = 0
    is_up: bool = True

    @property
    def log_end_offset(self) -> int:
        return len(self.log)

    def epoch_at(self, offset: int) -> int:
        return self.log[offset][0] if offset < len(self.log) else -1

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

    def fetch(self, asked: Promise) -> list[Value] | None:
        if self.promise != asked:
            return None
        return list(self.log)

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
        kinds = {"counting": CountingQuorum, "half": HalfQuorum, "longest": LongestQuorum}
        kind = next((kinds[fault] for fault in kinds if fault in world.faults), MetadataQuorum)
        self.quorum = kind(Promise(epoch=epoch, owner=self.name), world.voters)
        self.log: list[Value] = []
        self.is_leading = False
        self.is_over = False
        for name in world.voters:
            world.send(partial(self._ask, name))

    def _ask(self, name: str) -> None:
        voter = self.world.voters[name]
        if voter.is_up:
            end = voter.prepare(self.quorum.me)
            self.world.send(lambda: self._on_promise(name, end))

    def _on_promise(self, name: str, end: LogEnd | None) -> None:
        if self.is_over or self.is_leading:
            return
        if end is None:
            self.is_over = True
            return
        self.quorum.on_promise(name, end)
        if self.quorum.has_promises:
            best = self.quorum.best_log()
            self.world.send(lambda: self._fetch(best))

    def _fetch(self, name: str) -> None:
        voter = self.world.voters[name]
        if voter.is_up:
            log = voter.fetch(self.quorum.me)
            self.world.send(lambda: self._on_fetched(log))

    def _on_fetched(self, log: list[Value] | None) -> None:
        if self.is_over or self.is_leading:
            return
        if log is None:
            self.is_over = True
            return
        self.log = log
        epochs = [
            (epoch, offset)
            for offset, (epoch, _) in enumerate(log)
            if offset == 0 or log[offset - 1][0] != epoch
        ]
        self.quorum.adopt(epochs, LogEnd(log[-1][0] if log else -1, len(log)))
        self.is_leading = True
        self.write("epoch")

    def write(self, what: str) -> None:
        self.log.append((self.quorum.me.epoch, f"{self.name} {what}"))
        self.quorum.append(1)

    def replicate(self, name: str) -> None:
        quorum = self.quorum
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

    def _on_answer(self, name: str, answer: str, offset: int) -> None:
        if self.is_over:
            return
        if answer == "refused":
            self.is_over = True
        elif answer == "mismatch":
            self.quorum.on_mismatch(name, offset)
        elif self.quorum.on_acknowledged(name, offset):
            self.world.on_committed(self.log[: self.quorum.committed])


class QuorumWorld:
    """All of it. `run` raises LostRecord when what was committed is not any more."""

    def __init__(self, seed: object, *, voters: int = 3, faults: Sequence[str] = ()) -> None:
        self.random = random.Random(str(seed))
        self.faults = frozenset(faults)
        self.voters = {f"v{n}": SimVoter(f"v{n}", self.faults) for n in range(voters)}
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
            self.random.choice([0.3, 1, 2]),
            self.random.choice([1, 4]),
            self.random.choice([4, 10]),
            self.random.choice([0.1, 0.5]),
            self.random.choice([0, 0.5, 1]),
            2,
        ]
        events = [
            lambda: self._deliver(loss, repeat),
            self._start_controller,
            self._write,
            self._replicate,
            self._end_controller,
            self._crash,
            self._restart,
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

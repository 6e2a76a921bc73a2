"""Voters, rival controllers and a network that loses, repeats and reorders, all from one seed.

It drives controller/metadata_leader and controller/metadata_voter, as controllers and brokers do,
and nothing else of a cluster: a seed takes hundredths of a second, and has more rivals than a
cluster ever sees. Snapshots take the place of what is committed; voters are added, from a few that
do not vote yet, and removed.

Epochs come from chance, not from a survey: who stands for controller has asked some of the voters,
so what it knows may be old. A planted fault is one of planted_in_quorum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest import mock

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    ProducerIdsRecord,
    VotersRecord,
    encode_metadata_record,
    voters_in,
)
from bradbury.cluster.quorum.metadata_snapshot import encode_snapshot, end_of
from bradbury.cluster.quorum.voter import Candidate, CommittedEntryLost
from bradbury.controller import log_replication
from bradbury.controller.candidate_state import AdoptedLog
from bradbury.controller.controller_effects import AskVoter, FindVoters, FoundVoters, Instant
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import FormatVoter, VoteRequest
from bradbury.protocol.errors import ConnectionFailed, CorruptMessage
from bradbury.protocol.records.record_batch import read_header, stamp
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.storage_failure import DataDirectoryError

from .world.controllers.simulated_voter import SimulatedVoter, ask_at_once, open_voter
from .world.simulated_disk import SimulatedDisk
from .world.simulated_network import LOST, Network, Process, VirtualClock, Weather

SPARES = 2
"""Voters that do not vote at first, where voters change."""
SMALL = 200
"""Bytes of an append: it brings one or two entries, so logs are long for it."""
TIMES = QuorumTimes(
    answer_ms=30,
    fetch_ms=30,
    commit_ms=300,
    confirm_ms=30,
    retry_ms=3,
    longest_retry_ms=20,
    find_ms=5,
    late_ms=3,
)
CALM_MS = 3_000
FOUND = (CommittedEntryLost, CorruptMessage, DataDirectoryError)
"""What the steps themselves say of a fault, besides LostRecord."""


class LostRecord(AssertionError):
    """What was committed is gone, or is two things; or nothing can be committed any more."""


class VoterNode:
    """A disk, and the process that votes with it."""

    def __init__(self, world: QuorumWorld, number: int) -> None:
        self.name = f"v{number}"
        self.process = Process(world.clock, number, self.name)
        self._world = world
        self.disk = SimulatedDisk()
        voter = open_voter(self.disk, self.name, self.name)
        ask_at_once(*voter, FormatVoter("c", world.first_voters))
        self.disk.after_death()
        self.start()

    def start(self) -> None:
        self.process.begin_life()
        self.voter = SimulatedVoter(
            self.name, self.name, self.disk, self.process, self._world.random
        )

    def crash(self) -> None:
        """The process dies; or its machine, with what was not synced."""
        self.process.end_life()
        random = self._world.random
        if random.random() < 0.5:
            self.disk = self.disk.lose_power(random)
        self.disk.after_death()


class Leader:
    """A process beside a voter's. It drives a MetadataLeader, and writes what it is told to."""

    def __init__(self, world: QuorumWorld, number: int, epoch: int) -> None:
        self.world = world
        self._node = world.random.choice(world.nodes)
        self.process = Process(world.clock, self._node.process.machine, f"c{number}")
        self.process.begin_life()
        self.me = Candidate(epoch=epoch, owner=self.process.name)
        self._effects: list[Any] = []
        self.step = MetadataLeader(self.me, world.first_voters, self._effects, TIMES)
        self.image = MetadataImage()
        self.is_leading = self.is_active = False
        self.checked = 0
        self._to_write: deque[Callable[[], Sequence[MetadataRecord]]] = deque()
        self._pending: list[tuple[int, Sequence[MetadataRecord]]] = []
        self._due_ms: int | None = None
        self._answers_left = 0
        """When it leads, so many answers until it ends; 0: it does not end by itself."""
        if world.random.random() < world.short_lives:
            self._answers_left = world.random.randint(1, 5)
        self.step.lead({node.name: node for node in world.nodes})
        self._after_input()

    @property
    def is_over(self) -> bool:
        return not self.process.is_up

    @property
    def has_brought_everything(self) -> bool:
        """What it has, with an entry of its own, is at each voter, and committed."""
        quorum = self.step.quorum
        return self.is_active and all(
            self.step.acknowledged.get(name) == quorum.end.offset == quorum.committed
            for name in quorum.voters
        )

    def end(self) -> None:
        self.process.end_life()

    # --- what it is told to do -------------------------------------------------------------------

    def write(self) -> None:
        if len(self._to_write) < 4:
            random = self.world.random
            records = [
                ProducerIdsRecord(next_producer_id=random.getrandbits(40))
                for _ in range(random.choice([1, 1, 6]))
            ]
            self._to_write.append(lambda: records)
        self._after_input()

    def compact(self) -> None:
        """What is applied; what it began with is not known to be committed before its epoch is."""
        if self.is_active and self.image.offset > self.step.quorum.start.offset:
            data = encode_snapshot(self.image, now_ms=0)
            self.step.compact(end_of(self.image), data, self._now())
        self._after_input()

    def change_voters(self) -> None:
        """One more, which has everything that is committed, or one less; perhaps twice."""
        self._to_write += [self._changed_voters] * self.world.random.choice([1, 1, 2])
        self._after_input()

    def _changed_voters(self) -> list[MetadataRecord]:
        quorum, random = self.step.quorum, self.world.random
        voters = set(quorum.voters)
        others = [node.name for node in self.world.nodes if node.name not in voters]
        if random.random() < 0.5:
            if not others:
                return []
            name = random.choice(others)
            if self.step.acknowledged.get(name, 0) < self.step.committed:
                self.step.catch_up(name, self._now())
                return []
            voters.add(name)
        elif len(voters) > 1:
            voters.remove(random.choice(sorted(voters)))
        return [VotersRecord(voters=tuple(sorted(voters)))]

    # --- driving ---------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return Instant(self.world.clock.now_ms, 0)

    def _after_input(self) -> None:
        step = self.step
        if step.failure is not None or step.end_reason is not None:
            self.end()
        if self.is_over:
            return
        if step.adopted is not None:
            adopted, step.adopted = step.adopted, None
            self._begin(adopted)
        if self.is_leading:
            self.world.on_committed(self)
            self._write_next()
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            self._perform(effect)
        self._set_timer()

    def _begin(self, adopted: AdoptedLog) -> None:
        self.image = adopted.image()
        self.is_leading = True
        epoch = EpochRecord(epoch=self.me.epoch, owner=self.me.owner)
        self._to_write.appendleft(lambda: [epoch])
        cluster = ClusterRecord(cluster_id="c", voters=self.world.first_voters)
        self._to_write.append(lambda: [] if self.image.cluster_id else [cluster])

    def _write_next(self) -> None:
        """One change after the other: decide, append on a majority, apply."""
        while True:
            while self._pending and self._pending[0][0] <= self.step.committed:
                end_offset, records = self._pending.pop(0)
                self.image = self.image.apply(records, offset=end_offset)
                self.is_active = True
            if self.step.is_appending or not self._to_write:
                return
            records = self._to_write.popleft()()
            if records:
                self._append(records)

    def _append(self, records: Sequence[MetadataRecord]) -> None:
        values = [encode_metadata_record(record) for record in records]
        batch = encode_records([(0, None, value, ()) for value in values])
        offset = self.step.quorum.end.offset
        stamp(batch, base_offset=offset, leader_epoch=self.me.epoch)
        try:
            end_offset = self.step.append(
                bytes(batch), len(records), self._now(), voters=voters_in(records)
            )
        except ValueError:
            return  # no voters may be changed now
        self._pending.append((end_offset, records))

    def _perform(self, effect: Any) -> None:
        world = self.world
        match effect:
            case AskVoter(node, request, timeout_ms, then):
                world.network.call(
                    self.process,
                    node.process,
                    lambda answer: node.voter.ask(request, answer),
                    partial(self._on_done, then),
                    timeout_ms=timeout_ms,
                )
            case FindVoters(then):
                self.process.after(1, partial(self._on_done, then, FoundVoters(world.nodes, "")))

    def _on_done(self, then: Callable[[Any, Instant], None], result: Any) -> None:
        if self.is_over:
            return
        then(ConnectionFailed("lost") if result is LOST else result, self._now())
        if self.is_leading and self._answers_left:
            self._answers_left -= 1
            if not self._answers_left:
                self._end_with_its_machine()
        self._after_input()

    def _end_with_its_machine(self) -> None:
        self.world.on_committed(self)
        self.end()
        if self._node.process.is_up and self.world.random.random() < 0.7:
            self._node.crash()

    def _set_timer(self) -> None:
        deadline_ms = self.step.next_deadline_ms
        if self.is_over or deadline_ms is None or self._due_ms == deadline_ms:
            return
        self._due_ms = deadline_ms

        def tick() -> None:
            if self._due_ms == deadline_ms:
                self._due_ms = None
                self.step.on_tick(self._now())
                self._after_input()

        self.process.after(max(0, deadline_ms - self.world.clock.now_ms), tick)


@dataclass
class Often:
    """How often what happens; None: as the seed says, in some of them never."""

    snapshots: float | None = None
    changes: float | None = None
    rivals: float | None = None
    weights: dict[str, float] = field(default_factory=dict)

    def draw(self, random: Random) -> None:
        choices = {
            "changes": [0, 0.5, 2, 6],
            "snapshots": [0, 0.3, 1],
            "rivals": [0.1, 0.3, 1],
        }
        for name, some in choices.items():
            drawn, reported = random.choice(some), getattr(self, name)
            self.weights[name] = drawn if reported is None else reported
        self.weights |= {
            "writes": random.choice([1, 4]),
            "ends": random.choice([0.1, 0.5]),
            "crashes": random.choice([0, 0.5, 1]),
            "restarts": random.choice([0.2, 2]),
        }


class QuorumWorld:
    """All of it. `run` raises LostRecord when what was committed is not any more."""

    def __init__(
        self,
        seed: object,
        *,
        voters: int = 3,
        snapshots: float | None = None,
        changes: float | None = None,
        rivals: float | None = None,
        short_lives: float | None = None,
    ) -> None:
        """See Often. `short_lives`: of how many leaders, which end soon after they have begun."""
        self.random = Random(str(seed))
        self.clock = VirtualClock()
        often = Often(snapshots, changes, rivals)
        often.draw(self.random)
        self._weights = often.weights
        drawn = self.random.choice([0.0, 0.3, 0.9])
        self.short_lives = drawn if short_lives is None else short_lives
        loss, repeat = self.random.choice([(0.0, 0.0), (0.1, 0.1), (0.3, 0.05)])
        weather = Weather(loss=loss, repeat=repeat, delay_ms=2, late=0.3, late_ms=10, ordered=False)
        self.network = Network(self.clock, self.random, weather)
        self.first_voters = tuple(f"v{n}" for n in range(voters))
        spares = SPARES if self._weights["changes"] else 0
        self.nodes = [VoterNode(self, number) for number in range(voters + spares)]
        self.leaders: list[Leader] = []
        self.committed: dict[int, bytes] = {}
        """Batches by base offset."""
        self.end_offset = 0

    def on_committed(self, leader: Leader) -> None:
        """More of its log may be committed, as it says."""
        committed = leader.step.committed
        if committed <= leader.checked:
            return
        for batch in leader.step.batches_from(leader.checked):
            header = read_header(batch)
            if header.next_offset > committed:
                break
            if self.committed.setdefault(header.base_offset, batch) != batch:
                raise LostRecord(f"{batch!r} was {self.committed[header.base_offset]!r}")
            if header.base_offset > self.end_offset:
                raise LostRecord(f"{header.base_offset} after {self.end_offset}")
            leader.checked = header.next_offset
            self.end_offset = max(self.end_offset, header.next_offset)

    def run(self, events: int) -> None:
        """Random events, then calm: a last controller must find everything, and go on."""
        with mock.patch.object(log_replication, "MOST_BYTES", SMALL):
            for _ in range(events):
                self.clock.run(self.clock.now_ms + self.random.choice([1, 1, 2, 4, 10]))
                names = list(self._weights)
                name = self.random.choices(names, list(self._weights.values()))[0]
                getattr(self, f"_on_{name}")()
            self._settle()

    # --- events ----------------------------------------------------------------------------------

    def _leading(self) -> list[Leader]:
        return [each for each in self.leaders if each.is_leading and not each.is_over]

    def _on_rivals(self) -> None:
        newest = self._newest_epoch()
        self._start(self.random.randint(max(0, newest - 1), newest + 1))

    def _newest_epoch(self) -> int:
        return max(node.voter.step.vote.epoch for node in self.nodes)

    def _start(self, epoch: int) -> Leader:
        self.leaders = [each for each in self.leaders if not each.is_over]
        leader = Leader(self, self.random.getrandbits(40), epoch)
        self.leaders.append(leader)
        return leader

    def _on_writes(self) -> None:
        if leading := self._leading():
            self.random.choice(leading).write()

    def _on_snapshots(self) -> None:
        if leading := self._leading():
            self.random.choice(leading).compact()

    def _on_changes(self) -> None:
        if leading := self._leading():
            self.random.choice(leading).change_voters()

    def _on_ends(self) -> None:
        if self.leaders:
            self.random.choice(self.leaders).end()

    def _on_crashes(self) -> None:
        node = self.random.choice(self.nodes)
        if node.process.is_up:
            node.crash()

    def _on_restarts(self) -> None:
        for node in self.nodes:
            if not node.process.is_up:
                node.start()
                return

    # --- calm ------------------------------------------------------------------------------------

    def _settle(self) -> None:
        for node in self.nodes:
            if not node.process.is_up:
                node.start()
        for leader in self.leaders:
            leader.end()
        self.short_lives = 0.0
        self.network.heal()
        until_ms = self.clock.now_ms + CALM_MS
        self.clock.run(self.clock.now_ms + 100)
        last = self._start(self._newest_epoch() + 1)
        while not last.has_brought_everything:
            if self.clock.now_ms > until_ms:
                reason = last.step.end_reason or last.step.failure
                raise LostRecord(f"not everything is committed and everywhere in the end: {reason}")
            if last.is_over:
                last = self._start(self._newest_epoch() + 1)
            self.clock.run(self.clock.now_ms + 10)
        self._check_image(last)
        last.end()
        self.clock.run(self.clock.now_ms + 100)
        for node in self.nodes:
            self._check_stop(node)

    def _check_image(self, last: Leader) -> None:
        """What the last one has adopted says the same as all that was committed."""
        batches = [self.committed[offset] for offset in sorted(self.committed)]
        reported = AdoptedLog(b"", batches).image()
        if reported.offset != last.image.offset or reported.to_records() != last.image.to_records():
            raise LostRecord("the last controller's log lacks what was committed")

    def _check_stop(self, node: VoterNode) -> None:
        """A clean stop loses nothing, and whoever asks then is told."""
        before, answers = node.voter.step.state, []
        node.voter.close(answers.append)
        node.voter.ask(VoteRequest(Candidate(epoch=1 << 30, owner="too late")), answers.append)
        self.clock.run(self.clock.now_ms + 100)
        assert answers[0] is None and isinstance(answers[1], ConnectionFailed)
        voter, _ = open_voter(node.disk, node.name, node.name)
        if voter.state != before:
            raise LostRecord(f"{before} is {voter.state} after a stop")

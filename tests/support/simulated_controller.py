"""A controller of the simulation, composed as actors/controller and actors/metadata_log are.

Each is a process of its own on some machine. It takes the next epoch with the voters' promises,
adopts the best log, and then changes the metadata: one change at a time, decided on the newest
image, answered when a majority has it on disk. A former one that nobody has ended goes on as long
as it does not notice that it is over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bradbury.cluster import controller_state
from bradbury.cluster.alter_partition import AlterPartition
from bradbury.cluster.controller_state import NodeRegistration, Sessions
from bradbury.cluster.metadata_image import MetadataImage, TopicImage
from bradbury.cluster.metadata_quorum import MetadataQuorum
from bradbury.cluster.metadata_records import EpochRecord, MetadataRecord, VotersRecord
from bradbury.cluster.metadata_snapshot import end_of
from bradbury.cluster.partition_control import ElectLeaders, min_insync_replicas
from bradbury.cluster.voter import LogEnd, Promise
from bradbury.cluster.voter_change import VoterChange
from bradbury.protocol.errors import FencedLeaderEpoch, KafkaError, NotController

from .simulated_network import LOST, Answer, Process
from .simulated_voter import Appended, Installed, MetadataEntry, VoterState

if TYPE_CHECKING:
    from .simulated_cluster import SimulatedCluster
    from .simulated_node import SimulatedNode

ANSWER_MS = 150
RETRY_MS = 30
COMMIT_MS = 1_500
CATCH_UP_MS = 50
LEAST_VOTERS = 2

Decide = Callable[[MetadataImage], tuple[Sequence[MetadataRecord], Any]]


class MetadataUpdate(NamedTuple):
    controller_epoch: int
    image: MetadataImage


class Registered(NamedTuple):
    node_id: int
    controller_epoch: int


class _Question(NamedTuple):
    node_id: int
    incarnation: str
    applied: int
    answer: Answer


class SimulatedController:
    """One attempt after the other until it is superseded; then it is over."""

    def __init__(self, cluster: SimulatedCluster, number: int, machine: int) -> None:
        self.cluster = cluster
        self.name = f"c{number}"
        self.process = Process(cluster.clock, machine, self.name)
        self.process.begin_life()
        self.image = MetadataImage()
        self.is_active = False
        self.is_over = False
        self.me = Promise()
        self.entries: list[MetadataEntry] = []
        self.quorum = MetadataQuorum(self.me, cluster.voter_ids)
        self.sessions = Sessions(cluster.swarm.session_ms)
        self._attempt = 0
        self._sending: set[str] = set()
        self._observers: set[str] = set()
        self.is_changing_voters = False
        self._asked: set[str] = set()
        self._changes: deque[tuple[Decide, Answer]] = deque()
        self._is_changing = False
        self._parked: list[_Question] = []
        self._fencing: set[int] = set()
        self._try_to_start()

    # --- becoming active -------------------------------------------------------------------------

    def _ask_all(self, what: str, ask: Callable[[Any], Any], then: Callable[[dict], None]) -> None:
        """Ask every node that holds a voter; go on when all have answered or are lost."""
        cluster = self.cluster
        answers: dict[str, Any] = {}
        waiting = [len(cluster.nodes)]
        attempt = self._attempt

        def arrive(result: Any, directory_id: str) -> None:
            if result is not LOST:
                answers[directory_id] = result
            waiting[0] -= 1
            if not waiting[0] and attempt == self._attempt and not self.is_over:
                then(answers)

        for node in cluster.nodes.values():
            voter = node.voter
            cluster.network.call(
                self.process,
                node.process,
                lambda answer, voter=voter: answer(ask(voter)),
                partial(arrive, directory_id=voter.directory_id),
                timeout_ms=ANSWER_MS,
                what=what,
            )

    def _try_to_start(self) -> None:
        self._attempt += 1
        self._ask_all("state", lambda voter: voter.state(), self._on_states)

    def _again(self) -> None:
        self.process.after(RETRY_MS + self.cluster.random.randrange(RETRY_MS), self._try_to_start)

    def _on_states(self, answers: dict[str, VoterState]) -> None:
        logs = [each for each in answers.values() if each.voters]
        if not logs:
            self._again()
            return
        voters = max(logs, key=lambda each: each.end).voters
        known = {name: each for name, each in answers.items() if name in voters or each.voters}
        if sum(name in voters for name in known) < MetadataQuorum.majority_of(len(voters)):
            self._again()
            return
        epoch = 1 + max(max(each.promise.epoch, each.end.epoch) for each in known.values())
        self.me = Promise(epoch=epoch, owner=f"{self.name}/{self._attempt}")
        self.quorum = MetadataQuorum(self.me, voters)
        self._asked = set(known)
        self._ask_all("prepare", lambda voter: voter.prepare(self.me), self._on_promises)

    def _on_promises(self, answers: dict[str, VoterState | FencedLeaderEpoch]) -> None:
        for name, answer in answers.items():
            if name not in self._asked:
                continue
            if isinstance(answer, FencedLeaderEpoch):
                if name in self.quorum.voters:
                    self.end("a newer controller was promised the log")
                    return
                continue
            self.quorum.on_promise(name, answer.end, answer.voters)
            self.quorum.note_snapshot(name, answer.snapshot.offset)
        if not self.quorum.has_promises:
            self._again()
            return
        self.cluster.on_promises(self)
        best = self.quorum.best_log()
        start = answers[best].snapshot
        holder = self.cluster.holder_of(best)
        if holder is None:
            self._again()
            return
        attempt = self._attempt

        def fetched(result: Any) -> None:
            if self.is_over or attempt != self._attempt:
                return
            if isinstance(result, list):
                self._adopt(result, start)
            elif result is LOST:
                self._again()
            else:
                self.end("a newer controller was promised the log")

        self.cluster.network.call(
            self.process,
            holder.process,
            lambda answer: answer(holder.voter.fetch(self.me)),
            fetched,
            timeout_ms=ANSWER_MS,
        )

    def _adopt(self, entries: list[MetadataEntry], start: LogEnd) -> None:
        self.entries = entries
        epochs: list[tuple[int, int]] = []
        for each in entries:
            if each.base_offset < start.offset:
                continue
            if not epochs or epochs[-1][0] != each.epoch:
                epochs.append((each.epoch, each.base_offset))
        end = LogEnd(entries[-1].epoch, entries[-1].end_offset) if entries else LogEnd(-1, 0)
        self.quorum.adopt(epochs, end, start=start)
        self._observers.clear()
        self.is_changing_voters = False
        self.image = MetadataImage().apply(
            [record for each in entries for record in each.records], offset=end.offset
        )
        self._changes.clear()
        self._is_changing = False
        self._write([EpochRecord(epoch=self.me.epoch, owner=self.me.owner)], self._on_active)

    def _on_active(self) -> None:
        self.is_active = True
        self.sessions = Sessions(self.cluster.swarm.session_ms)
        self.cluster.on_controller(self)
        self._tick()
        self._pump()

    # --- the metadata log ------------------------------------------------------------------------

    def _write(self, records: Sequence[MetadataRecord], then: Callable[[], None]) -> None:
        for record in records:
            if isinstance(record, VotersRecord):
                self.quorum.change_voters(record.voters)
        base = self.quorum.end.offset
        end = self.quorum.append(len(records))
        self.entries.append(MetadataEntry(base, end, self.me.epoch, tuple(records)))
        attempt = self._attempt

        def committed() -> None:
            self.image = self.image.apply(records, offset=end)
            self.cluster.oracle.on_metadata(self)
            then()
            self._tell_parked()

        self._on_committed = end, committed

        def give_up() -> None:
            if attempt == self._attempt and self.quorum.committed < end and not self.is_over:
                self.end("no majority of the voters answers")

        self.process.after(COMMIT_MS, give_up)
        self._send_all()

    def _send_all(self) -> None:
        for name in sorted(self.quorum.voters | self._observers):
            self._send(name)

    def _send(self, name: str) -> None:
        """What one voter has not; one message at a time."""
        if self.is_over or name in self._sending:
            return
        quorum = self.quorum
        if quorum.acknowledged.get(name) == quorum.end.offset and not quorum.lacks_snapshot(name):
            return
        holder = self.cluster.holder_of(name)
        if holder is None:  # its disk is gone
            return
        self._sending.add(name)
        if quorum.needs_snapshot(name) or quorum.lacks_snapshot(name):
            self._install(name, holder)
            return
        start, first = quorum.next_offset(name), len(self.entries)
        if start < quorum.end.offset:
            first = self._entry_at(start)
            start = self.entries[first].base_offset
        entries = self.entries[first:]
        previous, committed, me = quorum.before(start), quorum.committed, self.me
        voter = holder.voter
        self.cluster.network.call(
            self.process,
            holder.process,
            lambda answer: answer(voter.append(me, previous, entries, committed)),
            lambda result: self._on_answer(name, result, quorum),
            timeout_ms=ANSWER_MS,
            what="append",
        )

    def _install(self, name: str, holder: SimulatedNode) -> None:
        """Bring it the snapshot."""
        quorum, me, end, voter = self.quorum, self.me, self.quorum.start, holder.voter
        entries = [each for each in self.entries if each.end_offset <= end.offset]
        self.cluster.network.call(
            self.process,
            holder.process,
            lambda answer: answer(voter.install(me, end, entries)),
            lambda result: self._on_answer(name, result, quorum),
            timeout_ms=ANSWER_MS,
            what="install",
        )

    def _entry_at(self, offset: int) -> int:
        return max(0, bisect_right(self.entries, offset, key=lambda each: each.base_offset) - 1)

    def _on_answer(self, name: str, result: Any, quorum: MetadataQuorum) -> None:
        self._sending.discard(name)
        if self.is_over or quorum is not self.quorum:
            return
        if isinstance(result, Appended | Installed):
            if isinstance(result, Installed):
                is_more = quorum.on_snapshot(name, result.end_offset)
            elif result.is_there:
                is_more = quorum.on_acknowledged(name, result.offset)
            else:
                is_more = False
                quorum.on_mismatch(name, result.offset)
            if is_more:
                self.cluster.oracle.on_metadata_committed(self)
                end, then = self._on_committed
                if quorum.committed >= end:
                    self._on_committed = (1 << 62), then
                    then()
            self._send(name)
        elif result is LOST:
            self.process.after(RETRY_MS, lambda: self._send(name))
        else:
            self.end("a newer controller took over")

    def end(self, reason: str) -> None:
        """It has noticed that it is over."""
        if self.is_over:
            return
        self.is_over, self.is_active = True, False
        self._refuse_all()
        self.cluster.on_controller_end(self, reason)

    def kill(self) -> None:
        self.is_over, self.is_active = True, False
        self.process.end_life()

    def _refuse_all(self) -> None:
        waiting = [answer for _, answer in self._changes] + [each.answer for each in self._parked]
        self._changes.clear()
        self._parked.clear()
        for answer in waiting:
            answer(NotController("it has ended"))

    # --- changing --------------------------------------------------------------------------------

    def _decide_and_write(self, decide: Decide, answer: Answer) -> None:
        self._changes.append((decide, answer))
        self._pump()

    def _pump(self) -> None:
        while self._changes and not self._is_changing and self.is_active:
            decide, answer = self._changes.popleft()
            try:
                records, result = decide(self.image)
            except KafkaError as error:
                answer(error)
                continue
            if not records:
                answer(result)
                continue
            self._is_changing = True

            def done(answer: Answer = answer, result: Any = result) -> None:
                self._is_changing = False
                answer(result)
                self.process.after(0, self._pump)

            self._write(records, done)

    def _min_insync(self, image: MetadataImage, topic: TopicImage) -> int:
        return min_insync_replicas(image, None, topic)  # type: ignore[arg-type]  # it has its own

    def register(self, request: NodeRegistration, answer: Answer) -> None:
        if not self.is_active:
            answer(NotController("not active"))
            return

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            node_id, records = controller_state.register_node(
                image, request, min_insync=partial(self._min_insync, image)
            )
            return records, node_id

        def registered(result: Any) -> None:
            if isinstance(result, int):
                self.sessions.on_contact(result, now_ms=self.cluster.clock.now_ms)
                answer(Registered(result, self.me.epoch))
            else:
                answer(result)

        self._decide_and_write(decide, registered)

    def change(self, request: AlterPartition | ElectLeaders, answer: Answer) -> None:
        if not self.is_active:
            answer(NotController("not active"))
            return
        self._decide_and_write(
            lambda image: request.decide(image, None),  # type: ignore[arg-type]  # as above
            answer,
        )

    def write_records(self, records: Sequence[MetadataRecord]) -> None:
        """The topics, when the cluster is made."""
        self._decide_and_write(lambda _: (records, None), lambda _: None)

    # --- nodes -----------------------------------------------------------------------------------

    def poll(self, node_id: int, incarnation: str, applied: int, answer: Answer) -> None:
        """A node's heartbeat and its question for news."""
        if not self.is_active:
            answer(NotController("not active"))
            return
        question = _Question(node_id, incarnation, applied, answer)
        self._hear(question, lambda: self._park(question))

    def _hear(self, question: _Question, then: Callable[[], None]) -> None:
        try:
            node = controller_state.check_session(
                self.image, question.node_id, question.incarnation
            )
        except KafkaError as error:
            question.answer(error)
            return
        self.sessions.on_contact(question.node_id, now_ms=self.cluster.clock.now_ms)
        if node.fenced:
            self._fence(question.node_id, fenced=False, then=then)
        else:
            then()

    def _park(self, question: _Question) -> None:
        if question.applied < self.image.offset:
            self._tell(question)
            return
        self._parked.append(question)

        def waited() -> None:
            if question in self._parked:
                self._parked.remove(question)
                self._hear(question, lambda: self._tell(question))

        self.process.after(self.cluster.swarm.session_ms // 3, waited)

    def _tell(self, question: _Question) -> None:
        question.answer(MetadataUpdate(self.me.epoch, self.image))

    def _tell_parked(self) -> None:
        parked, self._parked = self._parked, []
        for question in parked:
            self._hear(question, partial(self._tell, question))

    def leave(self, node_id: int, incarnation: str, answer: Answer) -> None:
        if not self.is_active:
            answer(NotController("not active"))
            return
        try:
            controller_state.check_session(self.image, node_id, incarnation)
        except KafkaError as error:
            answer(error)
            return
        self._fence(node_id, fenced=True, then=lambda: answer(None))

    def _fence(self, node_id: int, *, fenced: bool, then: Callable[[], None]) -> None:
        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            records = controller_state.fence_node(
                image, node_id, fenced=fenced, min_insync=partial(self._min_insync, image)
            )
            return records, None

        def done(result: Any) -> None:
            self._fencing.discard(node_id)
            if result is None:
                then()

        self._decide_and_write(decide, done)

    def _tick(self) -> None:
        if not self.is_active:
            return
        for node_id in self.sessions.expired(self.image, now_ms=self.cluster.clock.now_ms):
            if node_id not in self._fencing:
                self._fencing.add(node_id)
                self._fence(node_id, fenced=True, then=lambda: None)
        swarm, random = self.cluster.swarm, self.cluster.random
        if swarm.snapshots and random.random() < swarm.snapshots:
            self._snapshot()
        if swarm.voter_changes and not self.cluster.is_calm:
            if random.random() < swarm.voter_changes:
                self._change_voters()
        self.process.after(self.cluster.swarm.session_ms // 6, self._tick)

    # --- snapshots, voters -----------------------------------------------------------------------

    def _snapshot(self) -> None:
        if self.image.offset > self.quorum.start.offset:
            self.quorum.compact(end_of(self.image))
            self._send_all()

    def _change_voters(self) -> None:
        """As Controller.change_voter does, after an entry that shows who is there: one more,
        or one less; first those that are nobody's any more.
        """
        if self.is_changing_voters:
            return
        cluster, voters = self.cluster, self.image.voters
        nodes = {node.voter.directory_id: node_id for node_id, node in cluster.nodes.items()}
        others = [name for name in nodes if name not in voters]
        lost = [name for name in voters if name not in nodes]
        if lost:
            request = VoterChange(is_addition=False, directory_id=lost[0])
        elif others and (len(voters) <= LEAST_VOTERS or cluster.random.random() < 0.5):
            name = cluster.random.choice(others)
            request = VoterChange(is_addition=True, node_id=nodes[name], directory_id=name)
            self._observers.add(name)
            self._send_all()
        elif len(voters) > LEAST_VOTERS:
            name = cluster.random.choice(voters)
            request = VoterChange(is_addition=False, node_id=nodes[name], directory_id=name)
        else:
            return
        self.is_changing_voters = True
        target = [0]

        def decide(image: MetadataImage) -> tuple[Sequence[MetadataRecord], Any]:
            named = request.voters(image, self.quorum.acknowledged, target[0])
            return [VotersRecord(voters=named)] if named != image.voters else [], None

        def confirmed(result: Any) -> None:
            target[0] = self.quorum.committed
            self.process.after(CATCH_UP_MS, lambda: self._decide_and_write(decide, changed))

        def changed(result: Any) -> None:
            self.is_changing_voters = False

        record = EpochRecord(epoch=self.me.epoch, owner=self.me.owner)
        self._decide_and_write(lambda _: ([record], None), confirmed)

"""A controller of the simulation: drives the shipped QuorumController in a process of its own.

Each is on some machine. One that Ray has replaced, and that nobody has ended, goes on as long as it
does not notice that it is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.control.controller_request import ControllerRequest
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import MetadataRecord
from bradbury.cluster.quorum.voter import Candidate
from bradbury.cluster.quorum.voter_change import VoterChange
from bradbury.controller.active.quorum_controller import QuorumController
from bradbury.controller.controller_calls import Change, ChangeVoter, ControllerCall
from bradbury.controller.controller_effects import (
    AskVoter,
    Ended,
    FindVoters,
    FoundVoters,
    Instant,
    ProbePort,
    RunInThread,
)
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.node.controller_finder import CONTROLLER
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.handlers.configs.config_rules import ServerConfigRules
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import ConnectionFailed
from bradbury.steps.replies import Refuse, Reply

from ..simulated_network import LOST, Answer, Process
from .simulated_voter import result_of

if TYPE_CHECKING:
    from ..simulated_cluster import SimulatedCluster
    from ..simulated_swarm import Swarm

LEAST_VOTERS = 2
FIRST_PORT = 1_000
SNAPSHOT_BYTES = 150
"""Size of the log at which a snapshot has probability 1."""


@cache
def rules() -> ServerConfigRules:
    return ServerConfigRules(ServerConfig())


def times_of(swarm: Swarm) -> QuorumTimes:
    """All some twenty times shorter than in life, as sessions are."""
    return QuorumTimes(
        answer_ms=150,
        fetch_ms=300,
        commit_ms=1_500,
        confirm_ms=150,
        retry_ms=30,
        longest_retry_ms=120,
        find_ms=50,
        late_ms=15,
        start_ms=30,
        tick_ms=swarm.session_ms // 6,
        unclean_ms=900,
    )


def config_of(swarm: Swarm) -> BrokerConfig:
    snapshots = {}
    if swarm.snapshots:
        size = int(SNAPSHOT_BYTES / swarm.snapshots)
        snapshots = {"metadata_log_max_record_bytes_between_snapshots": size}
    return BrokerConfig(broker_session_timeout_ms=swarm.session_ms, **snapshots)


class SimulatedController:
    """One process. It begins again until it is active; when it is superseded then, it is over."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        number: int,
        machine: int,
        *,
        actor: str = CONTROLLER,
        on_started: Callable[[Exception | None], None] | None = None,
    ) -> None:
        """`actor`: the name of its actor. `on_started`: of a standby controller, which does not
        start over.
        """
        self._tell_started = on_started
        self.cluster = cluster
        self.name = f"c{number}"
        self.process = Process(cluster.clock, machine, self.name)
        self.process.begin_life()
        self._effects: list[Any] = []
        self.step = QuorumController(
            actor, config_of(cluster.swarm), rules(), self._effects, times_of(cluster.swarm)
        )
        self._voter_changes = 0
        self._timer_ms: int | None = None
        self._elected: MetadataLeader | None = None
        self._leader: MetadataLeader | None = None
        self._committed = 0
        self._published: MetadataImage | None = None
        self.checked = 0
        """Up to where the oracle has seen the log that it leads."""
        self._start()

    @property
    def image(self) -> MetadataImage:
        return self.step.image

    @property
    def me(self) -> Candidate:
        return self.step.me

    @property
    def is_active(self) -> bool:
        return self.process.is_up and self.step.is_active

    @property
    def is_writing(self) -> bool:
        """It waits for a majority to have what it has written."""
        return self.step.changes.write is not None

    @property
    def leader(self) -> MetadataLeader | None:
        """The leader of the metadata log, if it is elected."""
        return self.step.leader

    def _now(self) -> Instant:
        return Instant(self.cluster.clock.now_ms, self.cluster.clock.now_ms)

    # --- life ------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.step.start(self._on_started, self._now())
        self._after_input()

    def _on_started(self, failure: Exception | None) -> None:
        if failure is None:
            self.cluster.on_controller(self)
            self._change_voters_later()
        if self._tell_started is not None:
            self._tell_started(failure)
        if failure is None:
            return
        if self._tell_started is not None:
            self._end(str(failure))
        elif self.cluster.registered is self and self.process.is_up:
            self.process.after(30 + self.cluster.random.randrange(30), self._start)
        else:
            self._end(str(failure))

    def _end(self, reason: str) -> None:
        if self.process.is_up:
            self.cluster.on_controller_end(self, reason)

    def kill(self) -> None:
        self.process.end_life()

    def end(self, reason: str) -> None:
        """The broker that runs it knows that it is over."""
        if self.process.is_up:
            self.step.end(reason)
            self._after_input()
            self._end(reason)

    # --- inputs ----------------------------------------------------------------------------------

    @property
    def is_changing_voters(self) -> bool:
        """Voters are added or removed: by the swarm, or as a node is drained for good."""
        return self._voter_changes > 0

    def ask(self, call: ControllerCall[Any], answer: Answer) -> None:
        if isinstance(call, ChangeVoter):
            self._voter_changes += 1
            answer = self._noting_change(answer)
        self.step.handle(answer, call, self._now())
        self._after_input()

    def _noting_change(self, answer: Answer) -> Answer:
        def changed(result: Any) -> None:
            self._voter_changes -= 1
            answer(result)

        return changed

    def change(self, request: ControllerRequest[Any], answer: Answer) -> None:
        self.ask(Change(request, timeout_ms=0), answer)

    def write(self, decide: Callable[[MetadataImage], list[MetadataRecord]]) -> None:
        """Records of what is there from the beginning."""
        self.step.changes.submit(lambda image: (decide(image), None), lambda *_: None, self._now())
        self._after_input()

    def _on_done(self, effect: Any, result: Any) -> None:
        self.step.on_done(
            effect, ConnectionFailed("lost") if result is LOST else result, self._now()
        )
        self._after_input()

    def _after_input(self) -> None:
        self._show_oracle()
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            self._perform(effect)
        self._set_timer()

    def _set_timer(self) -> None:
        deadline_ms = self.step.next_deadline_ms
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        self._timer_ms = deadline_ms

        def on_time() -> None:
            if self._timer_ms != deadline_ms:
                return  # an earlier one was set meanwhile
            self._timer_ms = None
            self.step.on_tick(self._now())
            self._after_input()

        self.process.after(max(0, deadline_ms - self.cluster.clock.now_ms), on_time)

    def _show_oracle(self) -> None:
        leader = self.step.leader
        if leader is None:
            return
        if leader is not self._leader:
            self._leader, self._committed, self.checked = leader, 0, 0
        if leader is not self._elected and leader.quorum.has_majority:
            self._elected = leader
            self.cluster.on_votes(self)
        if leader.quorum.committed > self._committed:
            self._committed = leader.quorum.committed
            self.cluster.oracle.on_metadata_committed(self, leader)
        if self.step.is_active and self.image is not self._published:
            self._published = self.image
            self.cluster.oracle.on_metadata(self, leader)
            if self.cluster.access is not None:
                self.cluster.access.on_metadata(self.image)

    # --- effects ---------------------------------------------------------------------------------

    def _perform(self, effect: Any) -> None:
        cluster = self.cluster
        match effect:
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
            case AskVoter(node, request, timeout_ms):
                cluster.network.call(
                    self.process,
                    node.process,
                    lambda answer: node.voter.ask(request, answer),
                    partial(self._on_done, effect),
                    timeout_ms=timeout_ms,
                    what=type(request).__name__,
                )
            case FindVoters():
                token = f"{cluster.random.getrandbits(128):032x}"
                found = FoundVoters(list(cluster.nodes.values()), token)
                self.process.after(1, lambda: self._on_done(effect, found))
            case RunInThread(work):
                self.process.after(1, lambda: self._on_done(effect, result_of(work)))
            case ProbePort(_, port):
                is_dead = cluster.is_port_closed(port)
                self.process.after(2, lambda: self._on_done(effect, is_dead))
            case Ended():
                self._end("another controller took over, or no majority of the voters answers")

    # --- who votes -------------------------------------------------------------------------------

    def _change_voters_later(self) -> None:
        swarm = self.cluster.swarm
        if not swarm.voter_changes:
            return
        if not self.is_active:
            return
        if not self.cluster.is_calm and self.cluster.random.random() < swarm.voter_changes:
            self._change_voters()
        self.process.after(swarm.session_ms // 6, self._change_voters_later)

    def _change_voters(self) -> None:
        """One more, or one less; first those that are nobody's any more."""
        if self.is_changing_voters:
            return
        cluster, voters = self.cluster, self.image.voters
        nodes = {node.metadata_directory_id: node_id for node_id, node in cluster.nodes.items()}
        others = [name for name in nodes if name not in voters]
        lost = [name for name in voters if name not in nodes]
        if lost:
            request = VoterChange(is_addition=False, directory_id=lost[0])
        elif others and (len(voters) <= LEAST_VOTERS or cluster.random.random() < 0.5):
            name = cluster.random.choice(others)
            request = VoterChange(is_addition=True, node_id=nodes[name], directory_id=name)
        elif len(voters) > LEAST_VOTERS:
            name = cluster.random.choice(voters)
            request = VoterChange(is_addition=False, node_id=nodes[name], directory_id=name)
        else:
            return
        self.ask(ChangeVoter(request, timeout_ms=300), lambda answer: None)

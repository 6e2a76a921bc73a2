"""Machines that are drained while they work: Ray or the autoscaler is about to end them.

Drives controller/node/node_departure over the virtual clock, as actors/ray/departure.py does. Some drains
are withdrawn, some machines die before their deadline, and some come back without their disk: where
a departure has said that nothing is left on its machine, that disk is not one that may be lost, but
one that nobody needs.

    N1  what has left nothing has no replica and no vote that the node knows of
    N2  a node that was drained has ended by its deadline; at rest none is on its way out
    N3  a node whose drain was withdrawn in time stays

All chance is a stream of its own.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from bradbury.cluster.control.rebalance import replicas_on
from bradbury.controller.controller_effects import (
    AskController,
    CloseNode,
    EndProcess,
    HandOver,
    Instant,
)
from bradbury.controller.node.node_departure import (
    WITHDRAWABLE,
    DeparturePhase,
    DepartureTimes,
    NodeDeparture,
)

from ...clients.simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..simulated_cluster import SimulatedCluster
    from ..simulated_node import SimulatedNode

TIMES = DepartureTimes(retry=40, hand_over=400, vote=1_000, longest=6_000, voter=300)
"""All some times shorter than in life, as sessions are."""
LATE_MS = 1_500
"""After a deadline: the node closes from then on, which waits for the disk."""


class SimulatedDeparture:
    """What one life of a node does about its drains."""

    def __init__(self, drains: Drains, node: SimulatedNode) -> None:
        self.node = node
        self.life = node.process.life
        self.may_end = True
        self._ends_at_ms: int | None = None
        self._drains = drains
        self._effects: list[Any] = []
        self._is_checked = False
        self.step = NodeDeparture(
            f"m{node.node_id}",
            self._effects,
            node_id=lambda: node.node_id,
            image=lambda: node.image,
            is_broker=True,
            moves_replicas=node.cluster.swarm.drains_for_good,
            times=TIMES,
        )

    @property
    def is_alive(self) -> bool:
        return self.node.process.is_up and self.node.process.life == self.life

    def _now(self) -> Instant:
        return Instant(self.node.clock.now_ms, self.node.clock.now_ms)

    def on_notice(self, left_ms: int | None) -> None:
        self.may_end = True
        self._ends_at_ms = None if left_ms is None else self._now().now_ms + left_ms
        self._tell()

    def on_other(self) -> None:
        """Other machines are being drained, or no longer."""
        if self.is_alive and self.step.phase in WITHDRAWABLE and self.may_end:
            self._tell()

    def _tell(self) -> None:
        node, ends_at_ms = self.node, self._ends_at_ms
        left_ms = None if ends_at_ms is None else max(0, ends_at_ms - self._now().now_ms)
        # As one that has joined: it has the first image of its life.
        is_serving = node.is_registered and node.image.offset > 0
        self.step.on_notice(
            left_ms,
            is_serving=is_serving,
            now=self._now(),
            leaving=self._drains.leaving() - {f"m{node.node_id}"},
        )
        self._after_input()

    def on_withdrawn(self) -> None:
        self.may_end = self.step.phase not in (*WITHDRAWABLE, DeparturePhase.STAYS)
        self.step.on_withdrawn(self._now())
        self._after_input()

    def _after_input(self) -> None:
        self._check()
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            self._perform(effect)
        deadline_ms = self.step.next_deadline_ms
        if deadline_ms is not None:
            self.node.process.after(
                max(0, deadline_ms - self.node.clock.now_ms), partial(self._on_time, deadline_ms)
            )

    def _on_time(self, deadline_ms: int) -> None:
        if self.step.next_deadline_ms == deadline_ms:
            self.step.on_tick(self._now())
            self._after_input()

    def _done(self, effect: Any, result: Any) -> None:
        self.step.on_done(effect, result, self._now())
        self._after_input()

    def _perform(self, effect: Any) -> None:
        node = self.node
        match effect:
            case AskController(call):
                node._ask_controller(call, partial(self._done, effect))
            case HandOver():
                node.lifecycle.leave(partial(self._done, effect), self._now())
                node._perform()
            case CloseNode():
                node.is_stopping = True
                node.driver.run(node._close(), partial(self._done, effect))
            case EndProcess():
                node.process.after(0, partial(self._drains.on_end, self))

    def _check(self) -> None:
        """N1, in the moment in which it is said; N3."""
        node, step = self.node, self.step
        if step.phase is DeparturePhase.IS_GONE and not self.may_end:
            raise Violation("N3", f"node {node.node_id} ends, its drain was withdrawn")
        if self._is_checked or not step.has_left_nothing:
            return
        self._is_checked = True
        node.cluster.oracle.note(None, f"node {node.node_id} has left nothing")
        if left := replicas_on(node.image, f"m{node.node_id}"):
            raise Violation("N1", f"node {node.node_id} goes, and has {left} replicas")
        voters = node.image.voters
        if node.metadata_directory_id in voters:
            raise Violation("N1", f"node {node.node_id} goes, and votes: {voters}")


class Drains:
    """Notices, withdrawals and ends of machines, until the calm."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._swarm = cluster.swarm
        self._random = Random(f"drains {cluster.seed}")
        self._departures: dict[int, SimulatedDeparture] = {}
        self.count = self.withdrawn = self.lost_disks = 0

    def start(self) -> None:
        if self._swarm.drain_every_ms:
            self._later()

    def _later(self) -> None:
        delay_ms = 1 + int(self._random.expovariate(1 / self._swarm.drain_every_ms))
        self._cluster.clock.after(delay_ms, self._drain_one)

    def _departure_of(self, node: SimulatedNode) -> SimulatedDeparture:
        known = self._departures.get(node.node_id)
        if known is None or not known.is_alive:
            known = self._departures[node.node_id] = SimulatedDeparture(self, node)
        return known

    def _drain_one(self) -> None:
        cluster, random = self._cluster, self._random
        if cluster.is_calm:
            return
        self._later()
        node = random.choice(list(cluster.nodes.values()))
        left_ms = random.choice((None, 0, 200, 600, 2_000, 4_000))
        if not node.process.is_up or self.is_under_way(node):
            return
        departure = self._departure_of(node)
        self.count += 1
        cluster.oracle.note(None, f"node {node.node_id} is drained, {left_ms} ms are left")
        node.process.after(0, lambda: departure.on_notice(left_ms))
        self._tell_others()
        fate = random.random()
        if fate < 0.3:
            cluster.clock.after(random.randrange(1_500), lambda: self._withdraw(departure))
        elif fate < 0.45:
            cluster.clock.after(random.randrange(1_500), lambda: self._end_early(departure))
        elif left_ms is not None:
            self._look_later(departure, left_ms)

    def _tell_others(self) -> None:
        """They ask Ray now and then."""
        for other in self._departures.values():
            other.node.process.after(TIMES.retry, other.on_other)

    def leaving(self) -> frozenset[str]:
        """Machines that are being drained."""
        nodes = self._cluster.nodes.values()
        return frozenset(f"m{node.node_id}" for node in nodes if self.is_under_way(node))

    def is_under_way(self, node: SimulatedNode) -> bool:
        known = self._departures.get(node.node_id)
        return known is not None and known.is_alive and known.step.phase is not DeparturePhase.STAYS

    def _withdraw(self, departure: SimulatedDeparture) -> None:
        if departure.is_alive:
            node = departure.node
            self._cluster.oracle.note(None, f"the drain of node {node.node_id} is withdrawn")
            self.withdrawn += 1
            node.process.after(0, departure.on_withdrawn)
            self._tell_others()

    def _end_early(self, departure: SimulatedDeparture) -> None:
        """Before anything is handed over, or in the midst of it."""
        if departure.is_alive and not self._cluster.is_calm:
            faults = self._cluster.faults
            what = faults.kill if self._random.random() < 0.5 else faults.lose_power
            what(departure.node)

    def _look_later(self, departure: SimulatedDeparture, left_ms: int) -> None:
        """N2, unless it hung meanwhile."""
        node = departure.node
        number = node.process.paused

        def look() -> None:
            hung = node.process.paused != number or node.process.is_paused
            if departure.is_alive and not hung and departure.step.phase is not DeparturePhase.STAYS:
                raise Violation(
                    "N2",
                    f"node {node.node_id} still {departure.step.phase.value}, "
                    f"{LATE_MS} ms after its deadline",
                )

        late_ms = LATE_MS + TIMES.retry + self._swarm.fsync_ms * 20
        self._cluster.clock.after(left_ms + late_ms, look)

    def on_end(self, departure: SimulatedDeparture) -> None:
        """The process has ended; its machine is back after a while, or another one in its place."""
        node, cluster = departure.node, self._cluster
        cluster.oracle.note(None, f"node {node.node_id} has left")
        if departure.step.has_left_nothing and self._is_needless(node):
            self.lost_disks += 1
            cluster.oracle.note(None, f"node {node.node_id}'s machine is gone with its disk")
            node.replace_disk()
        else:
            node.kill()
        life = node.process.life

        def start() -> None:
            if not node.process.is_up and node.process.life == life:
                node.start()

        cluster.clock.after(10 + self._random.randrange(800), start)

    def _is_needless(self, node: SimulatedNode) -> bool:
        """Whether nobody has given it anything since it said that it has left nothing: another
        machine that is drained may have.
        """
        is_voter = any(node.metadata_directory_id in each for each in self._cluster.voter_sets())
        return not is_voter and not replicas_on(self._cluster.oracle.image, f"m{node.node_id}")

    @property
    def unsettled(self) -> str | None:
        """N2, at rest."""
        for departure in self._departures.values():
            if self.is_under_way(departure.node):
                return f"node {departure.node.node_id} {departure.step.phase.value}"
        return None

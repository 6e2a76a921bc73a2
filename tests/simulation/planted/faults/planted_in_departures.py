"""Planted faults of nodes whose machines are drained; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.controller.controller_effects import Instant
from bradbury.controller.node import node_departure
from bradbury.controller.node.node_departure import DeparturePhase, NodeDeparture

from ..fault_registry import Patch, fault

DRAINING = {
    "nodes": 5,
    "drain_every_ms": 300,
    "drains_for_good": True,
    "kinds": ("cut", "group", "controller"),
}


@fault(**DRAINING)
def replicas_count_as_moved_when_their_moves_have_begun(patch: Patch) -> None:
    """The controller has agreed, and nothing is copied yet."""

    def on_moves(step: NodeDeparture, begun: tuple[object, ...], now: Instant) -> None:
        step.has_left_nothing = bool(begun)
        step._begin_hand_over(now)

    patch(NodeDeparture, "_on_moves", on_moves)


@fault(**DRAINING)
def a_vote_that_nobody_has_taken_counts_as_passed_on(patch: Patch) -> None:
    """As if it were enough that nobody could be found."""
    patch(node_departure, "successor", lambda image, machine: None)
    patch(NodeDeparture, "_is_voter", lambda step: False)


@fault(**DRAINING)
def a_drained_node_waits_for_a_controller_without_end(patch: Patch) -> None:
    """Its deadline comes, and it still asks who leads after it."""
    original = NodeDeparture._give_up

    def give_up(step: NodeDeparture, now: Instant) -> None:
        if step.phase is DeparturePhase.HANDS_OVER:
            step._until_ms = now.now_ms + 60_000
        else:
            original(step, now)

    patch(NodeDeparture, "_give_up", give_up)


@fault(**DRAINING)
def a_withdrawal_is_not_heard(patch: Patch) -> None:
    """What was begun is gone on with, and a machine that stays has no node for a while."""

    def on_withdrawn(step: NodeDeparture, *given: Any) -> None:
        """Nothing."""

    patch(NodeDeparture, "on_withdrawn", on_withdrawn)

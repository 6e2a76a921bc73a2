"""Departure of a node that Ray drains: the driver of controller/node/node_departure.

It asks the controller, lets the node hand over and close, and ends the process; nothing is decided
here.
"""

from __future__ import annotations

from collections.abc import Callable

from ...controller.controller_effects import AskController, CloseNode, EndProcess, HandOver
from ...controller.node.node_departure import NodeDeparture
from ...handlers.ports.context import Controller
from ..controller.two_clock_driver import TwoClockDriver
from ..node import Node


class Departure:
    """Departure of one node, on its event loop."""

    def __init__(
        self,
        node: Node,
        controller: Controller,
        machine: str,
        *,
        is_broker: bool,
        on_end: Callable[[str], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`on_end`: ends the process, with the reason. `on_fault`: so does this, for a bug."""
        self._driver = driver = TwoClockDriver(node.now_ms, on_fault)
        self._step = NodeDeparture(
            machine,
            driver.effects,
            node_id=lambda: node.node_id,
            image=lambda: node.image,
            is_broker=is_broker,
            moves_replicas=node.config.bradbury_drain_moves_replicas,
        )
        driver.on_awaited(AskController, lambda effect: controller.ask(effect.call))
        driver.on_awaited(HandOver, lambda effect: node.leave())
        driver.on_awaited(CloseNode, lambda effect: node.close())
        driver.on(EndProcess, lambda effect: on_end(effect.reason))
        driver.drive(self._step)

    @property
    def problem(self) -> str | None:
        """Departure in words, for operators; None: the node stays."""
        problem: str | None = self._step.phase.value
        return problem

    def on_notice(self, left_ms: int | None, leaving: frozenset[str], *, is_serving: bool) -> None:
        """See NodeDeparture."""
        self._step.on_notice(
            left_ms, is_serving=is_serving, now=self._driver.now(), leaving=leaving
        )
        self._driver.carry_out()

    def on_withdrawn(self) -> None:
        """See NodeDeparture."""
        self._step.on_withdrawn(self._driver.now())
        self._driver.carry_out()

"""What looks after damaged segments on a simulated node: the driver of the shipped steps, as
actors/replication/log_scrubber is.

Files are read and written in threads of their own: anything may happen before such work begins, and
until its step knows. What is asked of other nodes comes late, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bradbury.protocol.errors import ConnectionFailed
from bradbury.protocol.messages.fetch import FetchResponse
from bradbury.replication.effects import RunScrubWork, SendRepairFetch
from bradbury.replication.logs.log_scrub import LogScrub
from bradbury.replication.logs.segment_healer import ScrubbingStopped, SegmentHealer
from bradbury.replication.procedure import ProcedureSteps

from ...clients.simulated_log_checks import Violation
from ..simulated_fetcher import ANSWER_MS, answer_fetch
from ..simulated_swarm import DAMAGING

if TYPE_CHECKING:
    from ..simulated_node import SimulatedNode
    from .simulated_directories import SimulatedDirectories

LOOK_MS = 100
END_MS = 400
SCRUB_MS = 1_000


class SimulatedScrubber:
    """Of one life of a node. `stop` at a clean stop."""

    def __init__(self, node: SimulatedNode, directories: SimulatedDirectories) -> None:
        self._node = node
        driver, steps = node.driver, node.steps
        self.healer = SegmentHealer(
            directories.all,
            steps.by_partition.values,
            driver.effects,
            node_id=lambda: node.node_id,
            image=lambda: steps.image,
            wall_ms=node.now_ms,
            monotonic_ms=node.now_ms,
            on_storage_failure=steps.on_storage_failure,
            give_up_leadership=steps.offline_replicas.give_up,
        )
        self.scrub = LogScrub(
            self.healer,
            steps.by_partition.values,
            replace(node.server_config.broker, bradbury_log_scrub_interval_ms=SCRUB_MS),
            driver.effects,
            monotonic_ms=node.now_ms,
            wall_ms=node.now_ms,
        )
        driver.on(RunScrubWork, self._run_work)
        driver.on(SendRepairFetch, self._send_fetch)
        self._running = 0
        self._fetching: dict[Any, Callable[[Any], None]] = {}
        self._on_quiet: Callable[[], None] | None = None
        self._repeat(self._heal, LOOK_MS)
        self._repeat(self.scrub.check_ends, END_MS)
        self._repeat(self.scrub.scrub, END_MS)

    def stop(self, then: Callable[[], None]) -> None:
        """`then` is called when nothing of it runs any more."""
        self.healer.is_stopping = True
        self._on_quiet = then
        for done in list(self._fetching.values()):
            done(ScrubbingStopped())
        self._look_whether_quiet()

    def _look_whether_quiet(self) -> None:
        if self._running == 0 and (then := self._on_quiet) is not None:
            self._on_quiet = None
            then()

    def _repeat(self, steps: Callable[[], ProcedureSteps], pause_ms: int) -> None:
        node = self._node

        def begin() -> None:
            if not self.healer.is_stopping:
                self._running += 1
                node.driver.run(steps(), ended)

        def ended(error: Exception | None) -> None:
            if error is not None and not isinstance(error, ScrubbingStopped):
                raise error
            self._running -= 1
            self._look_whether_quiet()
            node.process.after(pause_ms, begin)

        node.process.after(pause_ms, begin)

    def _heal(self) -> ProcedureSteps:
        before = self.healer.healed
        yield from self.healer.heal_damaged()
        if self.healer.healed > before:
            self._node.cluster.oracle.on_healed(self._node, self.healer.healed - before)
        damaged = self.healer.damaged()
        if damaged and not DAMAGING & {*self._node.cluster.swarm.kinds}:
            replica, lost = damaged[0]
            raise Violation("L8", f"{replica} is whole, and is said to have lost {lost}")

    def _run_work(self, effect: RunScrubWork) -> None:
        def progress(size: int) -> None:
            if self.healer.is_stopping:
                raise ScrubbingStopped

        self._node.driver.run_aside(
            effect, progress, random=self._node.cluster.random, stopped_by=ScrubbingStopped
        )

    def _send_fetch(self, effect: SendRepairFetch) -> None:
        node, (step, fetch) = self._node, effect
        source = node.cluster.nodes[fetch.node_id]

        def done(result: Any) -> None:
            if self._fetching.pop(fetch, None) is None:
                return
            failure: Exception | None = None
            if isinstance(result, FetchResponse):
                fetch.answer = result
            else:
                is_stop = isinstance(result, ScrubbingStopped)
                failure = result if is_stop else ConnectionFailed("it does not answer")
            step.on_work_done(fetch, failure, node.clock.now_ms)
            node.driver.carry_out()

        self._fetching[fetch] = done
        node.cluster.network.call(
            node.process,
            source.process,
            lambda answer: answer_fetch(source, f"repair-{node.node_id}", fetch.request, answer),
            done,
            timeout_ms=fetch.request.max_wait_ms + ANSWER_MS,
            what="repair",
        )

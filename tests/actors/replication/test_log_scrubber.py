"""Does the scrubber's driver end when its node does, whatever it waits for?"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bradbury.actors.loop.step_driver import StepDriver
from bradbury.actors.replication.log_scrubber import LogScrubber
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.messages.fetch import FetchRequest
from bradbury.replication.logs.segment_healer import RecordsFetch
from bradbury.replication.procedure import ProcedureSteps
from bradbury.tests.support.metadata import cluster
from bradbury.tests.support.ray.event_loops import LOOPS, run_on


class Asking:
    """In the place of both steps: asks node 1 for records, again and again, and nothing else."""

    config = BrokerConfig()
    is_stopping = False

    def __init__(self, driver: StepDriver) -> None:
        self._effects = driver.effects
        self.failures: list[Exception | None] = []

    def heal_damaged(self) -> ProcedureSteps:
        fetch = RecordsFetch(self._effects, 1, FetchRequest())
        self.failures += yield [fetch]

    def check_ends(self) -> ProcedureSteps:
        yield from ()

    scrub = check_ends


class SilentNode:
    """Whoever it connects to does not answer."""

    node_id = 7
    config = BrokerConfig()
    image: MetadataImage = cluster("a1", "b1")
    peers = SimpleNamespace()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("turns", range(5))
def test_it_stops_at_any_moment_of_a_fetch_that_nobody_answers(loop: str, turns: int) -> None:
    """Also when that has been asked for and not begun."""

    async def stopped() -> list[Exception | None]:
        async def connect(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        node: Any = SilentNode()
        node.peers.connect = connect
        driver = StepDriver()
        steps: Any = Asking(driver)
        scrubber = LogScrubber(steps, steps, driver, node)
        scrubber.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await scrubber.stop()
        return steps.failures

    failures = run_on(loop, stopped(), patience_s=30)
    assert [type(each).__name__ for each in failures] in ([], ["ScrubbingStopped"])

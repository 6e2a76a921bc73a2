"""Deaths while six streams with state run on the machines: an executor's, their driver's, a machine's.

The streams are those of examples/stateful_streams.py, their driver is stream_driver.py on the head,
their executors are on n2 and n3. Each death comes when every stream has gone on since the one
before, and most are not done. In the end each topic has what a batch computes of the same input.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import psutil

from bradbury.examples import stateful_streams as streams
from bradbury.tests.deploy.journey import ADDRESSES, Failed, Journey
from bradbury.tests.deploy.submitted import Submitted

DRIVER = "stream_driver.py"
GOES_ON_SECONDS = 480
END_SECONDS = 900
LOOK_SECONDS = 0.5
FEWEST = 3
Saw = Callable[[str], None]
Places = Mapping[str, streams.Progress]


class Streams:
    """The streams, over all runs of their driver."""

    def __init__(self, journey: Journey, servers: str) -> None:
        self._journey = journey
        self._servers = servers
        self._folder = journey.shared / "streams"
        self._checkpoints = self._folder / "checkpoints"
        self._at: Places = dict.fromkeys(streams.INPUTS, streams.Progress(0, 0, 0))
        self._folder.mkdir(parents=True)
        streams.fill(servers, replicas=3)

    def lose_executor_and_driver(self, saw: Saw) -> None:
        """In one run: kill -9 of the executor on n2, then of the driver and all it has started."""
        with self._driver() as driver:
            self._wait_until_all_go_on(driver)
            executors = self._executors("n2")
            if not executors:
                raise Failed("n2 has no executor that works")
            for executor in executors:
                executor.kill()
            saw(f"kill -9 of {len(executors)} executor on n2 {self._told()}")
            self._wait_until_all_go_on(driver)
            saw(f"kill -9 of {driver.kill()} processes of the driver {self._told()}")

    @contextlib.contextmanager
    def under_way(self) -> Iterator[Submitted]:
        """A run that goes on by the checkpoints, and has got somewhere, while a machine is killed."""
        with self._driver() as driver:
            self._wait_until_all_go_on(driver)
            yield driver

    def expect_go_on(self, driver: Submitted, saw: Saw) -> None:
        """With the machines that there are."""
        before = self._at
        deadline = time.monotonic() + GOES_ON_SECONDS
        while not all(
            one.read > before[name].read or one.read == one.records
            for name, one in self._look().items()
        ):
            if not driver.is_running:
                break  # expect_exact says how it ended
            if time.monotonic() > deadline:
                raise Failed(f"the streams do not go on: {before}, {self._at}")
            time.sleep(LOOK_SECONDS)
        saw(f"the streams went on {self._told()}")

    def expect_exact(self, driver: Submitted, saw: Saw) -> None:
        """At the driver's end nothing is missing, and nothing is there twice."""
        driver.wait(END_SECONDS)
        seen = json.loads((self._folder / "streams.json").read_text())
        differences = seen["differences"]
        if set(differences) != set(streams.INPUTS):
            raise Failed(f"the driver compared {sorted(differences)} only")
        for topic, (count, missing, more) in differences.items():
            if missing or more or not count:
                raise Failed(f"{topic} has {missing} records of {count} too few, {more} too many")
        hosts = {host for host, count in seen["tasks"] if count}
        if not hosts or not hosts <= {ADDRESSES["n2"], ADDRESSES["n3"]}:
            raise Failed(f"the streams' executors were not on other machines: {seen['tasks']}")
        records = sum(count for count, _, _ in differences.values())
        saw(f"{records:,} records of {len(differences)} streams, each as a batch has it")

    def _driver(self) -> Submitted:
        return Submitted(self._journey, DRIVER, "--folder", str(self._folder))

    def _look(self) -> Places:
        self._at = streams.progress(self._servers, self._checkpoints)
        return self._at

    def _wait_until_all_go_on(self, driver: Submitted) -> None:
        """Every stream has committed a batch since the last time, or has none left.

        On a busy machine the first may be done before the last has begun. Raises Failed: fewer
        than FEWEST are still under way.
        """
        before = self._at
        deadline = time.monotonic() + GOES_ON_SECONDS
        while not all(
            one.read == one.records or (one.is_under_way and one.read > before[name].read)
            for name, one in self._look().items()
        ):
            driver.check()
            if time.monotonic() > deadline:
                raise Failed(f"not every stream goes on: {before}, {self._at}")
            time.sleep(LOOK_SECONDS)
        if sum(one.is_under_way for one in self._at.values()) < FEWEST:
            raise Failed(f"too few streams were under way: {before}, {self._at}")

    def _told(self) -> str:
        shares = [one.read / one.records for one in self._at.values()]
        return f"when they had read {min(shares):.0%} to {max(shares):.0%}"

    def _executors(self, name: str) -> list[psutil.Process]:
        """The JVMs on a machine that run tasks in Python workers of their own."""
        found = []
        for process in self._journey.machines[name].tree():
            with suppress(psutil.Error):
                if process.name() == "java" and any(
                    child.cmdline()[-1:] == ["pyspark.worker"]
                    or "pyspark.daemon" in child.cmdline()
                    for child in process.children(recursive=True)
                ):
                    found.append(process)
        return found

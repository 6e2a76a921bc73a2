"""Deaths of a mirror's actors on the machines: each is killed once, and no record is missing or twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import psutil

import bradbury
from bradbury.tests.deploy.journey import Failed, Journey
from bradbury.tests.deploy.mirror_driver import ACTORS, ALIAS, PARTITIONS, TOPIC
from bradbury.tests.deploy.submitted import Submitted
from bradbury.tests.support.ray.ray_nodes import wait_for

DRIVER = "mirror_driver.py"
START_SECONDS = 120
END_SECONDS = 300
GOES_ON_RECORDS = 3_000
ACTOR = "ray::MirrorWorker"


def lose_mirror_workers(journey: Journey, servers: str, saw: Callable[[str], None]) -> None:
    """kill -9 of one worker after another, while the mirror copies. Raises Failed."""
    folder = journey.shared / "mirror"
    with Submitted(journey, DRIVER, "--folder", str(folder)) as driver:

        def copied(more: int) -> Callable[[], bool]:
            goal = _end(servers) + more

            def is_so() -> bool:
                driver.check()
                return _end(servers) >= goal

            return is_so

        wait_for(lambda: _is_there(servers, driver), START_SECONDS, "the mirror makes no topic")
        wait_for(copied(GOES_ON_RECORDS), START_SECONDS, "the mirror copies nothing")
        first = _workers(journey)
        if len(first) != ACTORS:
            raise Failed(f"the mirror has {len(first)} workers, not {ACTORS}")
        for process, _ in first:
            process.kill()
            wait_for(copied(GOES_ON_RECORDS), START_SECONDS, "the mirror does not go on")
        machines = sorted(name for _, name in first)
        saw(f"kill -9 of {len(first)} workers, which were on {', '.join(machines)}")
        (folder / "enough").touch()
        driver.wait(END_SECONDS)
    seen = json.loads((folder / "mirror.json").read_text())
    if seen["wrong"] or seen["mirrored"] != seen["records"] or seen["partitions"] != PARTITIONS:
        raise Failed(f"what was mirrored is not what the source has: {seen}")
    saw(f"{seen['records']:,} records mirrored, each once, in the order of its partition")


def _workers(journey: Journey) -> list[tuple[psutil.Process, str]]:
    """Processes of the mirror's actors, and the machine that each is on."""
    found = []
    for name, machine in journey.machines.items():
        for process in machine.tree():
            with suppress(psutil.NoSuchProcess):
                if " ".join(process.cmdline()).startswith(ACTOR):
                    found.append((process, name))
    return found


def _is_there(servers: str, driver: Submitted) -> bool:
    driver.check()
    with bradbury.Admin(servers) as admin:
        return f"{ALIAS}.{TOPIC}" in admin.list_topics()


def _end(servers: str) -> int:
    """The sum of the last stable offsets: records, and the markers of transactions."""
    places = [(f"{ALIAS}.{TOPIC}", number) for number in range(PARTITIONS)]
    with bradbury.Admin(servers) as admin:
        ends = admin.list_offsets(places, "latest", isolation_level="read_committed")
    return sum(one.offset for one in ends.values())

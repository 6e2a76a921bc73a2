"""Time until a controller is active, on a metadata log of many partitions.

    python -m bradbury.benchmarks.controller_start [--partitions 10000] [--rounds 5]

Three voters in this process, each on its own directory; the log results from one CreateTopics and
--changes changes of every partition. Then a new controller over the same
voters: from start() until it is active, with the log alone, and with a snapshot.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.controller.controller_calls import RegisterBroker
from bradbury.controller.voter_requests import DescribeVoter
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.storage.disk.file_system import OsFileSystem

NODES = 3
LOG_ALONE = {
    "metadata.log.max.record.bytes.between.snapshots": str(2**40),
    "metadata.log.max.snapshot.interval.ms": "0",
}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1000"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def controller(voters: list[VoterHost], config: dict[str, str]) -> Controller:
    return Controller(
        lambda: voters,
        ServerConfig.from_kafka(config),
        now_ms=now_ms,
        on_superseded=lambda: None,
    )


async def register(first: Controller, number: int, incarnation: str) -> int:
    registered = await first.ask(
        RegisterBroker(
            NodeRegistration(
                directory_id=f"data-{number}",
                incarnation=incarnation,
                roles=("partition",),
                host="127.0.0.1",
                port=1,
                rack=None,
                machine=str(number),
                has_all_data=True,
            )
        )
    )
    return registered.node_id


async def start(voters: list[VoterHost], config: dict[str, str]) -> tuple[float, Controller]:
    begun = time.perf_counter()
    made = controller(voters, config)
    await made.start()
    return time.perf_counter() - begun, made


async def measure(folder: Path, partitions: int, changes: int, rounds: int) -> dict[str, Any]:
    voters = []
    for number in range(NODES):
        voter = VoterHost(
            f"broker/{number}", str(folder / str(number)), OsFileSystem(), now_ms=now_ms
        )
        await asyncio.to_thread(voter.open)
        voters.append(voter)
    facts: dict[str, Any] = {}
    _, first = await start(voters, LOG_ALONE)
    for number in range(NODES):
        await register(first, number, "0")
    topic = TopicToCreate(
        name="many", topic_id=uuid4(), partitions=partitions, replication_factor=NODES
    )
    begun = time.perf_counter()
    (outcome,) = await first.change(CreateTopics(topics=(topic,)), timeout_ms=0)
    facts["create seconds"] = time.perf_counter() - begun
    assert not outcome.outcome.code, outcome
    for change in range(changes):  # each moves leaders or epochs of most partitions
        await register(first, change % NODES, str(change + 1))
    await first.close()
    facts["log MB"] = sum(path.stat().st_size for path in (folder / "0").rglob("*.log")) / 1e6
    for name, config in (("the log alone", LOG_ALONE), ("a snapshot", SNAPSHOTS)):
        seconds = []
        for _ in range(rounds + (config is SNAPSHOTS)):  # the first of these makes the snapshot
            took, made = await start(voters, config)
            assert len(made.image.topics["many"].partitions) == partitions
            if config is SNAPSHOTS:
                await until_snapshot(voters)
            await made.close()
            seconds.append(took)
        facts[f"active with {name}, seconds"] = statistics.median(seconds[config is SNAPSHOTS :])
    for voter in voters:
        await voter.close()
    return facts


async def until_snapshot(voters: list[VoterHost]) -> None:
    """Wait until every voter has a snapshot, which is made in the first round."""
    while not all([(await voter.ask(DescribeVoter())).snapshot.offset for voter in voters]):
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bradbury-controller-") as folder:
        facts = asyncio.run(
            measure(Path(folder), arguments.partitions, arguments.changes, arguments.rounds)
        )
    for name, value in facts.items():
        print(f"{name:40} {value:10.2f}")


if __name__ == "__main__":
    main()

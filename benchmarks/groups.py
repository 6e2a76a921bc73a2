"""Capacity of a group coordinator in members and groups. Prints a line for each measurement.

    python -m bradbury.benchmarks.groups [--members 1000] [--groups 10000] [--seconds 3]

First the rules alone, in this process, without sockets and disks. Then one broker in its own
process, over sockets: a group of many members, each with its own
connection, and many groups of one member each, on 100 connections. Group records are fsynced.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import uvloop

from bradbury.coordinators.rules_effects import Append, Respond
from bradbury.groups.classic.join import Join
from bradbury.groups.coordinator.coordinator import GroupCoordinator
from bradbury.groups.group_config import GroupCoordinatorConfig
from bradbury.groups.group_counters import GroupCounters
from bradbury.groups.group_effects import Effect, TimerKey, TimerKind
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from bradbury.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from bradbury.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bradbury.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from bradbury.protocol.request_frame import read_response, write_request
from bradbury.protocol.schema import Message

M = TypeVar("M", bound=Message)
METADATA = bytes(100)
CONNECTIONS = 100
TOPIC = "__consumer_offsets"
"""Topic to commit offsets of; any existing topic will do."""
JOIN, SYNC, HEARTBEAT, COMMIT, FIND_COORDINATOR = 3, 3, 3, 8, 3
"""Versions of the requests. Before version 4 a join is one round trip."""
BROKER = """
import sys, time, bradbury
with bradbury.local(sys.argv[1], config={"group.initial.rebalance.delay.ms": 500}) as cluster:
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


def join_request(group_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", METADATA)],
    )


def sync_request(
    group_id: str, generation: int, member_id: str, everyone: Iterable[str]
) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(each, METADATA) for each in everyone]
    return SyncGroupRequest(group_id, generation, member_id, assignments=given)


def commit_request(group_id: str, generation: int, member_id: str) -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])]
    return OffsetCommitRequest(group_id, generation, member_id, topics=topics)


def line(what: str, count: int, seconds: float, cpu: float | None = None) -> None:
    of_broker = "" if cpu is None else f"{cpu / count * 1e6:8.0f} us of broker CPU each"
    print(f"  {what:42} {seconds:8.3f} s {count / seconds:10,.0f} a second {of_broker}")


# --- the rules alone ------------------------------------------------------------------------------


class Rules:
    """A coordinator whose records are committed at once and whose timers never fire."""

    def __init__(self) -> None:
        self.coordinator = GroupCoordinator(GroupCoordinatorConfig(), counters=GroupCounters())
        self.coordinator.on_loaded(now_ms=0)
        self.answers: dict[int, Message] = {}
        self._requests = 0

    def ask(self, event: Callable[[int], list[Effect]]) -> int:
        self._requests += 1
        self.perform(event(self._requests))
        return self._requests

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                self.answers[effect.request_id] = effect.response
            elif isinstance(effect, Append):
                self.perform(self.coordinator.on_committed(effect, now_ms=0))

    def join(self, group_id: str, member_id: str = "") -> int:
        def event(request_id: int) -> list[Effect]:
            join = Join.of(
                request_id,
                join_request(group_id, member_id),
                api_version=JOIN,
                client_id="benchmark",
                client_host="/127.0.0.1",
                unique=str(request_id),
            )
            return self.coordinator.on_join(group_id, join, now_ms=0)

        return self.ask(event)

    def end_delay(self, group_id: str) -> None:
        """End the initial rebalance delay; twice, as a member joined in between."""
        for _ in range(4):
            key = TimerKey(TimerKind.JOIN, group_id)
            self.perform(self.coordinator.on_timer(key, now_ms=0))


def measure_rules(members: int, groups: int, seconds: float) -> None:
    print(f"The rules alone, {members} members in one group, then {groups} groups of one")
    rules = Rules()
    began = time.perf_counter()
    requests = [rules.join("big") for _ in range(members)]
    while rules.coordinator.groups["big"].metadata.generation == 0:
        rules.end_delay("big")
    ids = [rules.answers[request].member_id for request in requests]  # type: ignore[attr-defined]
    line("members join", members, time.perf_counter() - began)
    began = time.perf_counter()
    for member_id in reversed(ids):
        sync = sync_request("big", 1, member_id, ids if member_id == ids[0] else ())
        rules.ask(lambda request_id, sync=sync: rules.coordinator.on_sync(request_id, sync))
    line("members sync", members, time.perf_counter() - began)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for member_id in ids:
            beat = HeartbeatRequest("big", 1, member_id)
            rules.ask(
                lambda request_id, beat=beat: rules.coordinator.on_heartbeat(request_id, beat)
            )
        count += members
        rules.answers.clear()
    line("heartbeats", count, time.perf_counter() - began)
    began = time.perf_counter()
    for member_id in ids:
        rules.join("big", member_id)
    line("members rejoin", members, time.perf_counter() - began)
    began = time.perf_counter()
    for number in range(groups):
        group_id = f"group-{number}"
        request = rules.join(group_id)
        rules.end_delay(group_id)
        member_id = rules.answers[request].member_id  # type: ignore[attr-defined]
        sync = sync_request(group_id, 1, member_id, [member_id])
        rules.ask(lambda request_id, sync=sync: rules.coordinator.on_sync(request_id, sync))
    line("groups join and sync", groups, time.perf_counter() - began)


# --- over sockets ---------------------------------------------------------------------------------


class Connection:
    """Connection that sends requests without waiting; responses arrive in their order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, servers: str) -> Connection:
        host, _, port = servers.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 24))

    def send(self, request: Message, version: int) -> None:
        self._writer.write(write_request(request, version, 1, "benchmark"))

    async def receive(self, kind: type[M], version: int) -> M:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        answer = read_response(kind, version, frame)
        error = getattr(answer, "error_code", 0)
        assert error == 0, f"{kind.__name__} has error {error}"
        return answer

    async def call(self, request: Message, kind: type[M], version: int) -> M:
        self.send(request, version)
        return await self.receive(kind, version)

    def close(self) -> None:
        self._writer.close()


class BrokerProcess:
    def __init__(self, directory: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BROKER, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()

    @property
    def cpu_seconds(self) -> float:
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


async def timed(broker: BrokerProcess, what: str, count: int, work: Awaitable[object]) -> None:
    cpu, began = broker.cpu_seconds, time.perf_counter()
    await work
    line(what, count, time.perf_counter() - began, broker.cpu_seconds - cpu)


async def measure_big_group(broker: BrokerProcess, members: int, seconds: float) -> None:
    print(f"One group of {members} members, each with a connection")
    connections = [await Connection.open(broker.servers) for _ in range(members)]
    await until_coordinated(connections[0])
    joined: list[JoinGroupResponse] = []

    async def join() -> None:
        calls = [c.call(join_request("big"), JoinGroupResponse, JOIN) for c in connections]
        joined.extend(await asyncio.gather(*calls))

    await timed(broker, "members join (0.5 s or more of it delay)", members, join())
    ids = [answer.member_id for answer in joined]
    generation = joined[0].generation_id

    async def sync() -> None:
        calls = []
        for connection, answer in zip(connections, joined, strict=True):
            everyone = ids if answer.leader == answer.member_id else ()
            request = sync_request("big", generation, answer.member_id, everyone)
            calls.append(connection.call(request, SyncGroupResponse, SYNC))
        await asyncio.gather(*calls)

    await timed(broker, "members sync", members, sync())
    until = time.perf_counter() + seconds
    count, waits = 0, list[float]()

    async def beat(connection: Connection, member_id: str) -> None:
        nonlocal count
        request = HeartbeatRequest("big", generation, member_id)
        while time.perf_counter() < until:
            began = time.perf_counter()
            await connection.call(request, HeartbeatResponse, HEARTBEAT)
            waits.append(time.perf_counter() - began)
            count += 1

    cpu, began = broker.cpu_seconds, time.perf_counter()
    await asyncio.gather(*map(beat, connections, ids))
    line("heartbeats", count, time.perf_counter() - began, broker.cpu_seconds - cpu)
    for connection in connections:
        connection.close()


async def until_coordinated(connection: Connection) -> None:
    """Wait until the coordinator accepts commits: FindCoordinator creates the offsets topic."""
    connection.send(FindCoordinatorRequest(key="warm-up"), FIND_COORDINATOR)
    await connection.receive(FindCoordinatorResponse, FIND_COORDINATOR)
    while True:
        connection.send(commit_request("warm-up", -1, ""), COMMIT)
        answer = await connection.receive(OffsetCommitResponse, COMMIT)
        if not answer.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.05)


async def measure_many_groups(broker: BrokerProcess, groups: int) -> None:
    print(f"{groups} groups of one member, on {CONNECTIONS} connections")
    connections = [await Connection.open(broker.servers) for _ in range(CONNECTIONS)]
    names = [
        [f"group-{number}" for number in range(first, groups, CONNECTIONS)]
        for first in range(CONNECTIONS)
    ]
    members: dict[str, str] = {}

    async def on_each(
        ask: Callable[[str], Message], kind: type[M], version: int, version_name: str
    ) -> None:
        async def run(connection: Connection, mine: list[str]) -> None:
            for name in mine:
                connection.send(ask(name), version)
            for name in mine:
                answer = await connection.receive(kind, version)
                if isinstance(answer, JoinGroupResponse):
                    members[name] = answer.member_id

        work = asyncio.gather(*map(run, connections, names))
        await timed(broker, version_name, groups, work)

    await on_each(join_request, JoinGroupResponse, JOIN, "groups join (0.5 s of it delay)")
    await on_each(
        lambda name: sync_request(name, 1, members[name], [members[name]]),
        SyncGroupResponse,
        SYNC,
        "groups sync (a record each, fsynced)",
    )
    await on_each(
        lambda name: HeartbeatRequest(name, 1, members[name]),
        HeartbeatResponse,
        HEARTBEAT,
        "heartbeats",
    )
    await on_each(
        lambda name: commit_request(name, 1, members[name]),
        OffsetCommitResponse,
        COMMIT,
        "commits (a record each, fsynced)",
    )
    for connection in connections:
        connection.close()


async def measure_broker(members: int, groups: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(directory)
        try:
            await measure_big_group(broker, members, seconds)
            await measure_many_groups(broker, groups)
        finally:
            broker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    measure_rules(asked.members, asked.groups, asked.seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure_broker(asked.members, asked.groups, asked.seconds))


if __name__ == "__main__":
    main()

"""Cost of small requests: what a broker spends on each, counted where clocks are too noisy.

    python -m bradbury.benchmarks.request_cost [--only produce,poll] [--requests 2000]
        [--count] [--folder build/compiled]

A `local()` cluster in a process of its own, with one thread of plain sockets as its clients, which
send as much at once as the case says and wait for all answers:

    produce      16 connections, one request each at a time: a record of 200 B, acks=1
    pipelined    the same, five requests at a time on each
    fetch        16 connections, each fetches a record that is there
    delivered    64 fetch sessions over 8 partitions wait; a record wakes all of them
    poll         64 fetch sessions that wait 1 ms for nothing

Printed are CPU microseconds of the broker for each request, user and system, the median of the
rounds. With `--count` it runs under valgrind, which counts machine instructions in user mode: the
same to a percent whatever else the machine does, and 50 times as slow. What the broker does without
requests is subtracted. `--folder`: measure the
package that is there, as a compiled one (`make test-compiled` unpacks it there).
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.protocol.codec import write_message
from bradbury.protocol.header import close_frame, write_request_header
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from bradbury.protocol.schema import Message

PRODUCE_VERSION, FETCH_VERSION = 9, 12
TOPIC, PARTITIONS = "cost", 8
CONNECTIONS, CONSUMERS, DEPTH = 16, 64, 5
WARM_UP = 4
"""Part of the requests that come before those that are counted."""
IDLE_SECONDS = 3.0
BATCH = encode_records([(1_700_000_000_000, None, b"x" * 200, ())])
SERVE = """
import sys, bradbury
with bradbury.local(data_dir=sys.argv[1]) as cluster:
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""
VALGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file={out}")


def frame(message: Message, version: int) -> bytes:
    """Frame of a request, with a size."""
    head = write_request_header(message.API_KEY, version, 7, "cost", flexible=True)
    return bytes(close_frame(write_message(message, version, head)))


def produce_frame(partition: int) -> bytes:
    data = PartitionProduceData(index=partition, records=BATCH)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION)


def fetch_frame(
    partitions: dict[int, int], *, wait_ms: int, session: int = 0, epoch: int = -1, size: int = 1
) -> bytes:
    """Fetch of partitions from these offsets on."""
    wanted = [
        FetchPartition(partition=each, fetch_offset=at, partition_max_bytes=size)
        for each, at in partitions.items()
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50_000_000,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=TOPIC, partitions=wanted)] if wanted else [],
    )
    return frame(request, FETCH_VERSION)


class Client:
    """Blocking socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.session, self.epoch = 0, 0

    def answer(self) -> bytes:
        """Wait for the next response."""
        while True:
            if len(self._received) >= 4:
                end = 4 + int.from_bytes(self._received[:4], "big")
                if len(self._received) >= end:
                    found, self._received = self._received[4:end], self._received[end:]
                    return found
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the broker has closed the connection")
            self._received += more


class Clients:
    """Connections to one broker, and the rounds of each case. A round returns its requests."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._open: list[Client] = []
        self._end = dict.fromkeys(range(PARTITIONS), 0)

    def _connect(self, count: int) -> list[Client]:
        self._open = [Client(self._address) for _ in range(count)]
        return self._open

    def close(self) -> None:
        for client in self._open:
            client.socket.close()

    def produce(self, depth: int = 1) -> Callable[[], int]:
        clients = self._connect(CONNECTIONS)
        frames = [produce_frame(number % PARTITIONS) * depth for number in range(CONNECTIONS)]

        def step() -> int:
            for client, request in zip(clients, frames, strict=True):
                client.socket.sendall(request)
            for client in clients:
                for _ in range(depth):
                    client.answer()
            return CONNECTIONS * depth

        return step

    def pipelined(self) -> Callable[[], int]:
        return self.produce(DEPTH)

    def fetch(self) -> Callable[[], int]:
        self.produce()()
        self.close()
        clients = self._connect(CONNECTIONS)
        frames = [fetch_frame({number % PARTITIONS: 0}, wait_ms=0) for number in range(CONNECTIONS)]

        def step() -> int:
            for client, request in zip(clients, frames, strict=True):
                client.socket.sendall(request)
            for client in clients:
                if len(client.answer()) < len(BATCH):
                    raise ConnectionError("a fetch brought no record")
            return CONNECTIONS

        return step

    def _sessions(self) -> list[Client]:
        clients = self._connect(CONSUMERS)
        for client in clients:
            client.socket.sendall(fetch_frame(self._ends(), wait_ms=0, epoch=0))
            _, _, client.session = struct.unpack_from(">ihi", client.answer(), 5)
            client.epoch = 1
        return clients

    def _ends(self) -> dict[int, int]:
        """End of each partition, asked of the broker."""
        client = Client(self._address)
        client.socket.sendall(fetch_frame(dict.fromkeys(range(PARTITIONS), 0), wait_ms=0))
        body = client.answer()
        client.socket.close()
        from bradbury.protocol.codec import read_message

        found = read_message(FetchResponse, FETCH_VERSION, body, 5)
        return {each.partition_index: each.high_watermark for each in found.responses[0].partitions}

    def delivered(self) -> Callable[[], int]:
        self._end = self._ends()
        clients = self._sessions()
        producer = Client(self._address)
        self._open = [*clients, producer]
        frames = [produce_frame(each) for each in range(PARTITIONS)]
        turn = 0
        changed: dict[int, int] = {}

        def step() -> int:
            nonlocal turn, changed
            for client in clients:
                client.socket.sendall(
                    fetch_frame(
                        changed,
                        wait_ms=120_000,
                        session=client.session,
                        epoch=client.epoch,
                        size=1_000_000,
                    )
                )
                client.epoch += 1
            self._settle(producer)
            partition = turn % PARTITIONS
            turn += 1
            producer.socket.sendall(frames[partition])
            producer.answer()
            for client in clients:
                if len(client.answer()) < len(BATCH):
                    raise ConnectionError("a fetch brought no record")
            self._end[partition] += 1
            changed = {partition: self._end[partition]}
            return len(clients)

        return step

    def _settle(self, client: Client) -> None:
        """Wait until the broker has read what was sent before: it reads sockets in turn."""
        for _ in range(2):
            client.socket.sendall(fetch_frame({}, wait_ms=0))
            client.answer()

    def poll(self) -> Callable[[], int]:
        clients = self._sessions()

        def step() -> int:
            for client in clients:
                client.socket.sendall(
                    fetch_frame({}, wait_ms=1, session=client.session, epoch=client.epoch)
                )
                client.epoch += 1
            for client in clients:
                client.answer()
            return len(clients)

        return step


CASES = ("produce", "pipelined", "fetch", "delivered", "poll")


class Broker:
    """The broker's process. `count`: under valgrind."""

    def __init__(self, folder: Path, *, count: bool, package: Path | None) -> None:
        self._out = folder / "instructions"
        self._dumps = 0
        command = [sys.executable, "-c", SERVE, str(folder / "data")]
        if count:
            command = [word.format(out=self._out) for word in VALGRIND] + command
        environment = dict(os.environ)
        if package is not None:
            environment["PYTHONPATH"] = str(package)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if count else None,
            env=environment,
            text=True,
            cwd=folder,
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        host, _, port = address.rpartition(":")
        self.address = host, int(port)

    def cpu_us(self) -> tuple[float, float]:
        """CPU microseconds so far, user and system, in ticks of the clock."""
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        tick = 1e6 / os.sysconf("SC_CLK_TCK")
        return int(words[11]) * tick, int(words[12]) * tick

    def control(self, *words: str) -> None:
        subprocess.run(
            ("callgrind_control", *words, str(self._process.pid)),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def instructions(self) -> int:
        """Instructions since the last call, or since counting began."""
        self._dumps += 1
        self.control("-d")
        total = 0
        for path in self._out.parent.glob(f"{self._out.name}*.{self._dumps}*"):
            found = re.search(r"^(?:totals|summary): (\d+)", path.read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
        return total

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


def repeat(step: Callable[[], int], requests: int) -> int:
    done = 0
    while done < requests:
        done += step()
    return done


def count(broker: Broker, clients: Clients, case: str, requests: int) -> str:
    step = getattr(clients, case)()
    repeat(step, requests // WARM_UP)
    broker.control("-i", "on")
    repeat(step, 1)
    broker.instructions()
    time.sleep(IDLE_SECONDS)
    idle = broker.instructions() / IDLE_SECONDS
    began = time.perf_counter()
    done = repeat(step, requests)
    took = time.perf_counter() - began
    total = broker.instructions() - idle * took
    broker.control("-i", "off")
    clients.close()
    return f"{total / done:,.0f} instructions"


def measure(broker: Broker, clients: Clients, case: str, requests: int, rounds: int) -> str:
    step = getattr(clients, case)()
    repeat(step, requests // WARM_UP)
    users, systems = [], []
    for _ in range(rounds):
        before = broker.cpu_us()
        done = repeat(step, requests)
        after = broker.cpu_us()
        users.append((after[0] - before[0]) / done)
        systems.append((after[1] - before[1]) / done)
    clients.close()
    return f"{statistics.median(users):.1f} us user, {statistics.median(systems):.1f} system"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--requests", type=int, help="counted requests of a case, or of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", action="store_true", help="instructions, by valgrind")
    parser.add_argument("--folder", type=Path, help="folder with the package to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        package = options.folder and options.folder.resolve()
        broker = Broker(Path(name), count=options.count, package=package)
        try:
            admin = AdminClient({"bootstrap.servers": "{}:{}".format(*broker.address)})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(120)
            for case in options.only.split(","):
                clients = Clients(broker.address)
                if options.count:
                    found = count(broker, clients, case, options.requests or 2_000)
                else:
                    found = measure(
                        broker, clients, case, options.requests or 20_000, options.rounds
                    )
                print(f"{case:12} {found}", flush=True)
        finally:
            broker.close()


if __name__ == "__main__":
    main()

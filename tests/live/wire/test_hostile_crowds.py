"""Ten thousand connections, idle or hostile: what each costs, and is a good client still served?

The crowd lives in a process of its own: its sockets count against the limit of descriptors, too.
"""

import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.wire.raw_client import RawClient

pytestmark = pytest.mark.slow

CROWD = 9_500
LEAK = CROWD // 100  # other threads of this process open a descriptor now and then
CLIENTS = """
import resource, socket, sys
host, port, count, start = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
crowd = []
for number in range(count):
    sock = socket.create_connection((host, port), 30)
    sock.sendall(start)
    crowd.append(sock)
print("connected", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Room for the crowd, and as it was afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 1000:
        pytest.skip(f"at most {hard} descriptors are allowed here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(cluster: LocalCluster, start: bytes) -> Iterator[subprocess.Popen[str]]:
    """CROWD connections that have each sent `start`."""
    host, port = cluster.bootstrap_servers.split(":")
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENTS, host, port, str(CROWD), start.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "connected\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def longest_answer(cluster: LocalCluster, count: int = 300) -> float:
    longest = 0.0
    with RawClient(cluster.bootstrap_servers, 30) as client:
        for _ in range(count):
            started = time.perf_counter()
            assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
            longest = max(longest, time.perf_counter() - started)
            time.sleep(0.002)
    return longest


def open_sockets() -> int:
    return len(psutil.Process().net_connections("tcp"))


def test_an_idle_crowd_costs_little_and_leaves_nothing(descriptors: None) -> None:
    process = psutil.Process()
    with bradbury.local(config={"max.connections": 12_000}) as cluster:
        node = cluster.nodes[0]
        assert longest_answer(cluster, 10) < 5.0
        wait_until(lambda: node.socket_server.connection_count == 0)
        descriptors_before, memory_before = process.num_fds(), process.memory_info().rss
        with crowd(cluster, b""):
            wait_until(lambda: node.socket_server.connection_count == CROWD)
            each = (process.memory_info().rss - memory_before) / CROWD
            print(f"{each:.0f} bytes for each of {CROWD} connections")
            assert each < 12_000
            assert longest_answer(cluster) < 3.0
        wait_until(lambda: node.socket_server.connection_count == 0)
        assert process.num_fds() < descriptors_before + LEAK
        assert node.socket_server.memory.used == 0


@pytest.mark.long  # test_long_requests.py has a few of them
@pytest.mark.parametrize(
    "start",
    [
        # Holds less than the other, and is reaped by the same clock.
        pytest.param(b"\x00\x00", id="half a size"),
        pytest.param(struct.pack(">i", 100 * 1024**2) + b"\x00\x00\x00\x09", id="a long request"),
    ],
)
def test_a_crowd_of_half_requests_is_reaped_while_others_are_served(
    descriptors: None, start: bytes
) -> None:
    process = psutil.Process()
    config = {"max.connections": 12_000, "bradbury.request.receive.max.ms": 15_000}
    with bradbury.local(config=config) as cluster:
        node = cluster.nodes[0]
        memory_before = process.memory_info().rss
        with crowd(cluster, start):
            longest = longest_answer(cluster)
            used = process.memory_info().rss - memory_before
            print(f"{used / 1e6:.0f} MB, longest answer {longest * 1000:.0f} ms")
            assert longest < 3.0
            assert used < 150 * 1024**2
            wait_until(lambda: node.metrics.connections_closed["slow"] == CROWD)
        assert node.socket_server.memory.used == 0


def test_ten_thousand_strangers_in_a_row_leave_no_trace() -> None:
    process = psutil.Process()
    with bradbury.local() as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        node = cluster.nodes[0]
        longest_answer(cluster, 10)
        wait_until(lambda: node.socket_server.connection_count == 0)
        descriptors_before, memory_before = process.num_fds(), process.memory_info().rss
        for number in range(10_000):
            with socket.create_connection((host, int(port)), 10) as sock:
                sock.sendall((b"", b"GET /", b"\x00\x00\x00\x0a", bytes(14))[number % 4])
        wait_until(lambda: node.socket_server.connection_count == 0)
        assert process.num_fds() < descriptors_before + LEAK
        assert process.memory_info().rss - memory_before < 30 * 1024**2
        assert longest_answer(cluster, 50) < 5.0

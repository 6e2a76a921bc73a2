"""Does any damage to any request of any version reach an exception that is ours, or much memory?

Real frames, damaged, are given to the dispatcher of a running node, on its loop: a PeerError and an
answer are the only ways out. A sample goes over sockets while a good client watches its latency.
"""

import asyncio
import inspect
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import cramjam
import crc32c
import psutil
import pytest

import bradbury
from bradbury.handlers.server.dispatch import PeerError, dispatch
from bradbury.handlers.server.table import APIS
from bradbury.launch.local import LocalCluster
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.wire.hostile import damaged, frame_of, with_size
from tests.support.wire.raw_client import RawClient
from tests.support.wire.sample_requests import NOW, Sample, every_version

MIB = 1024**2
BY_API = {key: [v for k, v in every_version() if k == key] for key in APIS}
CASES = [pytest.param(key, id=APIS[key].name) for key in APIS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with bradbury.local(config={"auto.create.topics.enable": "false"}) as cluster:
        make_topic(cluster, "sample")
        yield cluster


@pytest.fixture(scope="module")
def sample(cluster: LocalCluster) -> Sample:
    return Sample.of(cluster.bootstrap_servers, "sample")


def make_topic(cluster: LocalCluster, name: str, **configs: str) -> None:
    settings = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=settings)
    with RawClient(cluster.bootstrap_servers) as client:
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        answer = client.call(asked, CreateTopicsResponse, 7).topics[0]
        assert answer.error_code == 0, answer.error_message


class Watch:
    """A good client: the longest it waited for an answer."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest = 0.0
        self.answers = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with RawClient(self._cluster.bootstrap_servers) as client:
            while not self._stop.wait(0.002):
                started = time.perf_counter()
                answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
                assert answer.error_code == 0
                self.longest = max(self.longest, time.perf_counter() - started)
                self.answers += 1


async def outcomes(cluster: LocalCluster, frames: list[bytes]) -> list[str]:
    """Dispatch each; returns what came out that should not."""
    bugs = []
    waiting = {}
    for frame in frames:
        try:
            result = dispatch(memoryview(bytearray(frame)), cluster.nodes[0], "hostile:1")
        except PeerError:
            continue
        except Exception as error:
            bugs.append(f"{frame.hex()}: {error!r}")
            continue
        if inspect.isawaitable(result):
            waiting[asyncio.ensure_future(result)] = frame
    if waiting:
        _, parked = await asyncio.wait(waiting, timeout=1.0)
        for task in parked:
            task.cancel()
        await asyncio.wait(waiting)
    for task, frame in waiting.items():
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PeerError):
            bugs.append(f"{frame.hex()}: {error!r}")
    return bugs


def attack(cluster: LocalCluster, sample: Sample, key: int, count: int, seed: int) -> list[str]:
    rng = random.Random(f"{seed} {key}")
    frames = [
        frame
        for version in BY_API[key]
        for frame in damaged(frame_of(key, version, sample)[4:], rng, count)
    ]
    bugs = []
    for start in range(0, len(frames), 500):
        bugs += cluster._call(outcomes(cluster, frames[start : start + 500]), 120)
    return bugs


@pytest.mark.parametrize("key", CASES)
def test_damaged_requests_of_every_version_are_answered_or_hung_up_on(
    cluster: LocalCluster, sample: Sample, key: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = psutil.Process().memory_info().rss
    with caplog.at_level(logging.ERROR, "bradbury"):
        assert attack(cluster, sample, key, 12, seed=1) == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert psutil.Process().memory_info().rss - before < 150 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("key", CASES)
def test_many_more_damaged_requests(
    cluster: LocalCluster, sample: Sample, key: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "bradbury"):
        assert attack(cluster, sample, key, 80, seed=2) == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_over_sockets_damage_costs_a_connection_and_nobody_else_anything(
    cluster: LocalCluster, sample: Sample, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = cluster.bootstrap_servers.split(":")
    rng = random.Random(3)
    metrics = cluster.nodes[0].metrics
    with caplog.at_level(logging.ERROR, "bradbury"), Watch(cluster) as watch:
        for key, version in every_version():
            for frame in damaged(frame_of(key, version, sample)[4:], rng, 1):
                with socket.create_connection((host, int(port)), 10) as sock:
                    sock.sendall(with_size(frame))
                    sock.shutdown(socket.SHUT_WR)
    assert watch.answers > 3
    assert watch.longest < 3.0
    assert metrics.unexpected_errors == 0
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def batch_around(block: bytes, *, codec: int) -> bytes:
    """A batch of one record, says its header, whose records are `block`."""
    body = struct.pack(">hiqqqhii", codec, 0, NOW, NOW, -1, -1, -1, 1) + block
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c.crc32c(body)) + body


CODECS = {
    "gzip": (1, lambda data: bytes(cramjam.gzip.compress(data))),
    "snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "settings",
    [
        {"compression_type": "uncompressed"},
        {"compression_type": "gzip"},
        {"cleanup_policy": "compact"},
        {},
    ],
    ids=["unpacked", "repacked", "keys looked at", "kept"],
)
def test_a_batch_that_unfolds_to_gigabytes_is_not_unfolded(
    cluster: LocalCluster, codec: str, settings: dict[str, str]
) -> None:
    number, compress = CODECS[codec]
    size = 20 * MIB if codec == "snappy" else 1000 * MIB if codec == "zstd" else 200 * MIB
    bomb = batch_around(compress(bytes(size)), codec=number)
    assert len(bomb) < 1_048_588, "too large for the test to mean anything"
    name = f"bomb-{codec}-{'-'.join(settings.values()) or 'kept'}"
    make_topic(cluster, name, **settings)
    part = PartitionProduceData(index=0, records=bomb)
    topic = TopicProduceData(name=name, partition_data=[part])
    request = ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[topic])
    process = psutil.Process()
    before = process.memory_info().rss
    highest = 0
    with Watch(cluster) as watch, RawClient(cluster.bootstrap_servers, 60) as client:
        client.send(request, 9)
        answered = threading.Event()

        def measure() -> None:
            nonlocal highest
            while not answered.wait(0.005):
                highest = max(highest, process.memory_info().rss)

        measuring = threading.Thread(target=measure)
        measuring.start()
        _, answer = client.receive(ProduceResponse, 9)
        answered.set()
        measuring.join()
    code = answer.responses[0].partition_responses[0].error_code
    assert code != 0, "each batch is opened, up to a bound"
    assert highest - before < 400 * MIB
    assert watch.longest < 3.0

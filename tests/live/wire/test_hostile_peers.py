"""Can a peer hurt the broker, or another client, with what it sends or does not read?

Whatever happens on one connection, a well-behaved client beside it is answered.
"""

import logging
import random
import socket
import struct
import time

import psutil
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import bradbury
from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import write_message
from bradbury.protocol.header import close_frame, write_request_header
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from tests.support.wire.raw_client import RawClient

VERSIONS = [(key, v) for key, api in APIS.items() for v in range(api.lowest, api.highest + 1)]


def is_served(servers: str) -> bool:
    with RawClient(servers) as client:
        answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        return answer.error_code == 0


def connect(servers: str) -> socket.socket:
    host, port = servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    flexible = version >= APIS[api_key].first_flexible
    out = write_request_header(api_key, version, 1, "hostile", flexible=flexible)
    out += body
    return bytes(close_frame(out))


def drain(sock: socket.socket, seconds: float = 0.2) -> None:
    sock.settimeout(seconds)
    try:
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x06\x40\x00\x01",  # one byte more than socket.request.max.bytes
        b"\x00\x00\x00\x02\x00\x12",
        b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x7f\xff",
    ],
    ids=["http", "tls", "giant", "negative", "empty", "over", "headless", "client id"],
)
def test_what_is_not_kafka_is_hung_up_on_with_one_log_line(
    servers: str, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "bradbury.actors.network.socket_server"),
        connect(servers) as sock,
    ):
        peer = "{}:{}".format(*sock.getsockname())
        sock.sendall(junk)
        sock.settimeout(30)
        assert sock.recv(100) == b""
    said = [record for record in caplog.records if peer in record.getMessage()]
    assert len(said) == 1
    assert said[0].exc_info is None
    assert is_served(servers)


def test_unknown_apis_and_versions_are_hung_up_on(servers: str) -> None:
    for key, version in ((4, 0), (999, 0), (-1, 0), (3, 99), (1, 3), (8, 1)):
        with connect(servers) as sock:
            sock.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
            sock.settimeout(30)
            assert sock.recv(100) == b""
    assert is_served(servers)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_requests_of_every_api_and_version_never_kill(servers: str, data) -> None:
    key, version = data.draw(st.sampled_from(VERSIONS))
    request = APIS[key].request()
    body = bytearray(write_message(request, version))
    for _ in range(data.draw(st.integers(0, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body += data.draw(st.binary(max_size=40))
    cut = data.draw(st.integers(0, len(body)))
    with connect(servers) as sock:
        sock.sendall(frame(key, version, bytes(body[:cut])))
        drain(sock, 0.02)
    assert is_served(servers)


def test_every_api_survives_random_bodies_at_every_version(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(1)
    with caplog.at_level(logging.ERROR, "bradbury"):
        for key, version in VERSIONS:
            for size in (0, 1, 7, 40, 200):
                with connect(servers) as sock:
                    sock.sendall(frame(key, version, rng.randbytes(size)))
                    sock.shutdown(socket.SHUT_WR)
                    drain(sock, 0.001)
    assert is_served(servers)
    bugs = [record.getMessage() for record in caplog.records if record.exc_info]
    assert bugs == [], "a peer's bytes reached an exception that is ours"


def test_a_length_that_lies_takes_no_memory(servers: str) -> None:
    """The announced 100 MiB are not touched before they come."""
    me = psutil.Process()
    before = me.memory_info().rss
    sockets = [connect(servers) for _ in range(50)]
    for sock in sockets:
        sock.sendall(struct.pack(">i", 100 * 1024**2) + b"\x00\x00\x00\x09")
    assert is_served(servers)
    assert me.memory_info().rss - before < 64 * 1024**2
    for sock in sockets:
        sock.close()


def test_frames_that_come_byte_by_byte_are_answered(servers: str) -> None:
    with RawClient(servers) as client:
        for byte in client.frame(MetadataRequest(topics=[]), 12):
            client.socket.sendall(bytes([byte]))
        assert client.receive(MetadataResponse, 12)[0] == 1


def test_many_frames_in_one_packet_are_answered_in_order(servers: str) -> None:
    with RawClient(servers) as client:
        client.socket.sendall(
            b"".join(client.frame(MetadataRequest(topics=[]), 12) for _ in range(500))
        )
        numbers = [client.receive(MetadataResponse, 12)[0] for _ in range(500)]
    assert numbers == list(range(1, 501))


def test_a_peer_that_does_not_read_is_not_read_from_and_costs_little(
    servers: str, topic: str
) -> None:
    records = bytes(encode_records([(1_700_000_000_000, None, b"x" * 900_000, ())]))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    with RawClient(servers) as producer:
        answer = producer.call(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    me = psutil.Process()
    before = me.memory_info().rss
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    with RawClient(servers) as greedy:
        greedy.socket.settimeout(0.5)
        asked = greedy.frame(fetch, 12)
        sent = 0
        try:
            while sent < 1_000_000:  # 80 MB of requests: more than sockets hold
                greedy.socket.sendall(bytes(asked) * 1000)
                sent += 1000
        except TimeoutError:
            pass
        assert sent < 1_000_000, "the broker went on reading"
        started = time.monotonic()
        assert is_served(servers)
        assert time.monotonic() - started < 20
        assert me.memory_info().rss - before < 100 * 1024**2


def test_connections_up_to_the_limit_are_served_and_one_more_is_refused() -> None:
    with bradbury.local(config={"max.connections": 300}) as cluster:
        open_ones = []
        try:
            for _ in range(300):
                open_ones.append(RawClient(cluster.bootstrap_servers))
            for client in open_ones:
                assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
            with connect(cluster.bootstrap_servers) as refused:
                refused.settimeout(30)
                assert refused.recv(1) == b""
        finally:
            for client in open_ones:
                client.socket.close()


def test_idle_connections_are_closed() -> None:
    with bradbury.local(config={"connections.max.idle.ms": 1_000}) as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            assert client.is_closed_by_peer()

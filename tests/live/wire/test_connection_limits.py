"""Are connections bounded in number, time and memory, and does nobody pay for another's excess?"""

import gc
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

import bradbury
from bradbury.actors.network import refusal_delay
from bradbury.launch.local import LocalCluster
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic

MIB = 1024**2


@contextmanager
def cluster_with(**config: object) -> Iterator[LocalCluster]:
    with bradbury.local(config={k.replace("_", "."): v for k, v in config.items()}) as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            topic = CreatableTopic(name="t", num_partitions=8, replication_factor=1)
            asked = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            assert client.call(asked, CreateTopicsResponse, 7).topics[0].error_code == 0
        wait_until(lambda: cluster.nodes[0].socket_server.connection_count == 0)
        yield cluster


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def connect(cluster: LocalCluster, source: str = "127.0.0.1") -> socket.socket:
    host, port = cluster.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), 30, source_address=(source, 0))


def is_served(cluster: LocalCluster) -> bool:
    with RawClient(cluster.bootstrap_servers) as client:
        return client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def hung_up(sock: socket.socket) -> bool:
    sock.settimeout(30)
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def produce_request(*sizes: int) -> ProduceRequest:
    parts = [
        PartitionProduceData(
            index=index,
            records=bytes(encode_records([(1_700_000_000_000, None, bytes(size), ())])),
        )
        for index, size in enumerate(sizes)
    ]
    topic = TopicProduceData(name="t", partition_data=parts)
    return ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic])


def long_metadata(size: int) -> MetadataRequest:
    names = [MetadataRequestTopic(name=f"{n:0200}") for n in range(size // 202 + 1)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def closed_for(cluster: LocalCluster, reason: str) -> int:
    return cluster.nodes[0].metrics.connections_closed[reason]


# --- turns -----------------------------------------------------------------------------------------


def test_a_peer_with_thousands_of_requests_in_flight_leaves_others_their_turn() -> None:
    with cluster_with() as cluster, RawClient(cluster.bootstrap_servers) as greedy:
        count = 5000
        everything = b"".join(
            bytes(greedy.frame(MetadataRequest(topics=None), 12)) for _ in range(count)
        )
        sending = threading.Thread(target=greedy.socket.sendall, args=(everything,))
        numbers = []
        worst = 0.0
        with RawClient(cluster.bootstrap_servers) as good:
            sending.start()
            while len(numbers) < count:
                numbers.append(greedy.receive(MetadataResponse, 12)[0])
                if len(numbers) % 100 == 0:
                    started = time.perf_counter()
                    good.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
                    worst = max(worst, time.perf_counter() - started)
        sending.join()
    assert numbers == list(range(1, count + 1))
    assert worst < 0.5


def test_what_was_sent_before_closing_is_handled_however_much_it_is() -> None:
    """acks=0 and goodbye: what waits in our buffers is not dropped with the connection."""
    with cluster_with() as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            request = produce_request(100)
            request.acks = 0
            client.socket.sendall(b"".join(bytes(client.frame(request, 9)) for _ in range(3000)))
        host = cluster.nodes[0].storage.partition_host
        assert host is not None
        replica = next(each for each in host.replicas if (each.topic, each.partition) == ("t", 0))
        wait_until(lambda: replica.log.log_end_offset == 3000)


# --- sizes -----------------------------------------------------------------------------------------


def test_a_long_first_request_must_be_a_produce(caplog: pytest.LogCaptureFixture) -> None:
    with cluster_with() as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            request = produce_request(900_000)
            answer = client.call(request, ProduceResponse, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            long = client.call(long_metadata(600_000), MetadataResponse, 12)
            assert len(long.topics) > 2900
        with caplog.at_level(logging.WARNING), RawClient(cluster.bootstrap_servers) as client:
            with pytest.raises((ConnectionResetError, BrokenPipeError, struct.error)):
                client.call(long_metadata(600_000), MetadataResponse, 12)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1
        assert "began with a request of" in said[0]


def test_a_long_request_of_an_unknown_api_is_refused_when_it_begins() -> None:
    with cluster_with() as cluster, connect(cluster) as sock:
        sock.sendall(struct.pack(">ihh", 50 * MIB, 999, 0))
        assert hung_up(sock)


@pytest.mark.parametrize("version", [9, 13])
def test_a_request_of_too_many_elements_is_refused_before_they_are_made(version: int) -> None:
    with cluster_with() as cluster, RawClient(cluster.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        names = [MetadataRequestTopic(name="") for _ in range(150_000)]
        client.send(MetadataRequest(topics=names, allow_auto_topic_creation=False), version)
        assert client.is_closed_by_peer()
        assert is_served(cluster)


# --- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        b"\x00\x00",
        b"\x00\x00\x01\x00",
        b"\x00\x00\x01\x00\x00\x03\x00",
        bytes([0, 0, 80, 0]) + b"\0",
    ],
    ids=["half a size", "only a size", "half a header", "one byte"],
)
def test_a_request_that_begins_and_does_not_come_ends_the_connection(start: bytes) -> None:
    with cluster_with(bradbury_request_receive_max_ms=200) as cluster, connect(cluster) as sock:
        sock.sendall(start)
        assert hung_up(sock)
        assert closed_for(cluster, "slow") == 1


@pytest.mark.slow
def test_one_that_drips_is_slow_and_one_that_comes_steadily_is_not() -> None:
    with cluster_with(bradbury_request_receive_max_ms=300) as cluster:
        with RawClient(cluster.bootstrap_servers) as steady, connect(cluster) as drip:
            drip.sendall(struct.pack(">ihh", 50_000, 0, 9))
            frame = bytes(steady.frame(produce_request(900_000), 9))
            step = len(frame) // 20
            for position in range(0, len(frame), step):  # 0.8 s, more than the grace
                steady.socket.sendall(frame[position : position + step])
                try:
                    drip.sendall(b"x")
                except OSError:
                    pass
                time.sleep(0.04)
            answer = steady.receive(ProduceResponse, 9)[1]
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert hung_up(drip)
        assert closed_for(cluster, "slow") == 1


@pytest.mark.slow
def test_waiting_for_records_is_not_idling() -> None:
    with cluster_with(connections_max_idle_ms=1_000) as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topic = FetchTopic(topic="t", partitions=[wanted])
            fetch = FetchRequest(max_wait_ms=2500, min_bytes=1, max_bytes=1000, topics=[topic])
            assert client.call(fetch, FetchResponse, 12).error_code == 0
            assert client.is_closed_by_peer()
        assert closed_for(cluster, "idle") == 1


def never_read(client: RawClient) -> None:
    """Ask shortly for much, until the broker reads no more, and read nothing."""
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    asked = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    frames = bytes(client.frame(asked, 4)) * 1000
    client.socket.settimeout(1.0)
    with pytest.raises(TimeoutError):
        for _ in range(1000):
            client.socket.sendall(frames)


@pytest.mark.slow
def test_a_peer_that_never_reads_its_answers_is_bounded_and_closed_in_the_end() -> None:
    with cluster_with(connections_max_idle_ms=3_000) as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            never_read(client)
            assert cluster.nodes[0].socket_server.memory.used < 16 * MIB
            assert is_served(cluster)
            wait_until(lambda: closed_for(cluster, "stalled") == 1)
        wait_until(lambda: cluster.nodes[0].socket_server.memory.used == 0)


# --- numbers ---------------------------------------------------------------------------------------


def test_an_address_has_its_own_limit_and_others_theirs() -> None:
    config = {
        "max.connections.per.ip": 3,
        "max.connections.per.ip.overrides": "127.0.0.2:1,127.0.0.3:0",
    }
    with bradbury.local(config=config) as cluster, ExitStack() as stack:
        node = cluster.nodes[0]
        for _ in range(3):
            stack.enter_context(connect(cluster))
        stack.enter_context(connect(cluster, "127.0.0.2"))
        wait_until(lambda: node.socket_server.connection_count == 4)
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            with connect(cluster, source) as refused:
                assert hung_up(refused)
        assert node.metrics.connections_refused == {"max.connections.per.ip": 3}
        stack.close()
        wait_until(lambda: node.socket_server.connection_count == 0)
        assert is_served(cluster)


@pytest.mark.slow
def test_connections_above_the_rate_wait_and_are_served() -> None:
    with bradbury.local(config={"max.connection.creation.rate": 20}) as cluster:
        started = time.monotonic()
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(cluster.bootstrap_servers)) for _ in range(40)]
            for client in clients:
                assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        assert time.monotonic() - started > 0.8


def test_a_flood_of_bad_peers_is_a_trickle_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with cluster_with() as cluster, caplog.at_level(logging.WARNING):
        for _ in range(300):
            with connect(cluster) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert hung_up(sock)
        assert closed_for(cluster, "malformed") == 300
        assert len(caplog.records) < 100


# --- memory ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_long_requests_share_bounded_memory_and_all_are_answered_in_the_end() -> None:
    limit = 2 * MIB
    with cluster_with(queued_max_request_bytes=limit) as cluster, ExitStack() as stack:
        memory = cluster.nodes[0].socket_server.memory
        sizes = [400_000] * 7  # 2.8 MB in one request
        clients = [stack.enter_context(RawClient(cluster.bootstrap_servers)) for _ in range(8)]
        frames = [bytes(client.frame(produce_request(*sizes), 9)) for client in clients]
        halves = [
            threading.Thread(target=client.socket.sendall, args=(frame[: len(frame) - 1000],))
            for client, frame in zip(clients, frames, strict=True)
        ]
        for thread in halves:
            thread.start()
        wait_until(lambda: memory.waiting > 1)
        highest = 0
        for _ in range(50):
            highest = max(highest, memory.used)
            assert is_served(cluster)
        assert highest < limit + 2 * len(frames[0])
        for client, frame, thread in zip(clients, frames, halves, strict=True):

            def finish(client=client, frame=frame, thread=thread) -> None:
                thread.join()
                client.socket.sendall(frame[len(frame) - 1000 :])

            threading.Thread(target=finish).start()
        for client in clients:
            parts = client.receive(ProduceResponse, 9)[1].responses[0].partition_responses
            assert [part.error_code for part in parts] == [0] * 7
        wait_until(lambda: memory.used == 0 and memory.waiting == 0)


@pytest.mark.long  # memory is filled
@pytest.mark.slow
def test_when_memory_is_short_those_who_do_not_read_go_first() -> None:
    with cluster_with(queued_max_request_bytes=3 * MIB) as cluster, ExitStack() as stack:
        for _ in range(6):
            client = stack.enter_context(RawClient(cluster.bootstrap_servers))
            client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            never_read(client)
        with RawClient(cluster.bootstrap_servers) as good:
            answer = good.call(produce_request(*[400_000] * 7), ProduceResponse, 9)
            assert [p.error_code for p in answer.responses[0].partition_responses] == [0] * 7
        wait_until(lambda: closed_for(cluster, "shortage") > 0)
        wait_until(lambda: not cluster.nodes[0].socket_server.memory.is_short)


def test_a_request_whose_peer_is_gone_at_once_leaves_no_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Python warns of coroutines that nobody awaits: our users would read that in their logs."""
    with bradbury.local() as cluster, RawClient(cluster.bootstrap_servers) as client:
        topic = make_topic(client)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        parked = FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        nonsense = b"\xff" * 4  # upon which the connection is closed, in the same step
        frame = bytes(client.frame(parked, 11)) + nonsense
        for _ in range(20):
            with RawClient(cluster.bootstrap_servers) as other:
                other.socket.sendall(frame)
                assert other.is_closed_by_peer()
        gc.collect()
    assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []


def test_clients_that_keep_asking_for_what_is_not_served_are_closed_later_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka's ReplicaVerificationTool came 3,000 times a second, as it does not ask first."""
    monkeypatch.setattr(refusal_delay, "FIRST_SECONDS", 3600.0)
    monkeypatch.setattr(refusal_delay, "LONGEST_SECONDS", 3600.0)
    with cluster_with() as cluster:
        fetch = RawClient(cluster.bootstrap_servers).frame(FetchRequest(), 17)
        fetch[6:8] = (99).to_bytes(2, "big")

        def ask() -> RawClient:
            client = RawClient(cluster.bootstrap_servers)
            client.socket.sendall(fetch)
            return client

        for _ in range(refusal_delay.AT_ONCE):
            assert ask().is_closed_by_peer()
        waiting = [ask() for _ in range(3)]
        with RawClient(cluster.bootstrap_servers) as other:
            assert other.call(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        for client in waiting:
            # Nor is it read from: what else it sends is not answered.
            client.send(ApiVersionsRequest(), 0)
            client.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)
            client.socket.setblocking(True)
    assert all(client.is_closed_by_peer() for client in waiting)

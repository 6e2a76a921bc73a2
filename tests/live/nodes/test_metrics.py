"""Do a node's metrics say what happened on its sockets, in a form that Prometheus reads?"""

import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

import bradbury
from bradbury.actors.metrics.metrics_collector import METRICS
from bradbury.launch.local import LocalCluster
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
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
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from tests.support.wire.raw_client import RawClient

LOADING = 14
BATCH = bytes(encode_records([(1_700_000_000_000, None, b"x" * 100, ())] * 3))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with bradbury.local() as cluster:
        with RawClient(cluster.bootstrap_servers) as client:
            topic = CreatableTopic(name="measured", num_partitions=1, replication_factor=1)
            asked = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            assert client.call(asked, CreateTopicsResponse, 7).topics[0].error_code == 0
        yield cluster


def url(cluster) -> str:
    return "http://" + cluster.nodes[0].status()["metrics"] + "/metrics"


def scrape(cluster) -> dict[tuple[str, ...], float]:
    """{(name, label value, ...): value}"""
    with urllib.request.urlopen(url(cluster), timeout=60) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def produce(topic: str) -> ProduceRequest:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=BATCH)]
    )
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])


def test_what_was_produced_fetched_and_refused_is_counted(cluster) -> None:
    before = scrape(cluster)
    with RawClient(cluster.bootstrap_servers) as client:
        request_bytes = 0
        for _ in range(5):
            request_bytes += len(client.frame(produce("measured"), 9)) - 4
            client.call(produce("measured"), ProduceResponse, 9)
        client.call(produce("nowhere"), ProduceResponse, 9)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="measured", partitions=[wanted])
        client.call(FetchRequest(max_bytes=1 << 20, topics=[topic]), FetchResponse, 12)
        after = scrape(cluster)

    def growth(*key: str) -> float:
        return after[key] - before.get(key, 0)

    assert growth("kafka_network_requestmetrics_requests_total", "Produce") == 6
    assert growth("bradbury_request_total_seconds_count", "Produce") == 6
    assert growth("bradbury_request_handling_seconds_count", "Produce") == 6
    assert growth("bradbury_request_sending_seconds_count", "Produce") == 6
    assert growth("bradbury_request_bytes_total", "Produce") > request_bytes
    error = ("UNKNOWN_TOPIC_OR_PARTITION", "Produce")
    assert growth("kafka_network_requestmetrics_errors_total", *error) == 1
    prefix = "kafka_server_brokertopicmetrics"
    assert growth(f"{prefix}_bytesin_total", "measured") == 5 * len(BATCH)
    assert growth(f"{prefix}_messagesin_total", "measured") == 15
    assert growth(f"{prefix}_bytesout_total", "measured") == 5 * len(BATCH)
    assert growth("bradbury_topic_batches_in_total", "measured") == 5
    assert after["kafka_log_log_logendoffset", "0", "measured"] == 15
    assert after["kafka_log_log_size", "0", "measured"] == 5 * len(BATCH)
    assert after["kafka_log_log_numlogsegments", "0", "measured"] == 1
    assert after["bradbury_connections",] == before["bradbury_connections",] + 1
    assert after["bradbury_unexpected_errors_total",] == 0


def test_what_groups_are_and_do_is_counted(cluster) -> None:
    asked = OffsetCommitRequest(
        group_id="counted",
        topics=[
            OffsetCommitRequestTopic(
                name="measured", partitions=[OffsetCommitRequestPartition(0, 7)]
            )
        ],
    )
    join = JoinGroupRequest(
        group_id="entered",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    with RawClient(cluster.bootstrap_servers) as client:
        while client.call(FindCoordinatorRequest(key="x"), FindCoordinatorResponse, 3).error_code:
            pass
        while client.call(join, JoinGroupResponse, 3).error_code == LOADING:
            pass
        before = scrape(cluster)
        code = LOADING
        while code == LOADING:
            answer = client.call(asked, OffsetCommitResponse, 7)
            code = answer.topics[0].partitions[0].error_code
        assert code == 0
        join.group_id = "also-entered"
        while client.call(join, JoinGroupResponse, 3).error_code == LOADING:
            pass
        now = scrape(cluster)
    added = {key[0]: now[key] - before[key] for key in now if key in before}
    name = "kafka_coordinator_group_groupmetadatamanager_"
    assert (added[name + "numgroups"], added[name + "numgroupsempty"]) == (2, 1)
    assert added[name + "numgroupscompletingrebalance"] == 1
    assert (added[name + "numoffsets"], added["bradbury_group_offset_commits_total"]) == (1, 1)
    assert (
        added["bradbury_group_members"] == added["bradbury_group_completed_rebalances_total"] == 1
    )
    assert added["bradbury_group_memory_bytes"] > 0


def test_what_transactions_wait_for_is_measured(cluster) -> None:
    before = scrape(cluster)
    with bradbury.Producer(
        cluster.bootstrap_servers, transactional_id="measured", allow_auto_create_topics=True
    ) as producer:
        with producer.transaction():
            producer.send("in-transactions", b"x", partition=0)
        begun = scrape(cluster)
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    assert begun[prefix + "unknowndestinationqueuesize",] == 0
    assert begun[prefix + "logappendretryqueuesize",] == 0
    assert begun["bradbury_transactional_ids",] == before["bradbury_transactional_ids",] + 1
    active, loading = (
        begun["bradbury_transaction_partitions", state] for state in ("active", "loading")
    )
    assert (active > 0, loading) == (True, 0)
    assert begun["bradbury_transaction_load_seconds_count",] == active
    asked = "bradbury_transaction_verification_seconds_count"
    assert begun[asked,] == before[asked,] + 1
    failed = "kafka_server_addpartitionstotxnmanager_verificationfailurerate_total"
    assert begun[failed,] == before[failed,]
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert begun[late,] == 0


def test_a_transaction_that_nobody_ends_is_counted_as_late(cluster) -> None:
    """It is one of long ago, by its timestamps."""
    with bradbury.Producer(
        cluster.bootstrap_servers, transactional_id="late", allow_auto_create_topics=True
    ) as producer:
        producer.begin()
        producer.send("in-transactions", b"x", partition=0, timestamp_ms=1_000_000_000_000).result(
            60
        )
        late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
        assert scrape(cluster)[late,] == 1
        producer.abort()


def test_a_request_that_waits_is_seen_waiting(cluster) -> None:
    key = ("bradbury_request_waiting_seconds_count", "Fetch")
    before = scrape(cluster).get(key, 0)
    with RawClient(cluster.bootstrap_servers) as client:
        wanted = FetchPartition(partition=0, fetch_offset=15, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="measured", partitions=[wanted])
        fetch = FetchRequest(max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        client.call(fetch, FetchResponse, 12)
    assert scrape(cluster)[key] == before + 1


def test_peers_that_are_refused_or_hung_up_on_are_counted_by_reason(cluster) -> None:
    key = ("bradbury_connections_closed_total", "malformed")
    before = scrape(cluster).get(key, 0)
    host, port = cluster.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(100) == b""
    assert scrape(cluster)[key] == before + 1


def test_exactly_the_listed_metrics_are_there_in_both_formats(cluster) -> None:
    request = urllib.request.Request(
        url(cluster), headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = {
            family.name: family.type for family in parse_openmetrics(answer.read().decode())
        }
    assert families == {metric.name.removesuffix("_total"): metric.kind for metric in METRICS}
    names = {key[0] for key in scrape(cluster)}
    listed = {metric.name for metric in METRICS}
    for name in names:
        base = name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        assert name in listed or base in listed


def status_of(cluster, message: bytes) -> bytes:
    host, port = cluster.nodes[0].status()["metrics"].split(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        answer = b""
        try:  # the server may close before all is sent
            sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(1 << 16):
                answer += part
        except TimeoutError:
            raise
        except OSError:
            pass
    return answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /metrics?name=x HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\x00\x01\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /metrics", b""),
        (b"x" * 100_000, b""),
        (b"", b""),
    ],
    ids=["get", "head", "root", "post", "garbage", "half", "endless", "nothing"],
)
def test_http_is_answered_shortly_or_not_at_all(
    cluster, message: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "bradbury.actors.metrics.metrics_endpoint"):
        assert status_of(cluster, message) == status
    assert caplog.records == []


def test_the_port_is_off_on_request_and_the_next_one_when_in_use() -> None:
    with bradbury.local(config={"bradbury.metrics.port": -1}) as cluster:
        assert cluster.nodes[0].status()["metrics"] is None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with bradbury.local(config={"bradbury.metrics.port": port}) as cluster:
            given = int(cluster.nodes[0].status()["metrics"].split(":")[1])
            assert port < given < port + 100
            scrape(cluster)


def test_the_labels_of_a_removed_topic_go(cluster) -> None:
    with RawClient(cluster.bootstrap_servers) as client:
        topic = CreatableTopic(name="brief", num_partitions=1, replication_factor=1)
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        client.call(asked, CreateTopicsResponse, 7)
        client.call(produce("brief"), ProduceResponse, 9)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="brief", partitions=[wanted])]
        client.call(FetchRequest(max_bytes=1 << 20, topics=topics), FetchResponse, 12)
    assert any("brief" in key for key in scrape(cluster))
    cluster.admin().delete_topic("brief")
    assert not any("brief" in key for key in scrape(cluster))

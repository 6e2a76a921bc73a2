"""Do metrics() say what producer and consumer did, under the names that Kafka's clients use?"""

import asyncio
import math
import threading
from collections.abc import Callable

import pytest

import bradbury
from bradbury.protocol.errors import InvalidTxnState, MessageTooLarge, RequestTimedOut
from bradbury.protocol.messages.produce import ProduceRequest, ProduceResponse
from bradbury.tests.support.groups.group_members import fill
from bradbury.tests.support.wire.scripted_broker import HANG_UP, ScriptedBroker, answer

NewTopic = Callable[..., str]

PRODUCER = {
    "batch-size-avg",
    "batch-size-max",
    "batch-split-rate",
    "batch-split-total",
    "buffer-available-bytes",
    "buffer-exhausted-rate",
    "buffer-exhausted-total",
    "buffer-total-bytes",
    "bufferpool-wait-ratio",
    "bufferpool-wait-time-ns-total",
    "compression-rate-avg",
    "connection-close-rate",
    "connection-close-total",
    "connection-count",
    "connection-creation-rate",
    "connection-creation-total",
    "failed-authentication-rate",
    "failed-authentication-total",
    "failed-reauthentication-rate",
    "failed-reauthentication-total",
    "flush-time-ns-total",
    "incoming-byte-rate",
    "incoming-byte-total",
    "metadata-age",
    "metadata-wait-time-ns-total",
    "network-io-rate",
    "network-io-total",
    "outgoing-byte-rate",
    "outgoing-byte-total",
    "produce-throttle-time-avg",
    "produce-throttle-time-max",
    "record-error-rate",
    "record-error-total",
    "record-queue-time-avg",
    "record-queue-time-max",
    "record-retry-rate",
    "record-retry-total",
    "record-send-rate",
    "record-send-total",
    "records-per-request-avg",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "request-total",
    "requests-in-flight",
    "response-rate",
    "response-total",
    "successful-authentication-rate",
    "successful-authentication-total",
    "successful-reauthentication-rate",
    "successful-reauthentication-total",
    "txn-abort-time-ns-total",
    "txn-begin-time-ns-total",
    "txn-commit-time-ns-total",
    "txn-init-time-ns-total",
    "txn-send-offsets-time-ns-total",
    "waiting-threads",
}
FETCHES = {
    "bytes-consumed-rate",
    "bytes-consumed-total",
    "fetch-latency-avg",
    "fetch-latency-max",
    "fetch-rate",
    "fetch-size-avg",
    "fetch-size-max",
    "fetch-throttle-time-avg",
    "fetch-throttle-time-max",
    "fetch-total",
    "records-consumed-rate",
    "records-consumed-total",
    "records-corrupt-total",
    "records-lag-max",
    "records-lead-min",
}
PARTITION = {
    "preferred-read-replica",
    "records-lag",
    "records-lag-avg",
    "records-lag-max",
    "records-lead",
    "records-lead-avg",
    "records-lead-min",
}
COORDINATOR = {
    "assigned-partitions",
    "commit-latency-avg",
    "commit-latency-max",
    "commit-rate",
    "commit-total",
    "failed-rebalance-rate-per-hour",
    "failed-rebalance-total",
    "heartbeat-rate",
    "heartbeat-response-time-max",
    "heartbeat-total",
    "join-rate",
    "join-time-avg",
    "join-time-max",
    "join-total",
    "last-heartbeat-seconds-ago",
    "last-rebalance-seconds-ago",
    "partition-assigned-latency-avg",
    "partition-assigned-latency-max",
    "partition-lost-latency-avg",
    "partition-lost-latency-max",
    "partition-revoked-latency-avg",
    "partition-revoked-latency-max",
    "rebalance-latency-avg",
    "rebalance-latency-max",
    "rebalance-latency-total",
    "rebalance-rate-per-hour",
    "rebalance-total",
    "sync-rate",
    "sync-time-avg",
    "sync-time-max",
    "sync-total",
}


def test_a_producer_counts_records_batches_requests_and_bytes(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, other = new_topic(), new_topic()
    with bradbury.Producer(bootstrap, linger_ms=50) as producer:
        for _ in range(10):
            producer.send(topic, b"x" * 100)
        producer.flush()
        producer.send_batch(other, [b"y" * 100] * 30).result(60)
        metrics = producer.metrics()
    assert set(metrics) == {
        "producer-metrics",
        f"producer-topic-metrics,topic={topic}",
        f"producer-topic-metrics,topic={other}",
    }
    found = metrics["producer-metrics"]
    assert set(found) == PRODUCER
    assert found["record-send-total"] == 40
    assert 0 < found["record-send-rate"] < 40
    assert found["records-per-request-avg"] == 20
    assert found["batch-size-max"] > 30 * 100 > found["batch-size-avg"] > 10 * 100
    assert found["record-queue-time-max"] >= found["record-queue-time-avg"] > 0
    assert found["request-latency-max"] >= found["request-latency-avg"] > 0
    assert found["record-error-total"] == found["record-retry-total"] == 0
    assert found["buffer-available-bytes"] == found["buffer-total-bytes"] == 64 * 1024 * 1024
    assert found["connection-count"] == 2  # for questions, and for records
    assert found["outgoing-byte-total"] > 40 * 100
    assert found["request-total"] == found["response-total"] > 4
    assert found["flush-time-ns-total"] > 0
    assert found["compression-rate-avg"] == 1
    assert found["bufferpool-wait-ratio"] == found["successful-authentication-total"] == 0
    of_topic = metrics[f"producer-topic-metrics,topic={other}"]
    assert of_topic["record-send-total"] == 30
    assert of_topic["byte-total"] > 30 * 100


@pytest.mark.parametrize("count", [3, 3_000], ids=["few records", "many"])
def test_a_producer_says_how_far_its_batches_are_compressed(
    bootstrap: str, new_topic: NewTopic, count: int
) -> None:
    """As the ratio of what is sent to what it would be without."""
    topic = new_topic(1)
    with bradbury.Producer(bootstrap, linger_ms=50, compression_type="zstd") as producer:
        for _ in range(count):
            producer.send(topic, b"x" * 300)
        producer.flush()
        metrics = producer.metrics()
    rate = metrics["producer-metrics"]["compression-rate-avg"]
    assert metrics[f"producer-topic-metrics,topic={topic}"]["compression-rate"] == rate
    size = metrics["producer-metrics"]["batch-size-max"]
    assert 0 < rate < 0.2
    if count == 3:  # one batch: its header, and three records of 300 bytes with 10 around them
        assert rate == pytest.approx(size / (61 + 3 * 310), rel=0.01)


def test_a_producer_counts_what_fails_is_repeated_and_split(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1, max_message_bytes="2000")
    with bradbury.Producer(bootstrap, linger_ms=50) as producer:
        for _ in range(20):
            producer.send(topic, b"x" * 150)
        with pytest.raises(MessageTooLarge):
            producer.send_batch(topic, [b"x" * 3_000]).result(60)
        producer.flush()
        found = producer.metrics()["producer-metrics"]
    assert found["record-error-total"] == 1
    assert found["batch-split-total"] >= 1
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, HANG_UP, answer())
        with bradbury.Producer(broker.address, retry_backoff_ms=1) as again:
            again.send_batch("t", [b""] * 7).result(60)
            metrics = again.metrics()
    assert metrics["producer-metrics"]["record-retry-total"] == 7
    assert metrics["producer-topic-metrics,topic=t"]["record-retry-total"] == 7
    assert metrics["producer-metrics"]["connection-close-total"] == 1


def test_a_producer_counts_the_time_of_its_transactions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    calls = ("init", "begin", "send-offsets", "commit", "abort")

    def times(producer: bradbury.Producer) -> list[float]:
        found = producer.metrics()["producer-metrics"]
        return [found[f"txn-{name}-time-ns-total"] for name in calls]

    with bradbury.Producer(bootstrap, transactional_id=f"measured-{topic}") as producer:
        assert times(producer) == [0] * 5
        with pytest.raises(InvalidTxnState):
            producer.commit()
        failed = times(producer)
        assert failed[3] > 0, "the time of a call that fails is counted, too"
        with producer.transaction():
            producer.send_offsets({(topic, 0): 1}, f"group-{topic}")
        committed = times(producer)
        assert all(committed[:4])
        assert committed[3] > failed[3]
        producer.begin()
        producer.abort()
        aborted = times(producer)
    assert aborted[0] == committed[0], "only once"
    assert aborted[2:4] == committed[2:4]
    assert aborted[4] > 0


def test_an_async_producer_counts_the_time_of_its_transactions(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    async def scene() -> list[float]:
        async with bradbury.AsyncProducer(bootstrap, transactional_id=f"a-{topic}") as producer:
            async with producer.transaction():
                await producer.send_offsets({(topic, 0): 1}, f"async-group-{topic}")
            await producer.begin()
            await producer.abort()
            found = producer.metrics()["producer-metrics"]
        return [value for name, value in found.items() if name.startswith("txn-")]

    assert [value > 0 for value in asyncio.run(scene())] == [True] * 5


def test_a_producer_has_metrics_of_its_buffer() -> None:
    hold = threading.Event()

    def late(request: ProduceRequest) -> ProduceResponse:
        hold.wait(60)
        return answer()(request)

    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, late)
        with bradbury.Producer(broker.address, buffer_memory=1_000, max_block_ms=1_500) as producer:
            producer.send("t", b"x" * 800)
            with pytest.raises(RequestTimedOut, match="no room"):
                producer.send("t", b"x" * 800)
            found = producer.metrics()["producer-metrics"]
            hold.set()
    assert found["buffer-available-bytes"] == 1_000 - 824
    assert found["buffer-exhausted-total"] == 1
    assert found["bufferpool-wait-time-ns-total"] >= 1_500 * 1e6
    assert 0 < found["bufferpool-wait-ratio"] < 1
    assert found["waiting-threads"] == 0


def test_a_consumer_counts_records_bytes_fetches_and_lag(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, 100)
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.poll(60_000, max_records=30).num_rows == 30
        metrics = consumer.metrics()
        group = "consumer-fetch-manager-metrics"
        assert set(metrics) == {
            "consumer-metrics",
            group,
            f"{group},topic={topic}",
            f"{group},topic={topic},partition=0",
            f"{group},topic={topic},partition=1",
        }
        found = metrics[group]
        assert set(found) == FETCHES
        assert found["records-consumed-total"] == 100  # decoded together
        assert found["bytes-consumed-total"] == found["fetch-size-max"] > 100
        assert found["fetch-total"] >= 1
        assert found["fetch-latency-max"] > 0
        assert found["records-lag-max"] == 0
        partition = metrics[f"{group},topic={topic},partition=0"]
        assert set(partition) == PARTITION
        assert (partition["records-lag"], partition["records-lead"]) == (70, 30)
        assert partition["preferred-read-replica"] == -1
        assert metrics[f"{group},topic={topic}"]["records-consumed-total"] == 100
        polls = metrics["consumer-metrics"]
        assert polls["last-poll-seconds-ago"] >= 0
        assert polls["connection-count"] >= 2
        assert math.isnan(polls["time-between-poll-avg"])
        consumer.poll(0)
        polls = consumer.metrics()["consumer-metrics"]
        assert polls["time-between-poll-max"] > 0
        assert 0 <= polls["poll-idle-ratio-avg"] <= 1
        consumer.assign([(topic, 1)])
        assert f"{group},topic={topic},partition=0" not in consumer.metrics()


def test_a_member_counts_rebalances_heartbeats_and_commits(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    fill(bootstrap, topic, 5)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        group=f"g-{topic}",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=20,
        listener=bradbury.RebalanceListener(),
    ) as consumer:
        before = consumer.metrics()["consumer-coordinator-metrics"]
        assert set(before) == COORDINATOR
        assert before["last-heartbeat-seconds-ago"] == before["last-rebalance-seconds-ago"] == -1
        consumer.poll()
        consumer.commit()
        consumer.committed()
        while not consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"]:
            consumer.poll(20)
        metrics = consumer.metrics()
    found = metrics["consumer-coordinator-metrics"]
    assert found["rebalance-total"] == found["sync-total"] == 1
    assert found["join-total"] == 1
    assert found["rebalance-latency-total"] >= found["join-time-max"] > 0
    assert found["failed-rebalance-total"] == 0
    assert found["commit-total"] >= 1
    assert found["commit-latency-max"] > 0
    assert found["assigned-partitions"] == 3
    assert found["heartbeat-response-time-max"] > 0
    assert found["last-heartbeat-seconds-ago"] >= 0
    assert found["last-rebalance-seconds-ago"] > 0
    assert found["partition-assigned-latency-max"] > 0
    assert metrics["consumer-metrics"]["commit-sync-time-ns-total"] > 0
    assert metrics["consumer-metrics"]["committed-time-ns-total"] > 0

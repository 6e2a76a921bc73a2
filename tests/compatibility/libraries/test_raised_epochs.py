"""Idempotent records that stand twice in the log because librdkafka raised its producer epoch.

A batch of one partition is stored, but its answer is lost. Before it is sent again, a batch of another
partition is refused for good (larger than a segment). librdkafka then takes the next epoch for all its
partitions (rd_kafka_idemp_drain_epoch_bump) and sends the batch in doubt as a new one, which no
broker can tell from one: Apache Kafka stores it twice, too.
"""

from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.tests.compatibility.support.two_brokers import kafka, ours
from bradbury.tests.support.wire.fault_proxy import FaultProxy

PRODUCE = 0
CONFIGS = {"segment.bytes": "1048576", "max.message.bytes": "4000000"}
SECONDS = 60.0


@pytest.mark.deep
@pytest.mark.parametrize("cluster", [ours, pytest.param(kafka, marks=pytest.mark.java)])
def test_a_batch_in_doubt_is_stored_twice_by_any_broker(
    cluster: "contextmanager[str]", tmp_path: Path
) -> None:
    with cluster(tmp_path) as servers:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 2, 1, config=CONFIGS)])["t"].result(SECONDS)
        outcomes = doubt_and_refusal(servers)
        found = values_in(servers)
    assert outcomes == {b"first": None, b"in doubt": None, b"refused": "RECORD_LIST_TOO_LARGE"}
    assert found == {b"first": 1, b"in doubt": 2}


def doubt_and_refusal(servers: str) -> dict[bytes, str | None]:
    """What the producer is told of each of its records."""
    outcomes: dict[bytes, str | None] = {}

    def send(producer: Producer, name: bytes, partition: int, size: int = 0) -> None:
        def delivered(error: object, _: object) -> None:
            outcomes[name] = None if error is None else error.name()

        producer.produce("t", bytes(size) or name, name, partition, on_delivery=delivered)

    with FaultProxy(servers) as proxy:
        producer = Producer(
            {
                "bootstrap.servers": proxy.address,
                "enable.idempotence": True,
                "compression.type": "none",
                "message.max.bytes": 4_000_000,
                # Time for the other batch to be refused, however slow this machine is.
                "retry.backoff.ms": 20_000,
                "retry.backoff.max.ms": 20_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 10,
            }
        )
        send(producer, b"first", 0)
        assert producer.flush(SECONDS) == 0
        proxy.lose_answer(PRODUCE)
        send(producer, b"in doubt", 0)
        while not proxy.lost:
            producer.poll(0.01)
        send(producer, b"refused", 1, size=1_500_000)
        assert producer.flush(SECONDS) == 0
    return outcomes


def values_in(servers: str) -> Counter[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found: Counter[bytes] = Counter()
    while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
        found[message.value()] += 1
    consumer.close()
    return found

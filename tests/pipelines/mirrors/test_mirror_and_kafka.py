"""Is what Apache Kafka has in our topics after a mirror, and the other way round?"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [pytest.mark.java, pytest.mark.deep]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m") as broker:
        yield broker.bootstrap_servers


def fill(bootstrap: str, topic: str) -> None:
    """Of 20 transactions every second is committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(
                topic, b"%d" % number, b"key", partition=partition, headers=[("h", b"v")]
            )
        producer.flush()
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def records(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """By partition, in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[tuple[Any, ...]] = []
    while len(found) < 20:
        message = consumer.poll(30)
        assert message is not None, found
        assert message.error() is None
        found.append(
            (
                message.partition(),
                message.timestamp(),
                message.key(),
                message.value(),
                message.headers(),
            )
        )
    consumer.close()
    return sorted(found, key=lambda row: int(row[0]))


@pytest.mark.parametrize("is_home", [False, True])
def test_between_kafka_and_us(kafka: str, bootstrap: str, is_home: bool) -> None:
    source, target = (bootstrap, kafka) if is_home else (kafka, bootstrap)
    topic, alias = f"arrivals-{is_home}", f"of-{is_home}"
    with bradbury.Admin(source) as admin:
        admin.create_topic(topic, 2, 1, configs={"retention.ms": "86400000"})
        fill(source, topic)
        admin.alter_group_offsets("billing", {(topic, 0): 10})
    for expected in (20, 0):
        done = bradbury.mirror(
            topic, source, alias=alias, bootstrap_servers=target, groups="billing"
        )
        assert done.records == expected
    assert records(target, f"{alias}.{topic}") == records(source, topic)
    with bradbury.Admin(target) as admin:
        assert admin.describe_configs(f"{alias}.{topic}")["retention.ms"].value == "86400000"
        assert (f"{alias}.{topic}", 0) in admin.group_offsets("billing")

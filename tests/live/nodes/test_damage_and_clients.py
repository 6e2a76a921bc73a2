"""What is a consumer told that comes to records which no replica has any more? No client waits for
ever without an error, and with bradbury.damaged.segment=skip each goes on behind them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import bradbury
from bradbury.clients.consumer.consumer import Consumer
from bradbury.protocol.errors import KafkaError as OurKafkaError
from bradbury.storage.segments.lost_segments import LOST

RECORDS = 60
SECONDS = 25.0
CONFIG = {"offsets.topic.num.partitions": 1}


class Told(Exception):
    """The client has said that something is wrong."""


def until(read: Callable[[], set[bytes]], count: int) -> set[bytes]:
    found: set[bytes] = set()
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found |= read()
    return found


def by_librdkafka(servers: str, count: int) -> set[bytes]:
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False}
    )

    def read() -> set[bytes]:
        found = set()
        for message in consumer.consume(100, 0.2):
            error = message.error()
            if error is not None:
                raise Told(error.code() == KafkaError.INVALID_MSG, error)
            found.add(message.value())
        return found

    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        return until(read, count)
    finally:
        consumer.close()


def by_kafka_python(servers: str, count: int) -> set[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers)
    partition = kafka.TopicPartition("t", 0)

    def read() -> set[bytes]:
        return {
            record.value for records in consumer.poll(timeout_ms=200).values() for record in records
        }

    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return until(read, count)
    except kafka.errors.KafkaError as error:
        raise Told(error) from error
    finally:
        consumer.close()


class LoggedMessages(logging.Handler):
    """aiokafka logs every error, and hands none to the application."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "Unexpected error while fetching" in record.getMessage():
            self.errors.append(record.getMessage())


def by_aiokafka(servers: str, count: int) -> set[bytes]:
    heard = LoggedMessages()

    async def read() -> set[bytes]:
        found: set[bytes] = set()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition("t", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            deadline = time.monotonic() + SECONDS
            while len(found) < count and time.monotonic() < deadline:
                batches = await consumer.getmany(timeout_ms=200)
                found |= {record.value for each in batches.values() for record in each}
                if heard.errors:
                    raise Told(heard.errors)
        finally:
            await consumer.stop()
        return found

    logger = logging.getLogger("aiokafka.consumer.fetcher")
    logger.addHandler(heard)
    try:
        return asyncio.run(read())
    finally:
        logger.removeHandler(heard)


def by_ours(servers: str, count: int) -> set[bytes]:
    with Consumer(bootstrap=servers) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), 0)
        try:
            return until(lambda: set(consumer.poll(200).column("value").to_pylist()), count)
        except OurKafkaError as error:
            raise Told(error) from error


CLIENTS = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "bradbury": by_ours,
}


def value(number: int) -> bytes:
    return b"%03d" % number * 100


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, set[bytes]]]:
    """A node whose topic has lost a segment in the middle, and what is left."""
    data_dir = tmp_path_factory.mktemp("node") / "data"
    with bradbury.local(str(data_dir), config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic("t", 1, 1, config={"segment.bytes": "4000"})
        admin.create_topics([topic])["t"].result(60)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce("t", value(number), partition=0)
            assert producer.flush(30) == 0
    [folder] = data_dir.glob("partitions-*/t-0")
    logs = sorted(folder.glob("*.log"))
    lost = range(int(logs[2].stem), int(logs[3].stem))
    assert lost
    logs[2].unlink()
    with bradbury.local(str(data_dir), config=CONFIG) as cluster:
        yield (
            cluster.bootstrap_servers,
            {value(number) for number in range(RECORDS) if number not in lost},
        )
        assert logs[2].read_bytes() == LOST


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_is_told(damaged: tuple[str, set[bytes]], client: str) -> None:
    with pytest.raises(Told):
        CLIENTS[client](damaged[0], RECORDS)


@pytest.mark.parametrize("client", CLIENTS)
def test_with_skip_each_client_goes_on(damaged: tuple[str, set[bytes]], client: str) -> None:
    servers, left = damaged
    resource = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry(
                "bradbury.damaged.segment",
                "skip",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    assert CLIENTS[client](servers, len(left)) == left

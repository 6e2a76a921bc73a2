"""Do the Kafka clients that people use write, read, seek and search with us?"""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition as AsyncTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaConsumer, KafkaProducer, TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def read_with_librdkafka(servers: str, topic: str, count: int, *, partitions: int = 2):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    messages = []
    while len(messages) < count:
        got = consumer.consume(count - len(messages), 10)
        assert got, f"{len(messages)} of {count}"
        messages += got
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_writes_and_every_client_reads(servers: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50})
    for number in range(200):
        producer.produce(
            topic,
            key=b"key-%d" % (number % 7),
            value=b"value-%d" % number,
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=[("number", str(number).encode())],
        )
    assert producer.flush(10) == 0
    for message in read_with_librdkafka(servers, topic, 200):
        number = int(message.value().split(b"-")[1])
        assert message.key() == b"key-%d" % (number % 7)
        assert message.timestamp()[1] == 1_700_000_000_000 + number
        assert message.headers() == [("number", str(number).encode())]
        assert (message.partition(), message.offset()) == (number % 2, number // 2)
    if codec in ("none", "gzip", "snappy"):  # kafka-python needs further packages for the others
        other = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=10_000)
        other.assign([KafkaTopicPartition(topic, 0)])
        other.seek_to_beginning()
        values = [next(other).value for _ in range(100)]
        assert values == [b"value-%d" % number for number in range(0, 200, 2)]
        other.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_writes_with_every_kind_of_acks(servers: str, topic: str, acks) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks=acks, enable_idempotence=acks == "all")
    for number in range(50):
        producer.send(topic, value=b"%d" % number, partition=0)
    producer.flush()
    producer.close()
    values = [message.value() for message in read_with_librdkafka(servers, topic, 50)]
    assert values == [b"%d" % number for number in range(50)]


def test_aiokafka_writes_and_reads(servers: str, topic: str) -> None:
    async def scenario() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        await producer.start()
        for number in range(50):
            await producer.send(topic, b"%d" % number, partition=1)
        await producer.flush()
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        consumer.assign([AsyncTopicPartition(topic, 1)])
        await consumer.seek_to_beginning()
        values = [(await consumer.getone()).value for _ in range(50)]
        await consumer.stop()
        return values

    assert asyncio.run(scenario()) == [b"%d" % number for number in range(50)]


def test_offsets_are_found_by_place_and_by_time(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(100):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + 1000 * number)
        if number % 10 == 9:
            producer.flush(10)
    consumer = KafkaConsumer(bootstrap_servers=servers)
    place = KafkaTopicPartition(topic, 0)
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: 100}
    found = consumer.offsets_for_times({place: 1_700_000_042_500})[place]
    assert (found.offset, found.timestamp) == (43, 1_700_000_043_000)
    assert consumer.offsets_for_times({place: 1_800_000_000_000})[place] is None
    consumer.close()


def test_a_fetch_waits_for_the_next_record(servers: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "fetch.wait.max.ms": 10_000}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"late", partition=0)
    producer.flush(10)
    message = consumer.poll(5)
    assert message is not None
    assert message.value() == b"late"
    consumer.close()


def test_an_offset_beyond_the_log_is_out_of_range(servers: str, topic: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 1234)])
    message = consumer.poll(10)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_a_record_larger_than_the_topic_allows_is_refused(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    small = NewTopic("small-records", 1, 1, config={"max.message.bytes": "1000"})
    admin.create_topics([small])["small-records"].result(60)
    errors = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        "small-records", b"x" * 2000, on_delivery=lambda error, _: errors.append(error)
    )
    producer.flush(10)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_topics_are_made_described_and_deleted(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = NewTopic("admin-test", 3, 1, config={"retention.ms": "1000000"})
    admin.create_topics([made])["admin-test"].result(60)
    with pytest.raises(KafkaException) as failure:
        admin.create_topics([NewTopic("admin-test", 1, 1)])["admin-test"].result(60)
    assert failure.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    resource = ConfigResource(ResourceType.TOPIC, "admin-test")
    settings = admin.describe_configs([resource])[resource].result(60)
    assert settings["retention.ms"].value == "1000000"
    assert settings["segment.bytes"].is_default
    assert len(admin.list_topics("admin-test").topics["admin-test"].partitions) == 3
    admin.delete_topics(["admin-test"])["admin-test"].result(60)
    names = KafkaAdminClient(bootstrap_servers=servers).list_topics()
    assert "admin-test" not in names


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("two-replicas", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic if isinstance(value, NewTopic) else "",
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(servers: str, topic, code: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(KafkaException) as failure:
        admin.create_topics([topic])[topic.topic].result(60)
    assert failure.value.args[0].code() == code
    assert failure.value.args[0].str()

"""Do clients from before Kafka 0.11 produce and consume, beside new ones?"""

import itertools

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as Place
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.record.memory_records import MemoryRecords

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.legacy_messages import convert_down, encode_message
from bradbury.protocol.records.record_batch import check_batch
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic, produce

NOW = 1_700_000_000_000


def fetch(client: RawClient, topic: str, offset: int, *, version: int, max_bytes: int = 1 << 20):
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return client.call(request, FetchResponse, version).responses[0].partitions[0]


def old_records(records: bytes):
    found = []
    reader = MemoryRecords(bytes(records))
    while reader.has_next():
        found += [(r.offset, r.timestamp, r.key, r.value) for r in reader.next_batch()]
    return found


# --- by the byte ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_message_set_is_stored_as_one_batch(client: RawClient, version: int) -> None:
    topic = make_topic(client)
    magic = 1 if version == 2 else 0
    sent = b"".join(encode_message(9, magic, NOW + n, b"k", b"v%d" % n) for n in range(3))
    for base_offset in (0, 3):
        answer = produce(client, topic, sent, version=version)
        assert (answer.error_code, answer.base_offset) == (0, base_offset)
    stored = fetch(client, topic, 0, version=11).records
    times = [NOW + n if magic else -1 for n in range(3)]
    first = stored[: len(stored) // 2]
    assert [(r.offset, r.timestamp, r.value) for r in iterate_records(first)] == [
        (n, times[n], b"v%d" % n) for n in range(3)
    ]


def test_log_append_time_is_given_and_answered(client: RawClient) -> None:
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    answer = produce(client, topic, encode_message(0, 0, -1, None, b"v"), version=2)
    assert answer.log_append_time_ms > NOW
    ((_, timestamp, _, _),) = old_records(fetch(client, topic, 0, version=3).records)
    assert timestamp == answer.log_append_time_ms


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_consumers_get_sets_with_the_offsets_of_the_log(
    client: RawClient, version: int, codec: int
) -> None:
    topic = make_topic(client)
    batch = bytes(encode_records([(NOW + n, None, b"v%d" % n, ()) for n in range(4)], codec=codec))
    for _ in range(2):
        assert produce(client, topic, batch, version=9).error_code == 0
    answer = fetch(client, topic, 2, version=version)
    assert (answer.error_code, answer.high_watermark) == (0, 8)
    magic = 1 if version >= 2 else 0
    assert answer.records[16] == magic
    if codec != 3:  # kafka-python wants a further package for lz4
        assert [(offset, value) for offset, _, _, value in old_records(answer.records)] == [
            (offset, b"v%d" % (offset % 4)) for offset in range(2, 8)
        ]
    twice = fetch(client, topic, 0, version=11).records
    expected = convert_down(twice, magic, fetch_offset=2, limit=1 << 20)
    assert bytes(answer.records) == expected


def test_what_cannot_be_read_by_an_old_consumer_is_an_error_it_knows(client: RawClient) -> None:
    topic = make_topic(client)
    zstd = bytes(encode_records([(NOW, None, b"v", ())], codec=4))
    produce(client, topic, zstd, version=9)
    answer = fetch(client, topic, 0, version=3)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    named = make_topic(client, compression_type="zstd")
    for version, code in ((9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, 0)):
        assert fetch(client, named, 0, version=version).error_code == code


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bytes(40), ErrorCode.CORRUPT_MESSAGE),
        (encode_message(0, 1, NOW, None, b"v")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (encode_message(0, 1, NOW, None, b"v", 8), ErrorCode.INVALID_TIMESTAMP),
        (encode_message(0, 1, NOW, None, b"v", 4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (encode_message(0, 1, NOW, None, b"v" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["garbage", "crc", "log append time", "zstd", "large"],
)
def test_a_bad_set_gets_kafkas_code(client: RawClient, sent: bytes, code: ErrorCode) -> None:
    topic = make_topic(client)
    answer = produce(client, topic, sent, version=2)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert fetch(client, topic, 0, version=11).high_watermark == 0


@pytest.mark.parametrize("version", [3, 7, 9])
def test_newer_requests_may_not_carry_old_messages(client: RawClient, version: int) -> None:
    topic = make_topic(client)
    sent = encode_message(0, 1, NOW, b"k" * 40, b"v" * 40)
    assert produce(client, topic, sent, version=version).error_code == ErrorCode.INVALID_RECORD


def test_old_and_new_requests_of_one_connection_keep_their_order(client: RawClient) -> None:
    topic = make_topic(client)
    numbers = []
    for number in range(40):
        if number % 2:
            records = bytes(encode_records([(NOW, None, b"%d" % number, ())]))
            version = 9
        else:
            padding = b" " * (2000 * (20 - number // 2))
            records = encode_message(0, 1, NOW, None, b"%d" % number + padding)
            version = 2
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
        numbers.append((client.send(request, version), version))
    for sent, version in numbers:
        number, answer = client.receive(ProduceResponse, version)
        assert number == sent
        assert answer.responses[0].partition_responses[0].error_code == 0
    found: list[int] = []
    while len(found) < 40:
        records = fetch(client, topic, len(found), version=3).records
        found += [int(value) for _, _, _, value in old_records(records)]
    assert found == list(range(40))


def list_old_offsets(client: RawClient, topic: str, timestamp: int, most: int) -> list[int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    answer = client.call(request, ListOffsetsResponse, 0).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.old_style_offsets


def test_the_first_list_offsets_knows_segments(client: RawClient) -> None:
    topic = make_topic(client, segment_bytes="1000")
    assert list_old_offsets(client, topic, -1, 5) == [0]
    for number in range(4):
        records = bytes(encode_records([(NOW + number, None, b"x" * 600, ())] * 2))
        assert produce(client, topic, records, version=9).error_code in (0, 18)
    for number in range(4):
        records = bytes(encode_records([(NOW + number, None, b"x" * 600, ())]))
        assert produce(client, topic, records, version=9).error_code == 0
    assert list_old_offsets(client, topic, -1, 1) == [4]
    assert list_old_offsets(client, topic, -1, 9) == [4, 3, 2, 1, 0]
    assert list_old_offsets(client, topic, -2, 9) == [0]
    assert list_old_offsets(client, topic, NOW + 1, 9) == [1, 0]
    assert list_old_offsets(client, topic, NOW + 1, 1) == [1]
    assert list_old_offsets(client, topic, NOW - 1, 9) == []
    assert list_old_offsets(client, topic, 2**60, 2) == [4, 3]


# --- by real clients -----------------------------------------------------------------------------


@pytest.mark.parametrize("api_version", [(0, 9), (0, 10, 1)], ids=["0.9", "0.10"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy"])
def test_kafka_python_as_it_talks_to_an_old_broker(
    servers: str, topic: str, api_version: tuple[int, ...], codec: str | None
) -> None:
    options = {"bootstrap_servers": servers, "api_version": api_version}
    producer = KafkaProducer(compression_type=codec, linger_ms=20, **options)
    sent = [producer.send(topic, b"v%d" % n, key=b"k", partition=0) for n in range(100)]
    assert [future.get(10).offset for future in sent] == list(range(100))
    producer.close(5)
    consumer = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=10_000, **options)
    consumer.assign([TopicPartition(topic, 0)])
    found = [record.value for record in itertools.islice(consumer, 100)]
    consumer.close()
    assert found == [b"v%d" % n for n in range(100)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("release", ["0.9.0", "0.10.0.0"])
def test_librdkafka_as_it_talks_to_an_old_broker(
    servers: str, topic: str, codec: str, release: str
) -> None:
    if release == "0.9.0" and codec == "lz4":
        pytest.skip("librdkafka writes lz4 from 0.10 on")
    old = {
        "bootstrap.servers": servers,
        "api.version.request": False,
        "broker.version.fallback": release,
    }
    failures = []
    producer = Producer(old | {"compression.type": codec, "linger.ms": 20})
    for number in range(100):
        producer.produce(
            topic,
            b"v%d" % number,
            key=b"k",
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(10) == 0
    assert failures == []
    consumer = Consumer(old | {"group.id": "none", "auto.offset.reset": "earliest"})
    consumer.assign([Place(topic, 0, 0)])
    found = []
    while len(found) < 100:
        message = consumer.poll(10)
        assert message is not None, f"only {len(found)} came"
        assert message.error() is None
        found.append((message.offset(), message.value()))
    consumer.close()
    assert found == [(n, b"v%d" % n) for n in range(100)]
    with RawClient(servers) as raw:  # what a consumer of today gets
        stored = fetch(raw, topic, 0, version=11, max_bytes=100).records
        assert next(iterate_records(stored)).value == b"v0"
        assert check_batch(stored).codec == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}[codec]

"""What does a topic make of the batches it is sent: other codecs, rules about records, nonsense?"""

import itertools

import pytest
from confluent_kafka import Producer

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
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
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bradbury.protocol.messages.produce import (
    ProduceResponse,
)
from bradbury.protocol.records.record_batch import build_batch, check_batch, read_size
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic, produce, produce_request

NOW = 1_700_000_000_000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_names = itertools.count(1)


def stored(client: RawClient, topic: str) -> list[bytes]:
    """The batches of the topic."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    answer = client.call(FetchRequest(max_bytes=1 << 24, topics=topics), FetchResponse, 11)
    records = bytes(answer.responses[0].partitions[0].records)
    batches = []
    while records:
        _, size = read_size(records)
        batches.append(records[:size])
        records = records[size:]
    return batches


def batch(*values: bytes, key: bytes | None = None, **options) -> bytes:
    return bytes(encode_records([(NOW, key, value, ()) for value in values], **options))


# --- compression.type ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CODECS)
def test_the_log_is_kept_in_the_codec_of_the_topic(client: RawClient, name: str) -> None:
    topic = make_topic(client, compression_type=name)
    for codec in range(5):
        answer = produce(client, topic, batch(b"%d" % codec, b"x" * 200, codec=codec))
        assert (answer.error_code, answer.base_offset) == (0, 2 * codec)
    batches = stored(client, topic)
    assert {check_batch(each).codec for each in batches} == {CODECS[name]}
    values = [record.value for each in batches for record in iterate_records(each)]
    assert values == list(itertools.chain(*((b"%d" % n, b"x" * 200) for n in range(5))))


def test_pipelined_batches_of_an_idempotent_producer_stay_in_order(client: RawClient) -> None:
    """Every other one needs a conversion; what comes after it must wait for it."""
    topic = make_topic(client, compression_type="gzip")
    sent = []
    for number in range(60):
        records = batch(
            b"%d" % number + b"x" * (200_000 if number % 3 == 0 else 10),
            codec=number % 2,
            producer_id=4711,
            producer_epoch=0,
            base_sequence=number,
        )
        sent.append(client.send(produce_request(topic, records), 9))
    for number, expected in enumerate(sent):
        correlation_id, answer = client.receive(ProduceResponse, 9)
        part = answer.responses[0].partition_responses[0]
        assert (correlation_id, part.error_code, part.base_offset) == (expected, 0, number)
    again = batch(b"59" + b"x" * 10, codec=1, producer_id=4711, producer_epoch=0, base_sequence=59)
    retried = produce(client, topic, again)
    assert (retried.error_code, retried.base_offset) == (0, 59)


def test_librdkafka_fills_a_topic_that_recompresses(client: RawClient, servers: str) -> None:
    topic = make_topic(client, compression_type="zstd")
    failures = []
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "batch.num.messages": 50}
    )
    for number in range(3000):
        producer.produce(
            topic,
            b"value %d" % number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert failures == []
    values = [r.value for each in stored(client, topic) for r in iterate_records(each)]
    assert values == [b"value %d" % n for n in range(3000)]


def test_without_acks_a_conversion_that_fails_ends_the_connection(servers: str) -> None:
    with RawClient(servers) as client:
        topic = make_topic(client, compression_type="gzip")
        client.send(produce_request(topic, batch(b"a"), acks=0), 9)
        sent = client.send(MetadataRequest(topics=[]), 12)
        assert client.receive(MetadataResponse, 12)[0] == sent
        nonsense = bytes(
            build_batch(b"\xff" * 9, record_count=1, base_timestamp=0, max_timestamp=0)
        )
        client.send(produce_request(topic, nonsense, acks=0), 9)
        assert client.is_closed_by_peer()
    with RawClient(servers) as client:
        assert len(stored(client, topic)) == 1


# --- rules about single records (KIP-467) --------------------------------------------------------


@pytest.mark.parametrize("size", [10, 5_000])
@pytest.mark.parametrize("codec", [0, 3])
def test_a_compacted_topic_names_the_records_that_lack_a_key(
    client: RawClient, codec: int, size: int
) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    records = [(NOW, key, b"x" * size, ()) for key in (b"a", None, b"", None)]
    sent = bytes(encode_records(records, codec=codec))
    answer = produce(client, topic, sent, version=8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert "key" in answer.record_errors[0].batch_index_error_message
    assert answer.error_message
    assert stored(client, topic) == []
    assert produce(client, topic, batch(b"v", key=b"k")).error_code == 0


def test_a_record_from_the_future_is_named(client: RawClient) -> None:
    topic = make_topic(client)
    records = bytes(encode_records([(NOW, None, b"", ()), (2**50, None, b"", ())]))
    answer = produce(client, topic, records, version=8)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_of_one_replica_no_two_have_to_be_in_sync(client: RawClient) -> None:
    topic = make_topic(client, min_insync_replicas="2")
    assert produce(client, topic, batch(b"a")).error_code == 0


# --- nonsense ------------------------------------------------------------------------------------


def test_nonsense_that_is_not_looked_at_harms_only_who_reads_it(client: RawClient) -> None:
    """The header and CRC are right, the records are not: a broken producer, or a hostile one."""
    topic = make_topic(client, bradbury_validate_records="none")
    nonsense = build_batch(b"\xff" * 90, record_count=3, base_timestamp=NOW, max_timestamp=NOW + 9)
    assert produce(client, topic, batch(b"before")).error_code == 0
    assert produce(client, topic, bytes(nonsense)).error_code == 0
    after = bytes(encode_records([(NOW + 20, None, b"after", ())]))
    assert produce(client, topic, after).base_offset == 4
    first, middle, last = stored(client, topic)
    assert [r.value for r in (*iterate_records(first), *iterate_records(last))] == [
        b"before",
        b"after",
    ]
    assert check_batch(middle).record_count == 3
    expected = {NOW: (0, 0), NOW + 5: (ErrorCode.CORRUPT_MESSAGE, -1), NOW + 10: (0, 4)}
    for timestamp, (code, offset) in expected.items():
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        question = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        answer = client.call(question, ListOffsetsResponse, 3).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (code, offset)


# --- producers -----------------------------------------------------------------------------------


def test_the_producers_of_a_partition_are_described(client: RawClient) -> None:
    topic = make_topic(client)
    for number in range(3):
        options = {"producer_id": 77, "producer_epoch": 2, "base_sequence": number}
        assert produce(client, topic, batch(b"x", **options)).error_code == 0
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 9])])
    found, missing = client.call(asked, DescribeProducersResponse, 0).topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (77, 2, 2)
    assert (one.last_timestamp, one.coordinator_epoch, one.current_txn_start_offset) == (
        NOW,
        -1,
        -1,
    )
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

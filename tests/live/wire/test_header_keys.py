"""Keys of record headers are bytes to a broker: what is not UTF-8 is stored as it came."""

from confluent_kafka import Consumer as ForeignConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury import Consumer
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.record_batch import compute_crc
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient

KEY = b"caf\xe9"  # Latin-1, as programs in C and Go may send it


def latin_1() -> bytes:
    records = [
        (1_700_000_000_000, None, b"first", (("cafe", b"x"),)),
        (1_700_000_000_000, None, b"second", (("name", b"y"),)),
    ]
    batch = bytearray(encode_records(records))
    start = batch.index(b"cafe")
    batch[start : start + len(KEY)] = KEY
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")
    return bytes(batch)


def test_they_are_stored_and_every_consumer_goes_on(servers: str) -> None:
    topic = "latin-1"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    partition = PartitionProduceData(index=0, records=latin_1())
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    with RawClient(servers) as client:
        answer = client.call(request, ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    with Consumer(topic, bootstrap=servers, auto_offset_reset="earliest") as consumer:
        found = consumer.poll(10_000)
    assert found.column("value").to_pylist() == [b"first", b"second"]
    assert found.column("headers").to_pylist() == [
        [{"key": "caf\ufffd", "value": b"x"}],
        [{"key": "name", "value": b"y"}],
    ]
    foreign = ForeignConsumer({"bootstrap.servers": servers, "group.id": "g"})
    try:
        foreign.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in foreign.consume(2, 20)] == [b"first", b"second"]
    finally:
        foreign.close()

"""Does a client of Kafka 0.8.2 find all it needs: to write, to read, to commit and to go on there?"""

import struct

from confluent_kafka import Consumer, Producer, TopicPartition

from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient

SECONDS = 60


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit_of_version_1(group: str, topic: str, offset: int, timestamp: int) -> bytes:
    """As the protocol guide of 0.8.2 spells it."""
    partition = struct.pack(">iqq", 0, offset, timestamp) + text("note")
    topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1) + partition
    return text(group) + struct.pack(">i", -1) + text("") + topics


def test_a_commit_of_version_1_is_stored(client: RawClient, topic: str) -> None:
    reported = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in reported.api_keys}
    assert ranges[8] == (1, 9)
    group = f"old-{topic}"
    client.find_coordinator(group)
    for offset, timestamp in ((7, -1), (8, 1_700_000_000_000)):
        body = commit_of_version_1(group, topic, offset, timestamp)
        head = struct.pack(">hhi", OffsetCommitRequest.API_KEY, 1, offset) + text("raw")
        client.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        number, answer = client.receive(OffsetCommitResponse, 1)
        assert number == offset
        [told_topic] = answer.topics
        [part] = told_topic.partitions
        assert (told_topic.name, part.partition_index, part.error_code) == (topic, 0, 0)
        asked = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        [found] = client.call(asked, OffsetFetchResponse, 1).topics[0].partitions
        assert (found.committed_offset, found.metadata) == (offset, "note")


def test_librdkafka_as_of_0_8_2_writes_reads_commits_and_goes_on(servers: str, topic: str) -> None:
    old = {
        "bootstrap.servers": servers,
        "api.version.request": False,
        "broker.version.fallback": "0.8.2.2",
    }
    producer = Producer(old)
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(SECONDS) == 0

    def read(count: int, offset: int) -> Consumer:
        consumer = Consumer({**old, "group.id": f"as-of-{topic}", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, offset)])
        read: list[bytes] = []
        while len(read) < count:
            message = consumer.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            read.append(message.value())
        assert read == [b"%d" % number for number in range(10 - count if offset else 0, 10)][:count]
        return consumer

    first = read(4, 0)
    committed = first.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    assert committed is not None
    assert committed[0].error is None
    first.close()
    second = read(6, -1000)  # from where the group is
    [found] = second.committed([TopicPartition(topic, 0)], SECONDS)
    assert found.offset == 4
    second.close()

"""What does deleting records do to those who read, now and after a restart?"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.support.wire.raw_client import RawClient


def produce(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(10) == 0


def earliest(servers: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers})
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(60)
    return found.offset


def delete(servers: str, topic: str, offset: int, *, version: int = 2, partition: int = 0):
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
            )
        ],
        timeout_ms=5_000,
    )
    with RawClient(servers) as client:
        answer = client.call(request, DeleteRecordsResponse, version)
    (result,) = answer.topics[0].partitions
    return ErrorCode(result.error_code), result.low_watermark


def test_consumers_begin_where_the_deleted_records_end(servers: str, topic: str) -> None:
    produce(servers, topic, 10)
    admin = AdminClient({"bootstrap.servers": servers})
    partition = TopicPartition(topic, 0, 4)
    assert admin.delete_records([partition])[partition].result(60).low_watermark == 4
    assert earliest(servers, topic) == 4
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x"})
    consumer.assign([TopicPartition(topic, 0, 4)])
    assert [int(message.value()) for message in consumer.consume(6, 10)] == [4, 5, 6, 7, 8, 9]
    consumer.close()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_minus_one_means_everything_that_is_committed(
    servers: str, topic: str, version: int
) -> None:
    produce(servers, topic, 3)
    assert delete(servers, topic, -1, version=version) == (ErrorCode.NONE, 3)
    produce(servers, topic, 1)
    assert earliest(servers, topic) == 3


def test_a_start_never_goes_back(servers: str, topic: str) -> None:
    produce(servers, topic, 5)
    assert delete(servers, topic, 3) == (ErrorCode.NONE, 3)
    assert delete(servers, topic, 1) == (ErrorCode.NONE, 3)


def test_what_cannot_be_deleted_is_refused(servers: str, topic: str) -> None:
    produce(servers, topic, 2)
    assert delete(servers, topic, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(servers, topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(servers, topic, 0, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(servers, "no-such-topic", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    internal = delete(servers, "__consumer_offsets", 0)
    assert internal == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert earliest(servers, topic) == 0


def test_records_of_a_topic_that_is_only_compacted_stay(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    name = "compacted-records-stay"
    configs = {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(60)
    assert delete(servers, name, -1) == (ErrorCode.POLICY_VIOLATION, -1)
    partition = TopicPartition(name, 0, -1)
    with pytest.raises(KafkaException):
        admin.delete_records([partition])[partition].result(60)


def test_deleted_records_do_not_come_back_with_a_restart_or_a_crash(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path / "a")) as cluster:
        admin = cluster.admin()
        admin.create_topic("t")
        produce(cluster.bootstrap_servers, "t", 10)
        assert delete(cluster.bootstrap_servers, "t", 6) == (ErrorCode.NONE, 6)
        # What is on the disk when the answer is there is what a power cut would leave.
        kept = (tmp_path / "a" / "partitions-0" / "log-start-offset-checkpoint").read_text()
        assert "t 0 6" in kept.splitlines()
        admin.close()
    with bradbury.local(str(tmp_path / "a")) as cluster:
        assert earliest(cluster.bootstrap_servers, "t") == 6

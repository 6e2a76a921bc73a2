"""What is shown of real producers' transactions, also by hand-written markers and after a restart?"""

import itertools
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from bradbury.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient

_ids = itertools.count(1)


def transactional(servers: str, **settings: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"topics-{next(_ids)}",
            "linger.ms": 0,
            **settings,
        }
    )
    producer.init_transactions(60)
    return producer


def send(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(servers: str, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """All that is shown up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        (message,) = consumer.consume(1, 30)
        if message.error() is None:
            found.append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found


def described(client: RawClient, topic: str) -> ProducerState:
    asked = [TopicRequest(name=topic, partition_indexes=[0])]
    answer = client.call(DescribeProducersRequest(topics=asked), DescribeProducersResponse, 0)
    (producer,) = answer.topics[0].partitions[0].active_producers
    return producer


def test_readers_see_what_was_committed_and_the_others_everything(servers: str, topic: str) -> None:
    producer = transactional(servers)
    for number, is_commit in enumerate((True, False, True)):
        producer.begin_transaction()
        send(producer, topic, f"{number}a", f"{number}b")
        if is_commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    send(producer, topic, "open")
    assert read(servers, topic) == ["0a", "0b", "2a", "2b"]
    everything = read(servers, topic, isolation="read_uncommitted")
    assert everything == ["0a", "0b", "1a", "1b", "2a", "2b", "open"]
    producer.abort_transaction(30)
    assert read(servers, topic) == ["0a", "0b", "2a", "2b"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_operators_marker_ends_a_transaction_that_hangs(
    servers: str, topic: str, client: RawClient, version: int
) -> None:
    """As `kafka-transactions.sh abort` does it, from what DescribeProducers says."""
    producer = transactional(servers)
    producer.begin_transaction()
    send(producer, topic, "hangs")
    hanging = described(client, topic)
    assert hanging.current_txn_start_offset == 0
    plain = Producer({"bootstrap.servers": servers})
    send(plain, topic, "behind")
    assert read(servers, topic) == []

    def write(coordinator_epoch: int) -> int:
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
        )
        answer = client.call(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, version
        )
        return answer.markers[0].topics[0].partitions[0].error_code

    assert write(9) == ErrorCode.NONE
    assert read(servers, topic) == ["behind"]
    ended = described(client, topic)
    assert (ended.current_txn_start_offset, ended.coordinator_epoch) == (-1, 9)
    assert write(8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_restart_shows_the_same_and_lets_open_transactions_end(tmp_path: Path) -> None:
    for round_number in range(3):
        with bradbury.local(str(tmp_path)) as cluster:
            servers = cluster.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            if round_number == 0:
                admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
            else:
                assert read(servers, "t") == [f"kept {number}" for number in range(round_number)]
            producer = transactional(servers, **{"transactional.id": "restarted"})
            producer.begin_transaction()
            send(producer, "t", "dropped")
            producer.abort_transaction(30)
            producer.begin_transaction()
            send(producer, "t", f"kept {round_number}")
            producer.commit_transaction(30)
            producer.begin_transaction()
            send(producer, "t", "open when the node stops")

"""A consumer of librdkafka that goes back to the beginning of what it reads, by its own doing.

It asks where a partition begins (ListOffsets); before the answer is there, its position is set in
another way: by a seek here, by a rebalance or a new leader in a cluster. The answer is outdated then,
and it asks again half a second later (rd_kafka_toppar_handle_Offset), though it reads long since, and
goes where the second answer says. Apache Kafka's consumers meet the same.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.tests.compatibility.support.two_brokers import kafka, ours
from bradbury.tests.support.wire.fault_proxy import FaultProxy

LIST_OFFSETS = 2
SECONDS = 60.0
RECORDS = 20
SOUGHT = 10


@pytest.mark.deep
@pytest.mark.parametrize("cluster", [ours, pytest.param(kafka, marks=pytest.mark.java)])
def test_an_outdated_answer_sends_a_consumer_back_whatever_the_broker(
    cluster: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with cluster(tmp_path) as servers:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
        producer = Producer({"bootstrap.servers": servers})
        for number in range(RECORDS):
            producer.produce("t", str(number))
        assert producer.flush(SECONDS) == 0
        offsets = offsets_after_a_seek(servers)
    assert offsets == [*range(SOUGHT, RECORDS), *range(RECORDS)]


def offsets_after_a_seek(servers: str) -> list[int]:
    """What a consumer is handed that was assigned the beginning, and then sought SOUGHT."""
    with FaultProxy(servers) as proxy:
        held = proxy.hold_answer(LIST_OFFSETS)
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.address,
                "group.id": "g",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        while not held.is_here.wait(0.01):
            consumer.poll(0)
        consumer.seek(TopicPartition("t", 0, SOUGHT))
        held.go_on.set()
        offsets: list[int] = []
        while len(offsets) < 2 * RECORDS - SOUGHT:
            message = consumer.poll(SECONDS)
            assert message is not None, offsets
            assert message.error() is None, message.error()
            offsets.append(message.offset())
        consumer.close()
    return offsets

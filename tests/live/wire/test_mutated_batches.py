"""Is a batch that no consumer can read ever stored? Bytes are changed before the CRC is made.

The oracle is librdkafka: whatever the broker takes it must read without an error. So must our own
consumer, and both must find the same offsets.
"""

import random
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.record_batch import HEADER_SIZE, compute_crc
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient

VERSION = 9
REFUSED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # it says that it is of a transaction
}
HEADER_FIELDS = (
    (21, 2),  # attributes
    (23, 4),  # last offset delta
    (27, 8),  # base timestamp
    (35, 8),  # max timestamp
    (57, 4),  # record count
)
AT_ONCE = 200
MOST_CHANGES = 3


def sound_batch(chance: random.Random) -> bytearray:
    records = [
        (
            1_700_000_000_000 + number,
            chance.choice((None, b"", b"key-%d" % number)),
            chance.choice((None, b"", chance.randbytes(chance.randrange(40)), b"a" * 60)),
            chance.choice(((), (("name", b"value"), ("none", None)))),
        )
        for number in range(chance.randrange(1, 8))
    ]
    return bytearray(encode_records(records, codec=chance.randrange(5)))


def mutated(batch: bytearray, chance: random.Random) -> bytearray:
    """Changed where records are, or what the header says of them; with a right length and CRC."""
    batch = bytearray(batch)
    for _ in range(chance.randrange(1, MOST_CHANGES + 1)):
        what = chance.randrange(7)
        position = chance.randrange(HEADER_SIZE, len(batch)) if len(batch) > HEADER_SIZE else 22
        if what == 0:
            batch[22] = batch[22] & ~7 | chance.randrange(5)
        elif what == 1 and len(batch) > HEADER_SIZE + 1:
            del batch[position]
        elif what == 2:
            batch.insert(position, chance.randrange(256))
        elif what == 3:
            batch[position] = chance.choice((0, 0x7F, 0x80, 0xFF))
        elif what == 4:
            start, size = chance.choice(HEADER_FIELDS)
            batch[start + chance.randrange(size)] ^= 1 << chance.randrange(8)
        else:
            batch[position] ^= 1 << chance.randrange(8)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")
    return batch


def produce(client: RawClient, topic: str, partition: int, batch: bytearray) -> int:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=bytes(batch))],
            )
        ],
    )
    answer = client.call(request, ProduceResponse, VERSION)
    return answer.responses[0].partition_responses[0].error_code


def read_to_the_end(servers: str, topic: str, partitions: int) -> tuple[Counter[int], list[str]]:
    """How many records librdkafka finds in each partition, and its errors."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "oracle",
            "check.crcs": True,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    found: Counter[int] = Counter()
    errors, left = [], set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while left:
            message = consumer.poll(60)  # consume() waits for as many as it may give
            assert message is not None, f"partitions {left} stand still"
            error = message.error()
            if error is None:
                found[message.partition()] += 1
            else:
                left.discard(message.partition())
                if error.code() != KafkaError._PARTITION_EOF:
                    errors.append(f"{message.partition()}: {error.str()}")
    finally:
        consumer.close()
    return found, errors


def read_by_ours(servers: str, topic: str, count: int) -> Counter[int]:
    found: Counter[int] = Counter()
    deadline = time.monotonic() + 60
    with bradbury.Consumer(topic, bootstrap=servers, auto_offset_reset="earliest") as consumer:
        while found.total() < count and time.monotonic() < deadline:
            more = consumer.poll(1_000).column("partition").to_pylist()
            if more:
                found.update(more)
                deadline = time.monotonic() + 60  # a busy machine is slow, and no reason to fail
    return found


def check(servers: str, topic: str, count: int, seed: int) -> None:
    chance = random.Random(seed)
    partitions = max(1, count // AT_ONCE)
    admin = AdminClient({"bootstrap.servers": servers})
    # The timestamps of some are years old: retention would take them between the two readers.
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result(60)
    taken = 0
    with RawClient(servers) as client:
        for number in range(count):
            good = sound_batch(chance)
            if number % 10 == 0:
                assert produce(client, topic, number % partitions, good) == 0
            code = produce(client, topic, number % partitions, mutated(good, chance))
            assert code == 0 or code in REFUSED, ErrorCode(code).name
            taken += code == 0
    assert 0 < taken < count, "neither all nor nothing"
    found, errors = read_to_the_end(servers, topic, partitions)
    assert errors == []
    assert read_by_ours(servers, topic, found.total()) == found
    # Shown with -s, for the table in docs/reliability.md.
    print(f"{count} mutated: {taken} taken, {found.total()} records read by both; no good refused")


def test_none_is_stored_that_a_consumer_cannot_read(servers: str) -> None:
    check(servers, "mutated", 1_000, seed=1)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_of_a_million_none_is_stored_that_a_consumer_cannot_read(servers: str, seed: int) -> None:
    check(servers, f"mutated-{seed}", 50_000, seed=100 + seed)

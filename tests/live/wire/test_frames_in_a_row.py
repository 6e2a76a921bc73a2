"""Long and short requests in any mixture, cut anywhere on their way: is each taken whole, in order?

The broker checks the CRC of each batch over the bytes that it got, so a byte out of place is seen.
"""

import random
import threading
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from tests.support.wire.raw_client import RawClient

SHORT, MIDDLE, LONG, HUGE = 100, 40_000, 700_000, 1_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with bradbury.local() as cluster:
        with bradbury.Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic("rows", 1)
        yield cluster.bootstrap_servers


def produce(chance: random.Random, size: int) -> ProduceRequest:
    records = [(1_700_000_000_000, None, chance.randbytes(size), ())]
    part = PartitionProduceData(index=0, records=bytes(encode_records(records)))
    topics = [TopicProduceData(name="rows", partition_data=[part])]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("long ones alone", [LONG] * 12),
        ("longer and longer", [SHORT, MIDDLE, 300_000, LONG, HUGE, LONG, 300_000, MIDDLE, SHORT]),
        ("short ones before and behind", [LONG, *[SHORT] * 9, LONG, *[SHORT] * 9, HUGE, MIDDLE]),
        ("some just as long as a buffer", [LONG, *range(261_900, 262_200, 25), LONG]),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_each_request_is_read_whole_and_in_order(
    servers: str, name: str, sizes: list[int], seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    with RawClient(servers) as client:
        frames = b"".join(bytes(client.frame(produce(chance, size), 9)) for size in sizes)

        def send() -> None:
            position = 0
            while position < len(frames):
                size = chance.choice([1, 3, 5, 4_000, 70_000, 262_144, 1_500_000])
                client.socket.sendall(frames[position : position + size])
                position += size

        sending = threading.Thread(target=send)
        sending.start()
        answers = [client.receive(ProduceResponse, 9) for _ in sizes]
        sending.join()
    parts = [answer.responses[0].partition_responses[0] for _, answer in answers]
    assert [number for number, _ in answers] == list(range(1, len(sizes) + 1))
    assert {part.error_code for part in parts} == {0}
    first = parts[0].base_offset
    assert [part.base_offset for part in parts] == list(range(first, first + len(sizes)))

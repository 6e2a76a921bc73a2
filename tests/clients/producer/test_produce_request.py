"""Is the hand-written Produce request what the schema's codec writes?"""

from hypothesis import given, strategies as st

from bradbury.clients.producer.produce_request import MAX_VERSION, encode_produce
from bradbury.protocol.codec import write_message
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

names = st.text(min_size=1, max_size=200)
partitions = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=300)), max_size=4)


@given(
    version=st.integers(3, MAX_VERSION),
    topics=st.dictionaries(names, partitions, max_size=4),
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, 2**31 - 1),
)
def test_the_buffers_together_are_the_codecs_bytes(
    version: int, topics: dict[str, list[tuple[int, bytes]]], acks: int, timeout_ms: int
) -> None:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index, data) for index, data in parts],
            )
            for name, parts in topics.items()
        ],
    )
    buffers = encode_produce(version, topics, acks=acks, timeout_ms=timeout_ms)
    assert b"".join(buffers) == write_message(request, version)


def test_record_batches_are_passed_on_and_not_copied() -> None:
    batch = memoryview(bytearray(1000))
    assert any(
        one is batch for one in encode_produce(9, {"t": [(0, batch)]}, acks=-1, timeout_ms=1)
    )

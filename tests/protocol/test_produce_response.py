"""Is the response that is written by hand the one that the generated classes write?"""

from uuid import UUID

from hypothesis import given, strategies as st

from bradbury.handlers.ports.produce_answer import ProducedBatch
from bradbury.handlers.records.produce_response import write_produced_batch
from bradbury.protocol.codec import write_message
from bradbury.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

INT64 = st.integers(-1, 2**63 - 1)


@given(
    version=st.integers(*ProduceResponse.VERSIONS),
    stored=st.builds(
        ProducedBatch,
        topic=st.text(max_size=249),
        topic_id=st.uuids(),
        partition=st.integers(0, 2**31 - 1),
        base_offset=INT64,
        log_append_time_ms=INT64,
        log_start_offset=INT64,
    ),
)
def test_it_is_what_the_generated_classes_write(version: int, stored: ProducedBatch) -> None:
    partition = PartitionProduceResponse(
        index=stored.partition,
        base_offset=stored.base_offset,
        log_append_time_ms=stored.log_append_time_ms,
        log_start_offset=stored.log_start_offset,
    )
    topic = TopicProduceResponse(
        name=stored.topic, topic_id=stored.topic_id, partition_responses=[partition]
    )
    expected = write_message(ProduceResponse(responses=[topic]), version)
    assert write_produced_batch(version, stored) == expected


def test_a_long_name_of_a_topic_has_a_length_of_two_bytes() -> None:
    stored = ProducedBatch("t" * 249, UUID(int=0), 0, 0, -1, 0)
    assert b"\xfa\x01" + b"t" * 249 in write_produced_batch(12, stored)

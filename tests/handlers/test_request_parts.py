"""Is a long request that is handled in parts the same request, and its answer one answer?"""

from typing import Any

from hypothesis import given, strategies as st

from bradbury.handlers.records import list_offsets
from bradbury.handlers.server.request_parts import is_long, join, split
from bradbury.handlers.server.table import APIS
from bradbury.handlers.topics import metadata
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bradbury.protocol.topic_partition import TopicPartitionPair
from tests.support.wire.sample_requests import Sample, sample_request

LIST_OFFSETS = list_offsets.API.parts
METADATA = metadata.API.parts
assert LIST_OFFSETS is not None and METADATA is not None


def asked(request: Any) -> list[TopicPartitionPair]:
    return [
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]


@given(st.lists(st.integers(0, 130), max_size=12))
def test_parts_are_the_request_in_order_none_too_large(counts: list[int]) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsTopic(
                name=f"t{number}",
                partitions=[ListOffsetsPartition(partition_index=index) for index in range(count)],
            )
            for number, count in enumerate(counts)
        ],
    )
    before = asked(request)
    parts = list(split(LIST_OFFSETS, request))
    assert [each for part in parts for each in asked(part)] == before
    assert asked(request) == before
    assert all(len(asked(part)) <= LIST_OFFSETS.size for part in parts)
    assert all(part.isolation_level == 1 for part in parts)
    assert is_long(LIST_OFFSETS, request) == (
        sum(counts) > LIST_OFFSETS.size or len(counts) > LIST_OFFSETS.size
    )
    whole = None
    for part in parts:
        answer = ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index)
                        for each in topic.partitions
                    ],
                )
                for topic in part.topics
            ]
        )
        whole = join(LIST_OFFSETS, whole, answer)
    if parts:
        assert asked(whole) == before
        assert [topic.name for topic in whole.topics] == [f"t{n}" for n in range(len(counts))]


def test_lists_without_topics_are_cut_anywhere() -> None:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(1001)]
    parts = list(split(METADATA, MetadataRequest(topics=topics, allow_auto_topic_creation=False)))
    assert [topic for part in parts for topic in part.topics] == topics
    assert {part.allow_auto_topic_creation for part in parts} == {False}
    assert not is_long(METADATA, MetadataRequest(topics=None))


def test_the_fields_named_in_the_table_exist_in_the_messages() -> None:
    for key, api in APIS.items():
        parts = api.parts
        if parts is None:
            continue
        request = sample_request(key, APIS[key].highest, Sample())
        things = getattr(request, parts.asked)
        if parts.asked_below is not None:
            assert isinstance(getattr(things[0], parts.asked_below), list)

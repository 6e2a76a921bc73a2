"""Topics by single requests: made, and produced to, with everything but the point left out."""

import itertools

from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.tests.support.wire.raw_client import RawClient

_names = itertools.count(1)


def make_topic(client: RawClient, partitions: int = 1, **configs: str) -> str:
    """A new one; settings with underscores for dots."""
    name = f"raw-{next(_names)}"
    settings = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    answer = client.call(request, CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    return name


def produce_request(
    topic: str, records: bytes, *, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


def produce(
    client: RawClient,
    topic: str,
    records: bytes,
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
) -> PartitionProduceResponse:
    request = produce_request(topic, records, acks=acks, partition=partition)
    answer = client.call(request, ProduceResponse, version)
    return answer.responses[0].partition_responses[0]

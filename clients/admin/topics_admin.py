"""CreateTopics, DeleteTopics and CreatePartitions, as steps for Admin.

A broker that may have made a change whose answer was lost is not asked again: it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ClusterAuthorizationFailed,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    error_for,
)
from ...protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ...protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient

EXISTS_REMEDY: Final = (
    "catch TopicAlreadyExists to use it as it is; Admin.delete_topic removes it with its records"
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. partitions, replication_factor: -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


def create_topics(
    client: ClusterClient, topics: Sequence[NewTopic], *, timeout_ms: int
) -> Steps[None]:
    """Raises the first refusal; the other topics are made."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=str(value))
                    for key, value in (topic.configs or {}).items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
    )
    response = yield from client.send_to_any(request, CreateTopicsResponse, repeatable=False)
    for result in response.topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise TopicAlreadyExists(f"topic {result.name!r} already exists; {EXISTS_REMEDY}")
        if result.error_code:
            raise error_for(result.error_code, _text(result.name, result.error_message))


def ensure_topic(client: ClusterClient, topic: NewTopic, *, timeout_ms: int) -> Steps[None]:
    """Create `topic` unless it is there.

    Whether it is there is asked once: to wait for a topic that nobody has created yet would cost
    its first user those seconds (UNKNOWN_TOPIC_GRACE_MS). A broker that does not know it yet is
    answered by the controller, which knows.

    Raises:
        KafkaError: it is not there and cannot be created, or may not be described.
    """
    try:
        yield from client.topic(topic.name, grace_ms=0)
        return
    except UnknownTopicOrPartition:
        pass
    try:
        yield from create_topics(client, [topic], timeout_ms=timeout_ms)
    except TopicAlreadyExists:
        pass
    except (TopicAuthorizationFailed, ClusterAuthorizationFailed) as refused:
        try:
            yield from client.topic(topic.name)  # somebody else may have just created it
        except UnknownTopicOrPartition:
            raise refused from None


def delete_topics(client: ClusterClient, names: Sequence[str], *, timeout_ms: int) -> Steps[None]:
    """Raises the first refusal; the other topics are gone."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=timeout_ms,
    )
    response = yield from client.send_to_any(request, DeleteTopicsResponse, repeatable=False)
    for result in response.responses:
        if result.error_code:
            raise error_for(result.error_code, _text(result.name or "", result.error_message))


def create_partitions(
    client: ClusterClient,
    topic: str,
    total: int,
    *,
    assignments: Iterable[Iterable[int]] | None,
    validate_only: bool,
    timeout_ms: int,
) -> Steps[None]:
    """See Admin.create_partitions."""
    assigned = None
    if assignments is not None:
        assigned = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=total, assignments=assigned)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    response = yield from client.send_to_any(request, CreatePartitionsResponse, repeatable=False)
    for result in response.results:
        if result.error_code:
            raise error_for(result.error_code, result.error_message)


def _text(name: str, message: str | None) -> str | None:
    """What the broker says, and of which topic: once, where its message names the topic already."""
    return f"topic {name!r}: {message}" if message and repr(name) not in message else message

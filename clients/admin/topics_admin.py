"""CreateTopics, DeleteTopics and CreatePartitions, as steps for Admin.

A request whose answer was lost is not retried, as the change may have been made: it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
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
    """Topic to create. partitions, replication_factor: -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


def create_topics(
    client: ClusterClient, topics: Sequence[NewTopic], *, timeout_ms: int
) -> Steps[None]:
    """Create topics. The first refusal is raised; the other topics are created."""
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
    """Create `topic` unless it exists.

    Its metadata is requested once: retrying for a topic that does not exist would take
    UNKNOWN_TOPIC_GRACE_MS. If a broker does not know the topic yet, the controller refuses to
    create it again.

    Raises:
        KafkaError: it does not exist and cannot be created, or may not be described.
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
            yield from client.topic(topic.name)  # another client may have just created it
        except UnknownTopicOrPartition:
            raise refused from None


def delete_topics(client: ClusterClient, names: Sequence[str], *, timeout_ms: int) -> Steps[None]:
    """Delete topics. The first refusal is raised; the other topics are deleted."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=timeout_ms,
    )
    response = yield from client.send_to_any(request, DeleteTopicsResponse, repeatable=False)
    for result in response.responses:
        if result.error_code:
            raise refused_topic(result.error_code, result.name or "", result.error_message)


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
            raise refused_topic(result.error_code, topic, result.error_message)


def refused_topic(code: int, name: str, message: str | None) -> KafkaError:
    """The error of a request for this topic; for a missing topic, with the remedy."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        message = f"topic {name!r} does not exist; `bradbury topics list` shows those that do"
    return error_for(code, _text(name, message))


def _text(name: str, message: str | None) -> str | None:
    """Prefix a broker's message with the topic, unless the message names it already."""
    return f"topic {name!r}: {message}" if message and repr(name) not in message else message

"""Rights to read the committed offsets of groups: DESCRIBE of the group, and of each topic.

Offsets of a topic that may not be described are left out of an answer about all topics.
Source: KafkaApis.fetchOffsetsForGroup, fetchAllOffsetsForGroup.
"""

from __future__ import annotations

from typing import Any, Final

from ...protocol.error_code import ErrorCode
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Rights
from ..ports.context import RequestContext
from .guarding import Handle, merged, need, then, without

DESCRIBE = AclOperation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_ERROR_CODE: Final = 2
NO_OFFSET: Final = -1


def _guard(
    request: OffsetFetchRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if context.api_version < FIRST_WITH_GROUPS:
        return _guard_one(request, context, rights, handle)
    refused: dict[int, OffsetFetchResponseGroup] = {}
    kept, filters = [], []
    for place, group in enumerate(request.groups):
        if not rights.may(DESCRIBE, GROUP, group.group_id):
            refused[place] = OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=GROUP_REFUSED
            )
            continue
        topics = _Topics(group.topics, rights)
        kept.append(without_topics(group, topics) if topics.refused else group)
        filters.append(topics)

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group, topics in zip(response.groups, filters, strict=True):
            if not group.error_code:
                group.topics = topics.complete(group.topics, _group_refusal)
        response.groups = merged(request.groups, refused, response.groups)
        return response

    if not kept:
        return OffsetFetchResponse(groups=list(refused.values()))
    return then(handle(without(request, "groups", kept), context), finish)


def _guard_one(
    request: OffsetFetchRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if not rights.may(DESCRIBE, GROUP, request.group_id):
        if context.api_version < FIRST_WITH_ERROR_CODE:
            return OffsetFetchResponse(
                topics=[_refusal(topic, GROUP_REFUSED) for topic in request.topics or ()]
            )
        return OffsetFetchResponse(error_code=GROUP_REFUSED)
    topics = _Topics(request.topics, rights)

    def finish(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not response.error_code:
            response.topics = topics.complete(
                response.topics, lambda topic: _refusal(topic, TOPIC_REFUSED)
            )
        return response

    return then(
        handle(without_topics(request, topics) if topics.refused else request, context), finish
    )


class _Topics:
    """Topics whose offsets are asked for, of one group; None: all topics."""

    def __init__(self, asked: list[Any] | None, rights: Rights) -> None:
        self._asked = asked
        self._rights = rights
        self.refused = [
            topic for topic in asked or () if not rights.may(DESCRIBE, TOPIC, topic.name)
        ]

    @property
    def kept(self) -> list[Any] | None:
        if self._asked is None:
            return None
        hidden = {id(topic) for topic in self.refused}
        return [topic for topic in self._asked if id(topic) not in hidden]

    def complete(self, answers: list[Any], refuse: Any) -> list[Any]:
        if self._asked is None:
            return [
                topic
                for topic in answers
                if self._rights.may(DESCRIBE, TOPIC, topic.name, asks=True)
            ]
        return answers + [refuse(topic) for topic in self.refused]


def without_topics(asked: Any, topics: _Topics) -> Any:
    return without(asked, "topics", topics.kept or [])


def _refusal(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=NO_OFFSET, error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _group_refusal(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, error_code=TOPIC_REFUSED
            )
            for index in topic.partition_indexes
        ],
    )


OFFSET_FETCH = Access(
    (need(DESCRIBE, GROUP), need(DESCRIBE, TOPIC, "left out where all are asked for")), _guard
)

"""AlterReplicaLogDirs (API key 34): move replicas between the log directories of the broker asked.

The response is sent when the moves have begun; DescribeLogDirs shows their lag. A partition named
under two directories is moved to the last one.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.errors import InvalidTopicException, KafkaError, UnknownTopicOrPartition
from ...protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ...protocol.topic_name import MAX_LENGTH
from ..authorization.cluster_access import ALTER_REPLICA_LOG_DIRS
from ..ports.api import api
from ..ports.context import RequestContext


async def handle(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    paths = {
        (topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (topic, partition), path in paths.items():
        code = ErrorCode.NONE
        try:
            if len(topic) > MAX_LENGTH:
                raise InvalidTopicException(
                    f"a topic name has at most {MAX_LENGTH} characters, not {len(topic)}"
                )
            if context.node.image.partition(topic, partition) is None:
                raise UnknownTopicOrPartition(f"there is no {topic}-{partition}")
            await context.node.partitions.log_dirs.move(topic, partition, path)
        except KafkaError as error:
            code = error.code
        result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


API = api(1, 2, AlterReplicaLogDirsRequest, handle, access=ALTER_REPLICA_LOG_DIRS)

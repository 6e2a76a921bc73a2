"""DescribeLogDirs (API key 35): the log directories of the answering broker, with their logs.

An offline directory is listed with KAFKA_STORAGE_ERROR and without partitions. A directory without
any of the partitions asked for is listed, too, since v4 has the sizes of its disk.
"""

from __future__ import annotations

from ...protocol.error_code import ErrorCode
from ...protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...protocol.topic_partition import TopicPartitionPair
from ..authorization.cluster_access import DESCRIBE_LOG_DIRS
from ..ports.api import api
from ..ports.context import RequestContext
from ..ports.log_dirs_port import LogDirState

RequestedPartitions = set[TopicPartitionPair]


async def handle(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    wanted: RequestedPartitions | None = None
    if request.topics is not None:
        wanted = {
            (topic.topic, partition) for topic in request.topics for partition in topic.partitions
        }
    states = await context.node.partitions.log_dirs.describe()
    return DescribeLogDirsResponse(results=[_result(state, wanted) for state in states])


def _result(state: LogDirState, wanted: RequestedPartitions | None) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in state.logs:
        if wanted is not None and (log.topic, log.partition) not in wanted:
            continue
        topic = topics.setdefault(log.topic, DescribeLogDirsTopic(name=log.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition,
                partition_size=log.size,
                offset_lag=log.offset_lag,
                is_future_key=log.is_future,
            )
        )
    code = ErrorCode.NONE if state.is_online else ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResult(
        error_code=code,
        log_dir=state.path,
        topics=list(topics.values()),
        total_bytes=state.total_bytes,
        usable_bytes=state.usable_bytes,
    )


API = api(1, 4, DescribeLogDirsRequest, handle, access=DESCRIBE_LOG_DIRS)

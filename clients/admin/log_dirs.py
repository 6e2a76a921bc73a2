"""DescribeLogDirs of every broker: log directories, their partitions and disk space."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...protocol.errors import error_for
from ...protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class LogDirPartition:
    """Replica in a log directory.

    size: bytes of its segments. offset_lag: offsets it is behind; 0 for a leader.
    is_future: whether it is being moved here from another directory of the same broker.
    """

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """Log directory of a broker.

    error_code: 0, or KAFKA_STORAGE_ERROR if it is offline; then nothing else is known.
    total_bytes, usable_bytes: size and free space of its disk; -1 if the broker reports none.
    """

    broker: int
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]


def describe_log_dirs(
    client: ClusterClient, topics: Iterable[str] | None = None
) -> Steps[list[LogDir]]:
    """Log directories of every live broker, sorted, with the partitions of `topics`, or all.

    Raises:
        UnsupportedVersion: a broker does not support DescribeLogDirs.
        KafkaError: a broker refuses.
    """
    wanted = None
    if topics is not None:
        wanted = []
        names = list(topics)
        client.want(names)
        yield from wait(client.refresh())  # partitions may have been added since the last refresh
        for name in names:
            view = yield from client.topic(name)
            numbers = [one.partition for one in view.partitions]
            wanted.append(DescribableLogDirTopic(topic=name, partitions=numbers))
    cluster = yield from wait(client.refresh())
    found: list[LogDir] = []
    for node_id in sorted(cluster.brokers):
        request = DescribeLogDirsRequest(topics=wanted)
        address = cluster.brokers[node_id].address
        response = yield from wait(client.send(address, request, DescribeLogDirsResponse))
        if response.error_code:
            raise error_for(response.error_code, f"broker {node_id}")
        found += [
            LogDir(
                node_id,
                result.log_dir,
                result.error_code,
                result.total_bytes,
                result.usable_bytes,
                tuple(
                    LogDirPartition(
                        topic.name,
                        one.partition_index,
                        one.partition_size,
                        one.offset_lag,
                        one.is_future_key,
                    )
                    for topic in sorted(result.topics, key=lambda topic: topic.name)
                    for one in sorted(topic.partitions, key=lambda one: one.partition_index)
                ),
            )
            for result in sorted(response.results, key=lambda result: result.log_dir)
        ]
    return found

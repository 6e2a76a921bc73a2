"""`bradbury.read_topic`: the records between two offsets of topics, as a Ray Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import ray

from ...clients.admin.log_dirs import describe_log_dirs
from ...clients.wire.cluster_client import ClusterClient
from ...discovery.bootstrap import find_servers
from ...discovery.state_file import default_namespace
from ...protocol.errors import KafkaError
from ..ranges.fetch_options import FetchOptions
from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.reading_client import reading_client
from ..ranges.topic_columns import SCHEMA, check_columns
from ..ranges.topic_offsets import Offset, resolve_ranges
from ..ranges.value_decoder import Decoder, ValueDecoder
from .ray_data_missing import require_ray_data

if TYPE_CHECKING:
    from ray.data import Dataset

LEAST_TASK_BYTES: Final = 8 * 1024 * 1024
"""A task costs Ray Data some 10 ms; records of so many bytes are read in about as long."""
TASKS_PER_CPU: Final = 2
USUAL_RECORD_BYTES: Final = 1024
"""Where brokers do not say how large their logs are."""
IN_MEMORY_RECORD_BYTES: Final = 48
"""Of the columns beside key and value, without headers."""
_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


def read_topic(
    topics: str | Sequence[str],
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    trigger: str = "once",
    start_offset: Offset = "earliest",
    end_offset: Offset = "latest",
    columns: Sequence[str] | None = None,
    value_decoder: str | Decoder = "raw",
    value_schema: Any = None,
    isolation_level: str = "read_committed",
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 120_000,
    override_num_blocks: int | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    memory: float | None = None,
    concurrency: int | None = None,
    **remote_args: Any,
) -> Dataset:
    """Records of topics as a Dataset, with the arguments and columns of `ray.data.read_kafka`.

        ds = bradbury.read_topic("flights", columns=["partition", "offset", "value"])
        ds.filter(expr=(col("offset") >= 1500)).count()

    Starts and ends are looked up here and now; the Dataset has the same records however often it is
    executed. Partitions are read in several tasks, whole batches at a time.

    Args:
        topics: one name, or several.
        bootstrap_servers: None: found as all clients find them.
        trigger: "once"; there is no other yet.
        start_offset, end_offset: an offset for all partitions, a datetime (UTC without a zone),
            "earliest" or "latest", or {topic: {partition: one of these}}. The end is exclusive.
        columns: which, of offset, key, value, topic, partition, timestamp (ms), timestamp_type
            (1 CreateTime, 2 LogAppendTime), headers. The others are never built.
        value_decoder: "raw" (bytes), "utf8", "json" (a struct with the fields of `value_schema`),
            "avro" (`value_schema`: a schema, needs fastavro), "protobuf" (`value_schema`: the class
            that protoc has generated), "arrow" (each value is an Arrow IPC stream, whose columns
            take the value's place), or a function of a pyarrow binary array that returns an array
            of the same length.
        isolation_level: "read_committed", as librdkafka has it, or "read_uncommitted".
        fail_on_data_loss: False: records that retention has taken meanwhile are passed over.
        poll_timeout_ms: a task fails after so long without a record.
        override_num_blocks: how many tasks read; by default by size and CPUs, at least one for each
            partition.
        num_cpus, num_gpus, memory, concurrency, remote_args: of the tasks; see
            `ray.data.read_datasource`.

    Raises:
        ValueError: an argument cannot be.
        UnknownTopicOrPartition: a topic does not exist.
        DataLoss: the log begins above a start.
        ConnectionFailed: there is no cluster.
        RayDataMissing: the extra [data] is not installed.
    """
    require_ray_data()
    import ray.data

    from .topic_datasource import TopicDatasource, TopicRead

    if trigger != "once":
        raise ValueError(f"trigger is {trigger!r}; the only one there is yet is 'once'")
    if isolation_level not in _ISOLATION_LEVELS:
        raise ValueError(
            f"isolation_level is {isolation_level!r}; use {' or '.join(_ISOLATION_LEVELS)}"
        )
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"topics is {topics!r}; name at least one, and each once")
    chosen = SCHEMA.names if columns is None else check_columns(columns)
    decoder = ValueDecoder(value_decoder, value_schema)
    if decoder.repeats_rows and "value" not in chosen:
        raise ValueError("value_decoder='arrow' needs the column value")
    if bootstrap_servers is not None and not isinstance(bootstrap_servers, str):
        bootstrap_servers = ",".join(bootstrap_servers)
    bootstrap = find_servers(bootstrap_servers, default_namespace())
    limits = ReadLimits(
        fetch=FetchOptions(
            isolation_level=_ISOLATION_LEVELS[isolation_level], client_id="bradbury-ray-data"
        ),
        poll_timeout_ms=poll_timeout_ms,
        poll_timeout_name="poll_timeout_ms",
        fail_on_data_loss=fail_on_data_loss,
        fail_on_data_loss_name="fail_on_data_loss",
    )
    client = reading_client(bootstrap, limits.fetch)
    ranges = resolve_ranges(client, names, start_offset, end_offset, limits)
    record_bytes = _record_bytes(client, names, ranges)
    read = TopicRead(bootstrap=bootstrap, limits=limits, decoder=decoder, record_bytes=record_bytes)
    dataset: Dataset = ray.data.read_datasource(
        TopicDatasource(read, ranges, chosen),
        override_num_blocks=override_num_blocks or _task_count(ranges, record_bytes),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        memory=memory,
        concurrency=concurrency,
        **remote_args,
    )
    return dataset


def _record_bytes(
    client: ClusterClient, topics: Sequence[str], ranges: Sequence[PartitionRange]
) -> float:
    """In memory; a guess from the sizes of the logs, which may be compressed."""
    try:
        directories = client.run(describe_log_dirs(client, topics), 30_000)
    except KafkaError:  # not allowed, or not known, there
        return USUAL_RECORD_BYTES
    sizes: dict[tuple[str, int], int] = {}
    for directory in directories:
        for one in directory.partitions:
            key = (one.topic, one.partition)
            sizes[key] = max(sizes.get(key, 0), one.size)
    ends: Mapping[tuple[str, int], int] = {(one.topic, one.partition): one.end for one in ranges}
    records = sum(ends.values())
    stored = sum(sizes.get(key, 0) for key in ends)
    return IN_MEMORY_RECORD_BYTES + (stored / records if records else 0)


def _task_count(ranges: Sequence[PartitionRange], record_bytes: float) -> int:
    total = sum(one.size for one in ranges) * record_bytes
    from ray.data import DataContext

    resources = ray.cluster_resources() if ray.is_initialized() else {}  # type: ignore[no-untyped-call]
    cpus = int(resources.get("CPU", 1))
    largest = DataContext.get_current().target_max_block_size or 128 * 1024 * 1024
    wanted = max(total / largest, min(TASKS_PER_CPU * cpus, total / LEAST_TASK_BYTES))
    return max(1, len(ranges), round(wanted))

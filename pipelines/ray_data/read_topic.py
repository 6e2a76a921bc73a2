"""`bradbury.read_topic`: the records between two offsets of topics, as a Ray Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import ray

from ...clients.admin.log_dirs import describe_log_dirs
from ...clients.security.security_options import NAMES, given_security, security_of
from ...clients.wire.cluster_client import ClusterClient
from ...discovery.ray_connection import join_for_clients
from ...protocol.errors import KafkaError
from ..ranges.partition_range import PartitionRange
from ..ranges.read_arguments import read_limits, servers_of, topic_names
from ..ranges.reading_client import reading_client
from ..ranges.topic_columns import SCHEMA, check_columns
from ..ranges.topic_offsets import Offset, resolve_ranges
from ..ranges.value_decoder import Decoder, ValueDecoder
from .ray_data_missing import require_ray_data
from .task_placement import ANYWHERE, living_ray_nodes, placed, ranges_by_node

if TYPE_CHECKING:
    from ray.data import Dataset

LEAST_TASK_BYTES: Final = 8 * 1024 * 1024
"""A task costs Ray Data some 10 ms; records of so many bytes are read in about as long."""
TASKS_PER_CPU: Final = 2
CONTINUOUS_TASK_BYTES: Final = 32 * 1024 * 1024
"""At most, of one task of a continuous Dataset: its block is what is committed at once."""
POLL_INTERVAL_MS: Final = 50
USUAL_RECORD_BYTES: Final = 1024
"""Where brokers do not say how large their logs are."""
IN_MEMORY_RECORD_BYTES: Final = 48
"""Of the columns beside key and value, without headers."""


def read_topic(
    topics: str | Sequence[str],
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    trigger: str = "once",
    start_offset: Offset = "earliest",
    end_offset: Offset = "latest",
    group_id: str | None = None,
    columns: Sequence[str] | None = None,
    value_decoder: str | Decoder = "raw",
    value_schema: Any = None,
    schema_registry: str | None = None,
    isolation_level: str = "read_committed",
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 120_000,
    local_files: bool = False,
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

        ds = bradbury.read_topic("flights", trigger="continuous", group_id="delays")
        bradbury.write_topic(ds.map_batches(delays), "delays", value="delay")

    A continuous Dataset has no end: it goes on with what is produced, and Ray Data executes it as
    any other one, with its actors and its back-pressure. It begins at the offsets that the group
    has committed; `write_topic` and `committed_batches` commit them.

    Args:
        topics: one name, or several.
        bootstrap_servers: None: found as all clients find them.
        trigger: "once", or "continuous".
        start_offset, end_offset: an offset for all partitions, a datetime (UTC without a zone),
            "earliest" or "latest", or {topic: {partition: one of these}}. The end is exclusive.
        group_id: with trigger="continuous", the group whose committed offsets say where to begin;
            where it has none, `start_offset` does.
        columns: which, of offset, key, value, topic, partition, timestamp (ms), timestamp_type
            (1 CreateTime, 2 LogAppendTime), headers. The others are never built.
        value_decoder: "raw" (bytes), "utf8", "json" (a struct with the fields of `value_schema`),
            "avro" (`value_schema`: a schema, needs fastavro), "protobuf" (`value_schema`: the class
            that protoc has generated), "arrow" (each value is an Arrow IPC stream, whose columns
            take the value's place), or a function of a pyarrow binary array that returns an array
            of the same length.
        schema_registry: http://HOST:PORT of a schema registry: values of "json", "avro" and
            "protobuf" begin with the ids of schemas that it has. `value_schema` is what they
            become; without it, it is the latest of the subject TOPIC-value now (docs/schemas.md).
        isolation_level: "read_committed", as librdkafka has it, or "read_uncommitted".
        fail_on_data_loss: False: records that retention has taken meanwhile are passed over.
        poll_timeout_ms: a task fails after so long without a record.
        local_files: where a task runs on the machine of a partition's leader and may read its
            files, read those instead of asking the broker: two to four times as fast. In a Ray
            cluster of several nodes tasks are placed there while it has CPUs free, if `concurrency`
            and the arguments of the tasks leave it open.
        override_num_blocks: how many tasks read; by default by size and CPUs, at least one for each
            partition.
        num_cpus, num_gpus, memory, concurrency, remote_args: of the tasks; see
            `ray.data.read_datasource`. Among them may be security_protocol, ssl_* and sasl_* (see
            SecurityOptions), which the tasks are given, too; without any, BRADBURY_CLIENT_CONFIG
            in the environment of each of them counts.

    Raises:
        ValueError, InvalidConfig: an argument cannot be.
        UnknownTopicOrPartition: a topic does not exist.
        DataLoss: the log begins above a start.
        ConnectionFailed: there is no cluster; AuthenticationFailed: none that lets this client in.
        NotInRegistry, RegistryFailed: the schema registry has no such schema; it cannot be asked.
        RayDataMissing: the extra [data] is not installed.
    """
    require_ray_data()
    import ray.data

    from .continuous_read import ContinuousTopics, continuous_dataset
    from .topic_datasource import TopicDatasource, TopicRead
    from .topic_follower import Followed

    _check_trigger(trigger, end_offset, group_id, override_num_blocks)
    limits = read_limits(
        isolation_level,
        "bradbury-ray-data",
        poll_timeout_ms=poll_timeout_ms,
        fail_on_data_loss=fail_on_data_loss,
        local_files=local_files,
        security=given_security(security_of(remote_args)),
    )
    remote_args = {name: one for name, one in remote_args.items() if name not in NAMES}
    names = topic_names(topics)
    chosen = SCHEMA.names if columns is None else check_columns(columns)
    decoder = ValueDecoder(value_decoder, value_schema, registry=schema_registry, topics=names)
    if decoder.repeats_rows and "value" not in chosen:
        raise ValueError("value_decoder='arrow' needs the column value")
    bootstrap = servers_of(bootstrap_servers)
    # Where the process is in no Ray, Ray Data would start one beside that of the cluster.
    join_for_clients(bootstrap if bootstrap_servers else None, None)
    client = reading_client(bootstrap, limits.fetch)
    ranges = resolve_ranges(client, names, start_offset, end_offset, limits)
    record_bytes = _record_bytes(client, names, ranges)
    read = TopicRead(bootstrap=bootstrap, limits=limits, decoder=decoder, record_bytes=record_bytes)
    if trigger == "continuous":
        if not ray.is_initialized():
            ray.init()  # as Ray Data does where it reads
        followed = Followed(
            bootstrap=bootstrap,
            topics=tuple(names),
            limits=limits,
            start_offset=start_offset,
            group_id=group_id,
            most_records=max(1, round(CONTINUOUS_TASK_BYTES / record_bytes)),
            poll_interval_ms=POLL_INTERVAL_MS,
        )
        resources = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory}
        given = {name: value for name, value in resources.items() if value is not None}
        ray_remote_args = {"scheduling_strategy": "SPREAD"} | remote_args | given
        ray_remote_args |= ray_remote_args.pop("ray_remote_args", None) or {}
        topics_read = ContinuousTopics(read=read, columns=tuple(chosen), followed=followed)
        return continuous_dataset(topics_read, ray_remote_args, concurrency)
    tasks = override_num_blocks or _task_count(ranges, record_bytes)
    places = {ANYWHERE: ranges}
    if local_files and concurrency is None and len(nodes := living_ray_nodes()) > 1:
        places = ranges_by_node(client.view, ranges, nodes) or places
    total = sum(one.size for one in ranges)
    datasets: list[Dataset] = [
        ray.data.read_datasource(
            TopicDatasource(read, here, chosen),
            override_num_blocks=max(
                len(here), round(tasks * sum(one.size for one in here) / max(1, total))
            )
            if len(places) > 1
            else tasks,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            memory=memory,
            concurrency=concurrency,
            **placed(remote_args, node_id),
        )
        for node_id, here in places.items()
    ]
    return datasets[0].union(*datasets[1:]) if len(datasets) > 1 else datasets[0]


def _check_trigger(
    trigger: str, end_offset: Offset, group_id: str | None, override_num_blocks: int | None
) -> None:
    if trigger not in ("once", "continuous"):
        raise ValueError(f"trigger is {trigger!r}; use 'once' or 'continuous'")
    if trigger == "once" and group_id is not None:
        raise ValueError("group_id is for trigger='continuous'; a Dataset with an end has no group")
    if trigger == "continuous":
        if end_offset != "latest":
            raise ValueError("trigger='continuous' has no end; leave end_offset out")
        if override_num_blocks is not None:
            raise ValueError(
                "trigger='continuous' has a task for what has come, not so many; "
                "leave override_num_blocks out, and use concurrency"
            )


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

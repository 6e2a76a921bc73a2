"""`read_local`: a batch read of topics whose tasks prefer the executors where the records are.

    rows = read_local(spark, "flights", schema="value binary")

Spark's Python data sources have no preferred locations for tasks. RDDs have: here each row is the
ranges of one task, with the host of their leader as location, and `mapInArrow` reads their records.
On that host a task reads the leader's segment files (localFiles) instead of fetching.

Invariants:
    All ranges of a task have the same leader.
    Locations are not guaranteed: if the executors of a host stay busy for longer than
    spark.locality.wait, or it has none, another executor reads, from the broker.

Not here: streams, which cannot use an RDD; filter pushdown, which Spark has for sources only.
"""

from __future__ import annotations

import json
import math
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...clients.wire.cluster_view import ClusterView
from ..ranges.partition_range import PartitionRange
from ..ranges.reading_client import reading_client
from .options.option_table import lowered
from .options.spark_options import ReadOptions
from .reading.offsets import plan_tasks
from .session import registered_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_RANGES: Final = "ranges"
_NO_HOST: Final = ""

Task = tuple[str, tuple[PartitionRange, ...]]
"""Host of the leader, or _NO_HOST, and the ranges that one task reads."""


def read_local(
    spark: SparkSession,
    topics: str | None = None,
    *,
    schema: StructType | str | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """The records of topics, as of `spark.read.format("bradbury")`, read near their leaders.

    The ranges, and the leaders, are those at the time of the call. Filters of the DataFrame do not
    narrow what is read: set startingOffsets, startingTimestamp and so on.

    Args:
        spark: a session with format("bradbury"), not one of Spark Connect.
        topics: a name, or several with commas; None: `options` has subscribe, subscribePattern or
            assign.
        schema: columns to read, a StructType or DDL; None: all.
        options: of a batch read (docs/spark.md). localFiles is true by default here.

    Raises:
        ValueError: an option is invalid, or the session is one of Spark Connect.
        UnknownTopicOrPartition, DataLoss, ConnectionFailed: as of the source.
    """
    from pyspark.sql import SparkSession as ClassicSession
    from pyspark.sql.types import StructType, _parse_datatype_string

    from .reading.batch_query import BatchQueryReader
    from .tasks.arrow import check_projection, row_schema

    if not isinstance(spark, ClassicSession) or not hasattr(spark, "_jsparkSession"):
        raise ValueError(
            "read_local needs a classic Spark session, whose RDDs say where tasks run; with Spark "
            'Connect use spark.read.format("bradbury")'
        )
    given = {"localfiles": "true", **lowered({k: _text(v) for k, v in (options or {}).items()})}
    if topics is not None:
        given["subscribe"] = topics
    read = registered_source()(given).read_options(streaming=False)
    wanted: Any = schema
    if wanted is None:
        wanted = row_schema(include_headers=read.include_headers, value_decoder=read.value_decoder)
    if isinstance(wanted, str):
        wanted = _parse_datatype_string(wanted)
    if not isinstance(wanted, StructType):
        raise ValueError(  # noqa: TRY004 -- a value of the user's
            f"schema={schema!r} has no columns; name some, 'key binary, value binary'"
        )
    check_projection(wanted, read.value_decoder)
    ranges = BatchQueryReader(wanted, read).ranges()
    view = reading_client(read.bootstrap, read.fetch).view
    tasks = tasks_by_leader(ranges, view, read)
    return _placed(spark, tasks).mapInArrow(
        lambda batches: rows_of_tasks(wanted, read, batches), wanted
    )


def tasks_by_leader(
    ranges: Sequence[PartitionRange], view: ClusterView, options: ReadOptions
) -> list[Task]:
    """Ranges of each task, all of one leader, and its host. minPartitions is shared by size."""
    by_host: defaultdict[str, list[PartitionRange]] = defaultdict(list)
    for one in ranges:
        leader = view.leader(one.topic, one.partition)
        by_host[_NO_HOST if leader is None else leader.host].append(one)
    total = sum(one.size for one in ranges)
    tasks: list[Task] = []
    for host, there in by_host.items():
        least = options.min_partitions
        if least is not None:
            least = max(1, math.ceil(least * sum(one.size for one in there) / total))
        tasks += [
            (host, task)
            for task in plan_tasks(
                there,
                min_partitions=least,
                max_records=options.max_records_per_partition,
                pack_rows=options.batch_rows,
            )
        ]
    return tasks


def rows_of_tasks(
    schema: StructType, options: ReadOptions, batches: Iterator[Any]
) -> Iterator[Any]:
    """Records of the ranges in `batches`. Runs in an executor's Python worker."""
    from .reading.batch_query import TaskRanges, read_ranges

    for batch in batches:
        for text in batch.column(_RANGES).to_pylist():
            ranges = tuple(PartitionRange(*one) for one in json.loads(text))
            yield from read_ranges(schema, options, TaskRanges(ranges))


def _placed(spark: SparkSession, tasks: Sequence[Task]) -> DataFrame:
    """A row for each task, with its ranges, in a partition that prefers the host of the task."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField(_RANGES, StringType())])
    if not tasks:
        return spark.createDataFrame([], schema)
    session: Any = spark
    jvm, context = session._jvm, session.sparkContext
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    hosts = {host: to_seq(_java_list(jvm, _names_of(host))) for host in {host for host, _ in tasks}}
    rows = jvm.java.util.ArrayList()
    for host, ranges in tasks:
        columns = context._gateway.new_array(jvm.java.lang.Object, 1)
        columns[0] = json.dumps(ranges)
        row = jvm.org.apache.spark.sql.RowFactory.create(columns)
        rows.add(jvm.scala.Tuple2(row, hosts[host]))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.Row"))
    java_session = session._jsparkSession
    placed = java_session.createDataFrame(
        context._jsc.sc().makeRDD(to_seq(rows), tag).toJavaRDD(),
        java_session.parseDataType(schema.json()),
    )
    return DataFrame(placed, session)


def _names_of(host: str) -> list[str]:
    """Names of this host by which Spark may know an executor: on RayDP these are addresses."""
    if host == _NO_HOST:
        return []
    names = [host]
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            names.append(str(address[0]))
    return list(dict.fromkeys(names))


def _java_list(jvm: Any, texts: Sequence[str]) -> Any:
    found = jvm.java.util.ArrayList()
    for text in texts:
        found.add(text)
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Do Ray Datasets have what is in topics, as ray.data.read_kafka gives it?"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray.data
from ray.data._internal.datasource.kafka_datasource import KAFKA_MSG_SCHEMA
from ray.data.expressions import col

import bradbury
from bradbury.pipelines.ranges.local_segments import local_directories
from bradbury.pipelines.ranges.partition_range import DataLoss, PartitionRange
from bradbury.pipelines.ranges.read_arguments import read_limits
from bradbury.pipelines.ranges.reading_client import reading_client
from bradbury.protocol.errors import UnknownTopicOrPartition

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PARTITIONS = 4
ROWS = 1_000
"""In each partition; that of offset i is `number i`, of the time 1,000 * i."""
BEGIN_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    yield


@pytest.fixture
def topic(cluster: bradbury.Cluster) -> str:
    name = f"read-topic-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def filled(topic: str, cluster: bradbury.Cluster) -> str:
    offsets = np.arange(ROWS)
    table = pa.table(
        {
            "key": pa.array([b"%d" % (i % 7) if i % 7 else None for i in offsets], pa.binary()),
            "value": pa.array([b"number %d" % i for i in offsets], pa.binary()),
            "timestamp": pa.array(BEGIN_MS + 1_000 * offsets, pa.int64()),
        }
    )
    with cluster.admin() as admin:
        admin.alter_configs(topic, {"retention.ms": "-1"})
    with bradbury.Producer() as producer:
        for partition in range(PARTITIONS):
            producer.send_batch(topic, table, partition=partition).result(30)
    return topic


def rows(dataset: ray.data.Dataset) -> list[dict[str, Any]]:
    return sorted(dataset.take_all(), key=lambda row: (row["partition"], row["offset"]))


def without_headers(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "headers"}


def test_what_it_reads_is_what_ray_reads_by_librdkafka(
    filled: str, cluster: bradbury.Cluster
) -> None:
    with bradbury.Producer() as producer:
        headers = [("trace", b"\x00\xff"), ("empty", b"")]
        producer.send(filled, b"with headers", partition=0, headers=headers).result(30)
        producer.send(filled, None, b"a tombstone", partition=1).result(30)
    ours = bradbury.read_topic(filled)
    theirs = ray.data.read_kafka(filled, bootstrap_servers=cluster.bootstrap_servers)
    found = rows(ours)
    assert len(found) == PARTITIONS * ROWS + 2
    # Ray makes a struct of the names that a block has, where its schema says map<string, binary>.
    with_headers = [row for row in found if row["headers"]]
    assert [dict(row["headers"]) for row in with_headers] == [dict(headers)]
    assert [without_headers(row) for row in found] == [without_headers(row) for row in rows(theirs)]
    assert list(zip(ours.schema().names, ours.schema().types, strict=True)) == [
        (field.name, field.type) for field in KAFKA_MSG_SCHEMA
    ]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 20, [(p, o) for p in range(PARTITIONS) for o in range(10, 20)]),
        ("earliest", 3, [(p, o) for p in range(PARTITIONS) for o in range(3)]),
        (ROWS - 2, "latest", [(p, o) for p in range(PARTITIONS) for o in (ROWS - 2, ROWS - 1)]),
        (7, 7, []),
        (
            datetime.fromtimestamp(BEGIN_MS / 1000 + 5, UTC),
            datetime.fromtimestamp(BEGIN_MS / 1000 + 6.5, UTC).replace(tzinfo=None),
            [(p, o) for p in range(PARTITIONS) for o in (5, 6)],
        ),
        (datetime(2100, 1, 1, tzinfo=UTC), "latest", []),
        (
            {0: 990, 2: datetime.fromtimestamp(BEGIN_MS / 1000 + 998, UTC), 3: 1_000},
            {1: 2},
            [
                *((0, offset) for offset in range(990, ROWS)),
                *((1, offset) for offset in range(2)),
                (2, 998),
                (2, 999),
            ],
        ),
    ],
    ids=["offsets", "earliest", "latest", "nothing", "times", "after the end", "by partition"],
)
def test_it_reads_between_two_offsets(
    filled: str, start: Any, end: Any, expected: list[tuple[int, int]]
) -> None:
    given = [{filled: one} if isinstance(one, dict) else one for one in (start, end)]
    dataset = bradbury.read_topic(
        filled, start_offset=given[0], end_offset=given[1], columns=["partition", "offset"]
    )
    assert [(row["partition"], row["offset"]) for row in rows(dataset)] == expected


def test_from_files_it_reads_the_same(filled: str, cluster: bradbury.Cluster) -> None:
    """What the files alone show is tried by tests/pipelines/ranges/test_local_segments.py."""
    assert rows(bradbury.read_topic(filled, local_files=True)) == rows(bradbury.read_topic(filled))
    limits = read_limits(
        "read_committed", "files", poll_timeout_ms=1_000, fail_on_data_loss=True, local_files=True
    )
    client = reading_client(cluster.bootstrap_servers, limits.fetch)
    ranges = [PartitionRange(filled, partition, 0, ROWS) for partition in range(PARTITIONS)]
    assert len(local_directories(client, ranges)) == PARTITIONS


def test_executed_again_it_has_the_same_records(filled: str) -> None:
    dataset = bradbury.read_topic(filled, columns=["value"])
    assert dataset.count() == PARTITIONS * ROWS
    with bradbury.Producer() as producer:
        producer.send(filled, b"later").result(30)
    doubled = dataset.map_batches(lambda batch: batch, batch_format="pyarrow")
    assert doubled.count() == PARTITIONS * ROWS
    assert bradbury.read_topic(filled).count() == PARTITIONS * ROWS + 1


def test_a_partition_is_read_by_several_tasks_and_a_task_reads_no_two(filled: str) -> None:
    dataset = bradbury.read_topic(
        filled, columns=["partition", "offset"], override_num_blocks=3 * PARTITIONS
    ).materialize()
    blocks = [ray.get(block) for block in dataset.get_internal_block_refs()]
    assert len(blocks) == 3 * PARTITIONS
    assert all(len(set(block["partition"].to_pylist())) == 1 for block in blocks)
    assert len(rows(dataset)) == PARTITIONS * ROWS


def test_several_topics_at_once(filled: str, cluster: bradbury.Cluster) -> None:
    other = f"{filled}-other"
    with cluster.admin() as admin, bradbury.Producer() as producer:
        admin.create_topic(other, 1)
        producer.send(other, b"one").result(30)
    found = bradbury.read_topic([filled, other], columns=["topic"]).take_all()
    names = [row["topic"] for row in found]
    assert {name: names.count(name) for name in set(names)} == {
        filled: PARTITIONS * ROWS,
        other: 1,
    }


def test_columns_that_nobody_wants_are_not_built_and_filters_leave_out_ranges(
    filled: str,
) -> None:
    """Seen in what is read, not in what comes out, which would be the same."""
    chosen = (
        bradbury.read_topic(filled)
        .filter(expr=(col("partition") == 2) & (col("offset") >= 990) & (col("offset") < 995))
        .select_columns(["value"])
    )
    plan = chosen.explain() if hasattr(chosen, "explain") else None
    assert plan is None or "Filter" not in plan
    # Tasks end in any order, and their rows come so.
    assert sorted(row["value"] for row in chosen.take_all()) == [
        b"number %d" % offset for offset in range(990, 995)
    ]
    statistics = chosen.materialize().stats()
    assert "ReadTopic" in statistics
    late = bradbury.read_topic(filled, columns=["offset"]).filter(
        expr=(col("timestamp") >= BEGIN_MS + 1_000 * (ROWS - 3)) & (col("partition") == 1)
    )
    assert sorted(row["offset"] for row in late.take_all()) == list(range(ROWS - 3, ROWS))
    by_value = bradbury.read_topic(filled).filter(expr=col("value") == b"number 17")
    assert [row["offset"] for row in by_value.take_all()] == [17] * PARTITIONS


def test_what_was_aborted_is_read_only_if_asked_for(topic: str) -> None:
    with bradbury.Producer(transactional_id=f"{topic}-id") as producer:
        producer.begin()
        producer.send(topic, b"aborted", partition=0).result(30)
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)

    def values(**settings: str) -> list[bytes]:
        return [row["value"] for row in bradbury.read_topic(topic, **settings).take_all()]

    assert values() == [b"committed"]
    assert sorted(values(isolation_level="read_uncommitted")) == [b"aborted", b"committed"]


# --- values --------------------------------------------------------------------------------------


def read_values(topic: str, values: list[bytes | None], **decoder: Any) -> list[Any]:
    with bradbury.Producer() as producer:
        for value in values:
            producer.send(topic, value, b"key", partition=0)
        producer.flush()
    dataset = bradbury.read_topic(topic, columns=["offset", "value"], **decoder)
    return [row["value"] for row in sorted(dataset.take_all(), key=lambda row: row["offset"])]


def test_text(topic: str) -> None:
    given = ["Zürich".encode(), None, b""]
    assert read_values(topic, given, value_decoder="utf8") == ["Zürich", None, ""]


def test_json(topic: str) -> None:
    given = [b'{"a": 1, "b": ["x"]}', None, b'{\n "b": [],\n "c": true}']
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    assert read_values(topic, given, value_decoder="json", value_schema=schema) == [
        {"a": 1, "b": ["x"]},
        None,
        {"a": None, "b": []},
    ]


def test_avro(topic: str) -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
    given = [b"\x02", b"\x04", None]
    assert read_values(topic, given, value_decoder="avro", value_schema=schema) == [
        {"n": 1},
        {"n": 2},
        None,
    ]


def test_a_function(topic: str) -> None:
    def lengths(values: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.binary_length(values)

    assert read_values(topic, [b"abc", b""], value_decoder=lengths) == [3, 0]
    with pytest.raises(Exception, match=r"value_decoder returned a list; it must return an array"):
        read_values(topic, [b"abc"], value_decoder=lambda values: values.to_pylist())
    assert bradbury.read_topic(topic, columns="value").columns() == ["value"]


def test_arrow_streams_become_columns_and_rows(topic: str) -> None:
    def stream(numbers: list[int]) -> bytes:
        table = pa.table({"number": numbers})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    with bradbury.Producer() as producer:
        for numbers in ([1, 2, 3], [], [4]):
            producer.send(topic, stream(numbers), partition=0)
        producer.send(topic, None, b"tombstone", partition=0)
        producer.flush()
    dataset = bradbury.read_topic(topic, columns=["offset", "value"], value_decoder="arrow")
    found = [(row["offset"], row["number"]) for row in dataset.take_all()]
    assert sorted(found) == [(0, 1), (0, 2), (0, 3), (2, 4)]


@pytest.mark.parametrize(
    ("value", "decoder"),
    [(b"\xff", {"value_decoder": "utf8"}), (b'{"a": "x"}', {"value_decoder": "json"})],
    ids=["utf8", "json"],
)
def test_a_value_that_is_something_else_fails_and_is_named(
    topic: str, value: bytes, decoder: dict[str, Any]
) -> None:
    if decoder["value_decoder"] == "json":
        decoder = {**decoder, "value_schema": pa.schema([("a", pa.int64())])}
    with pytest.raises(Exception, match=rf"a value of {topic}-0 between the offsets 0 and 0 is"):
        read_values(topic, [value], **decoder)


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"trigger": "always"}, ValueError, "use 'once' or 'continuous'"),
        ({"columns": ["offset", "when"]}, ValueError, "there is no column 'when'"),
        ({"columns": []}, ValueError, "columns is empty"),
        ({"start_offset": "latest"}, ValueError, "use an offset, a datetime or 'earliest'"),
        ({"end_offset": -1}, ValueError, "end_offset is -1"),
        ({"start_offset": 30, "end_offset": 20}, ValueError, "is greater than its end_offset 20"),
        ({"end_offset": 5_000}, ValueError, "above the log end offset 1000"),
        ({"isolation_level": "serializable"}, ValueError, "use read_uncommitted or read_comm"),
        ({"fail_on_data_loss": "no"}, TypeError, "use True or False"),
        ({"override_num_blocks": 0}, ValueError, "use at least 1"),
        ({"poll_timeout_ms": 0}, ValueError, "poll_timeout_ms is 0; use a whole number"),
        ({"poll_timeout_ms": "1s"}, ValueError, "poll_timeout_ms is '1s'; use a whole number"),
        ({"kafka_auth_config": {}}, TypeError, "use security_protocol, ssl_.* and sasl_"),
        ({"consumer_config": {}}, TypeError, "has no counterpart"),
        ({"timeout_ms": 10}, TypeError, "use poll_timeout_ms"),
        (
            {"value_decoder": "xml"},
            ValueError,
            "use 'raw', 'utf8', 'json', 'avro', 'protobuf', 'arrow'",
        ),
        ({"value_decoder": "json"}, ValueError, "needs value_schema"),
        ({"start_offset": {"elsewhere": {0: 1}}}, UnknownTopicOrPartition, "elsewhere-0"),
        ({"end_ofset": 10}, TypeError, "argument 'end_ofset': did you mean 'end_offset'"),
        ({"trigger": "continuous", "resource": {}}, TypeError, "did you mean 'resources'"),
        (
            {"scheduling_strategy": "SPREAD"},
            TypeError,
            "unexpected keyword .*'scheduling_strategy'",
        ),
        ({"sasl_user": "me"}, TypeError, "did you mean 'sasl_username'"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    filled: str, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        bradbury.read_topic(filled, **settings)


def test_a_topic_that_there_is_not(cluster: bradbury.Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="bradbury topics create nowhere"):
        bradbury.read_topic("nowhere")


def test_records_that_are_gone(filled: str, cluster: bradbury.Cluster) -> None:
    with cluster.admin() as admin:
        admin.delete_records({(filled, 0): 900})
    with pytest.raises(DataLoss, match="begins at 900.*set fail_on_data_loss to false"):
        bradbury.read_topic(filled, start_offset=0)
    assert bradbury.read_topic(filled).count() == 3 * ROWS + 100
    read = bradbury.read_topic(filled, start_offset=0, fail_on_data_loss=False)
    assert read.count() == 3 * ROWS + 100

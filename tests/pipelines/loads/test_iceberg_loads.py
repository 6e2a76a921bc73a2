"""Does an Iceberg table have each record of its topics once, whatever ended the loads before?"""

import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

import bradbury
from bradbury.pipelines.loads.load_target import LoadFailed
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.tests.support.killed_program import kill_at

NewTopic = Callable[..., str]
START_MS = (time.time_ns() // 86_400_000_000_000 - 5) * 86_400_000
"""A midnight that retention spares."""
TABLE = "plant.turbines"


@pytest.fixture
def options(bootstrap: str, catalog: dict[str, str]) -> dict[str, Any]:
    return {"format": "iceberg", "bootstrap_servers": bootstrap, "catalog_properties": catalog}


def opened(catalog: dict[str, str]) -> Catalog:
    return load_catalog("default", **catalog)


def rows(catalog: dict[str, str]) -> pa.Table:
    return opened(catalog).load_table(TABLE).scan().to_arrow()


def values(catalog: dict[str, str]) -> list[int]:
    return sorted(int(value) for value in rows(catalog)["value"].to_pylist())


def send(bootstrap: str, topic: str, start: int, end: int, partitions: int = 1) -> None:
    """A record a minute."""
    with bradbury.Producer(bootstrap) as producer:
        for partition in range(partitions):
            numbers = range(start + partition, end, partitions)
            table = pa.table(
                {
                    "key": [f"k{number}" for number in numbers],
                    "value": [str(number) for number in numbers],
                    "timestamp": [START_MS + number * 60_000 for number in numbers],
                }
            )
            producer.send_batch(topic, table, partition=partition).result(60)


def test_a_load_adds_what_is_new_by_day(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, 0, 3_000, 2)
    done = bradbury.load(topic, TABLE, partition_by="day", commit_records=1_000, **options)
    assert done.records == 3_000
    assert done.commits >= 3
    assert bradbury.load(topic, TABLE, partition_by="day", **options).commits == 0
    send(bootstrap, topic, 3_000, 3_100, 2)
    assert bradbury.load(topic, TABLE, partition_by="day", **options).records == 100
    assert values(catalog) == list(range(3_100))
    found = rows(catalog)
    assert set(found.schema.names) == {
        "offset", "key", "value", "topic", "partition", "timestamp", "timestamp_type", "headers",
        "day",
    }  # fmt: skip
    assert str(found.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    table = opened(catalog).load_table(TABLE)
    assert [field.name for field in table.spec().fields] == ["day"]
    assert len(set(found["day"].to_pylist())) == 3
    one_day = table.scan(row_filter=f"day = '{found['day'][0].as_py()}'").plan_files()
    assert len(list(one_day)) < len(list(table.scan().plan_files()))


def test_two_topics_and_typed_values(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    first, second = new_topic(), new_topic()
    options |= {
        "value_decoder": "json",
        "value_schema": pa.schema([("n", pa.int64()), ("of", pa.list_(pa.string()))]),
    }
    with bradbury.Producer(bootstrap) as producer:
        producer.send(first, '{"n": 1, "of": ["a"]}')
        producer.send(second, None)
    for topic in (first, second, first, second):
        bradbury.load(topic, TABLE, **options)
    found = rows(catalog)
    assert sorted(found["topic"].to_pylist()) == sorted([first, second])
    assert {"n": 1, "of": ["a"]} in found["value"].to_pylist()


def test_other_columns_and_arguments_are_refused_in_a_sentence(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, TABLE, columns=["value", "offset"], **options)
    for others in (
        {},
        {"columns": ["value", "offset"], "partition_by": "day"},
        {"columns": ["offset", "key"]},
        {"columns": ["value", "offset"], "value_decoder": "utf8"},
    ):
        with pytest.raises(LoadFailed, match="has other columns: value: binary, offset: long"):
            bradbury.load(topic, TABLE, **options, **others)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"use namespace\.table"):
        bradbury.load(topic, "turbines", **options)
    with pytest.raises(ValueError, match="a catalog needs the format iceberg"):
        bradbury.load(topic, TABLE, **{**options, "format": "delta"})
    for wrong in ({"type": "none"}, {"type": "sql"}, {}):
        with pytest.raises(LoadFailed, match="cannot be opened"):
            bradbury.load(topic, TABLE, **{**options, "catalog_properties": wrong})


def test_no_other_format_is_loaded_into_its_directory(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, TABLE, **options)
    there = opened(catalog).load_table(TABLE).location().removeprefix("file://")
    for other in ("parquet", "delta"):
        with pytest.raises(LoadFailed, match="a table in the format iceberg"):
            bradbury.load(topic, there, format=other, bootstrap_servers=bootstrap)


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, TABLE, **options)
    with bradbury.Admin(bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topic(topic, 1)
    send(bootstrap, topic, 100, 120)
    with pytest.raises(DataLoss, match="deleted and recreated"):
        bradbury.load(topic, TABLE, **options)
    bradbury.load(topic, TABLE, **options, fail_on_data_loss=False)
    assert values(catalog) == [*range(10), *range(100, 120)]


def test_of_two_loads_into_a_table_one_commits(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 30)

    def another(progress: Any) -> None:
        if progress.commits == 1:
            bradbury.load(topic, TABLE, **options)

    with pytest.raises(LoadFailed, match="was changed by another writer"):
        bradbury.load(topic, TABLE, **options, commit_records=10, on_progress=another)
    assert values(catalog) == list(range(30))
    table = opened(catalog).load_table(TABLE)
    assert "commit.retry.num-retries" not in table.properties


def test_what_others_commit_and_roll_back_is_heeded(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, TABLE, columns=["value"], **options)
    table = opened(catalog).load_table(TABLE)
    loaded = table.current_snapshot()
    assert loaded is not None
    table.append(pa.table({"value": pa.array([b"1000"])}))
    send(bootstrap, topic, 10, 20)
    assert bradbury.load(topic, TABLE, columns=["value"], **options).records == 10
    assert values(catalog) == [*range(20), 1000]
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(loaded.snapshot_id).commit()
    assert bradbury.load(topic, TABLE, columns=["value"], **options).records == 10
    assert values(catalog) == list(range(20))
    # Somebody's snapshot stays, and those of the loads are expired.
    table.refresh()
    table.overwrite(pa.table({"value": pa.array([str(n).encode() for n in range(20)])}))
    newest = table.current_snapshot()
    assert newest is not None
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert bradbury.load(topic, TABLE, columns=["value"], **options).records == 0
    send(bootstrap, topic, 20, 25)
    assert bradbury.load(topic, TABLE, columns=["value"], **options).records == 5
    assert values(catalog) == list(range(25))


PROGRAM = """
import json, sys, bradbury
topic, table, catalog, bootstrap = sys.argv[1:]
print("begun", flush=True)
bradbury.load(topic, table, format="iceberg", catalog_properties=json.loads(catalog),
              bootstrap_servers=bootstrap, commit_records=200,
              on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@pytest.mark.long  # killed again and again; a kill of a Parquet load is in make test
@pytest.mark.slow
def test_killed_again_and_again_each_record_is_there_once(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str]
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, 0, 5_000, 2)
    arguments = [topic, TABLE, json.dumps(catalog), bootstrap]
    assert kill_at(PROGRAM, arguments, (0, 1, 2, 3, 1_000)) == 4
    assert values(catalog) == list(range(5_000))

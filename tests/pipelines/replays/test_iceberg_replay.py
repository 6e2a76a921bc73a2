"""Does a topic have each row of an Iceberg table once, also those that come later?"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

import bradbury
from bradbury.pipelines.replays.table_source import ReplayFailed
from bradbury.tests.pipelines.replays.numbered_records import seen, send
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.killed_program import kill_at

NewTopic = Callable[..., str]
TABLE = "plant.turbines"


@pytest.fixture
def options(bootstrap: str, catalog: dict[str, str]) -> dict[str, Any]:
    return {"format": "iceberg", "bootstrap_servers": bootstrap, "catalog_properties": catalog}


def opened(catalog: dict[str, str]) -> Catalog:
    return load_catalog("default", **catalog)


def ids(bootstrap: str, topic: str) -> list[int]:
    return [json.loads(each.value)["id"] for each in committed_records(bootstrap, topic)]


def test_a_loaded_table_comes_back_as_it_was_and_what_was_loaded_since(
    bootstrap: str, new_topic: NewTopic, options: dict[str, Any]
) -> None:
    topic, again = new_topic(3), new_topic(3)
    send(bootstrap, topic, 0, 300, 3)
    bradbury.load(topic, TABLE, partition_by="day", commit_records=100, **options)
    done = bradbury.replay(TABLE, again, keep_partitions=True, commit_records=70, **options)
    assert (done.records, done.behind) == (300, 0)
    assert done.commits >= 4
    assert seen(bootstrap, again) == seen(bootstrap, topic)
    assert bradbury.replay(TABLE, again, keep_partitions=True, **options).records == 0
    send(bootstrap, topic, 300, 400, 3)
    bradbury.load(topic, TABLE, partition_by="day", commit_records=30, **options)
    assert bradbury.replay(TABLE, again, keep_partitions=True, **options).records == 100
    assert seen(bootstrap, again) == seen(bootstrap, topic)


def test_what_a_table_of_others_has_gained_comes_and_what_it_has_lost_is_refused(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    schema = pa.schema([pa.field("id", pa.int64())])
    opened(catalog).create_namespace("plant")
    table = opened(catalog).create_table(TABLE, schema)
    assert bradbury.replay(TABLE, topic, **options).records == 0

    def add(start: int, end: int) -> None:
        table.append(pa.table({"id": pa.array(range(start, end), pa.int64())}, schema=schema))

    add(0, 5)
    assert bradbury.replay(TABLE, topic, **options).records == 5
    add(5, 8)
    with table.update_schema() as update:
        update.add_column("name", table.schema().find_type("id"))
    table.append(pa.table({"id": [8, 9], "name": [1, 2]}))
    assert bradbury.replay(TABLE, topic, **options).records == 5
    assert sorted(ids(bootstrap, topic)) == list(range(10))

    table.delete("id = 3")
    with pytest.raises(ReplayFailed, match="changed or deleted rows"):
        bradbury.replay(TABLE, topic, **options)
    anew = new_topic()
    assert bradbury.replay(TABLE, anew, **options).records == 9
    assert sorted(ids(bootstrap, anew)) == [0, 1, 2, *range(4, 10)]


def test_a_table_that_does_not_go_back_to_what_was_replayed_is_refused(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str], options: dict[str, Any]
) -> None:
    topic = new_topic()
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    opened(catalog).create_namespace("plant")
    table = opened(catalog).create_table(TABLE, rows.schema)
    table.append(rows)
    assert bradbury.replay(TABLE, topic, **options).records == 2
    replayed = table.current_snapshot()
    assert replayed is not None
    table.append(rows)
    table.append(rows)
    table.maintenance.expire_snapshots().by_ids([replayed.snapshot_id]).commit()
    with pytest.raises(ReplayFailed, match="was expired or rolled back"):
        bradbury.replay(TABLE, topic, **options)


def test_what_cannot_be_is_said_in_a_line(
    bootstrap: str, new_topic: NewTopic, options: dict[str, Any]
) -> None:
    topic = new_topic()
    with pytest.raises(ReplayFailed, match=r"the catalog has no table plant\.turbines"):
        bradbury.replay(TABLE, topic, **options)
    with pytest.raises(ReplayFailed, match="catalog 'default' cannot be opened"):
        bradbury.replay(TABLE, topic, **(options | {"catalog_properties": {"type": "none"}}))
    with pytest.raises(ValueError, match="a catalog needs the format iceberg"):
        bradbury.replay(TABLE, topic, **(options | {"format": "parquet"}))


PROGRAM = """
import json, sys, bradbury
table, topic, catalog, bootstrap = sys.argv[1:]
print("begun", flush=True)
bradbury.replay(table, topic, format="iceberg", catalog_properties=json.loads(catalog),
                bootstrap_servers=bootstrap, commit_records=200,
                on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.long  # test_replay.py kills others
def test_killed_again_and_again_each_row_is_there_once(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str]
) -> None:
    topic = new_topic(2)
    opened(catalog).create_namespace("plant")
    rows = pa.table({"id": pa.array(range(5_000), pa.int64())})
    table = opened(catalog).create_table(TABLE, rows.schema)
    for start in range(0, 5_000, 1_000):
        table.append(rows.slice(start, 1_000))
    arguments = [TABLE, topic, json.dumps(catalog), bootstrap]
    assert kill_at(PROGRAM, arguments, (0, 1, 2, 3, 1_000)) == 4
    assert sorted(ids(bootstrap, topic)) == list(range(5_000))


def test_the_command_takes_a_catalog(
    bootstrap: str, new_topic: NewTopic, catalog: dict[str, str]
) -> None:
    topic = new_topic()
    opened(catalog).create_namespace("plant")
    rows = pa.table({"id": pa.array(range(7), pa.int64())})
    opened(catalog).create_table(TABLE, rows.schema).append(rows)
    properties = [
        word for pair in catalog.items() for word in ("--catalog-property", "=".join(pair))
    ]
    command = [sys.executable, "-m", "bradbury.cli", "replay", TABLE, "--to", topic]
    done = subprocess.run(
        [*command, "--format", "iceberg", *properties, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert re.search("7 records into", done.stderr), done.stderr
    assert sorted(ids(bootstrap, topic)) == list(range(7))

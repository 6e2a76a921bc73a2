"""Does a table have each record of its topics once, whatever ended the loads before?"""

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bradbury
from bradbury.pipelines.loads import parquet_target
from bradbury.pipelines.loads.load_target import LoadFailed
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.protocol.errors import UnknownTopicOrPartition
from bradbury.tests.support.killed_program import kill_at

NewTopic = Callable[..., str]
DAY_MS = 86_400_000
START_MS = (time.time_ns() // 1_000_000 // DAY_MS - 4) * DAY_MS
"""A midnight that retention spares."""
FORMATS = pytest.mark.parametrize("table_format", ["parquet", "delta"])


def send(bootstrap: str, topic: str, start: int, end: int, partitions: int = 1) -> None:
    """A record a minute."""
    with bradbury.Producer(bootstrap) as producer:
        for partition in range(partitions):
            numbers = list(range(start + partition, end, partitions))
            table = pa.table(
                {
                    "key": [f"k{number}" for number in numbers],
                    "value": [str(number) for number in numbers],
                    "timestamp": [START_MS + number * 60_000 for number in numbers],
                }
            )
            producer.send_batch(topic, table, partition=partition).result(60)


def table_of(path: Path, table_format: str) -> pa.Table:
    if table_format == "delta":
        return pa.table(deltalake.DeltaTable(path).to_pyarrow_table())
    return ds.dataset(path, format="parquet", partitioning="hive").to_table()


def values(path: Path, table_format: str) -> list[int]:
    return sorted(int(value) for value in table_of(path, table_format)["value"].to_pylist())


@FORMATS
def test_a_load_adds_what_is_new(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(3), tmp_path / "table"
    options: dict[str, Any] = {"format": table_format, "bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 300, 3)
    assert bradbury.load(topic, str(to), **options).records == 300
    assert values(to, table_format) == list(range(300))
    assert bradbury.load(topic, str(to), **options).commits == 0
    send(bootstrap, topic, 300, 500, 3)
    seen: list[Any] = []
    done = bradbury.load(topic, str(to), **options, commit_records=50, on_progress=seen.append)
    assert (done.records, done.behind) == (200, 0)
    assert done.commits == len(seen) >= 4
    assert values(to, table_format) == list(range(500))


@FORMATS
def test_rows_have_columns_that_others_know_and_folders_by_day(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    send(bootstrap, topic, 0, 3 * 1440)
    bradbury.load(
        topic,
        str(to),
        format=table_format,
        bootstrap_servers=bootstrap,
        partition_by="day",
        value_decoder="utf8",
        columns=["key", "value", "timestamp", "offset"],
    )
    days = [datetime.fromtimestamp(START_MS / 1000 + day * 86_400, UTC) for day in range(3)]
    assert sorted(path.name for path in to.glob("day=*")) == [f"day={day:%Y-%m-%d}" for day in days]
    found = table_of(to, table_format)
    assert set(found.schema.names) == {"key", "value", "timestamp", "offset", "day"}
    assert str(found.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    rows = sorted(found.to_pylist(), key=lambda row: row["offset"])
    assert [row["value"] for row in rows] == [str(number) for number in range(3 * 1440)]
    assert rows[1500]["key"] == b"k1500"
    assert rows[1500]["timestamp"] == days[1].replace(hour=1)
    assert str(rows[1500]["day"]) == f"{days[1]:%Y-%m-%d}"


@FORMATS
def test_other_columns_and_arguments_are_refused_in_a_sentence(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(), str(tmp_path / "table")
    options: dict[str, Any] = {"format": table_format, "bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, to, **options, columns=["value", "offset"])
    send(bootstrap, topic, 10, 20)
    with pytest.raises(LoadFailed, match="has other columns"):
        bradbury.load(topic, to, **options)
    assert values(Path(to), table_format) == list(range(10))
    for wrong in (
        {"format": "csv"},
        {"partition_by": "week"},
        {"columns": ["price"]},
        {"value_decoder": "arrow"},
        {"commit_records": 0},
    ):
        with pytest.raises(ValueError, match="use|choose"):
            bradbury.load(topic, to, **{**options, **wrong})
    with pytest.raises(UnknownTopicOrPartition, match="does not exist"):
        bradbury.load("nowhere", to, **options)


def test_a_first_load_that_fails_leaves_nothing_and_a_later_one_what_is_there(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, given = new_topic(1), tmp_path / "given"
    given.mkdir()
    for to in (tmp_path / "made", given):
        with pytest.raises(UnknownTopicOrPartition):
            bradbury.load("nowhere", str(to), bootstrap_servers=bootstrap)
    assert [*tmp_path.rglob("*")] == [given]
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, str(given), bootstrap_servers=bootstrap)
    before = sorted(given.rglob("*"))
    with pytest.raises(UnknownTopicOrPartition):
        bradbury.load("nowhere", str(given), bootstrap_servers=bootstrap)
    assert sorted(given.rglob("*")) == before


@FORMATS
def test_a_directory_with_a_table_of_another_format_is_refused(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    (other,) = {"parquet", "delta"} - {table_format}
    send(bootstrap, topic, 0, 10)
    with pytest.raises(UnknownTopicOrPartition):  # nothing is loaded by it, so this is no table yet
        bradbury.load("nowhere", str(to), format=table_format, bootstrap_servers=bootstrap)
    bradbury.load(topic, str(to), format=other, bootstrap_servers=bootstrap)
    there = sorted(to.rglob("*"))
    for options in ({}, {"compact": True}):
        with pytest.raises(LoadFailed, match=f"a table in the format {other};.* use another dir"):
            bradbury.load(
                topic, str(to), format=table_format, bootstrap_servers=bootstrap, **options
            )
    assert sorted(to.rglob("*")) == there
    assert values(to, other) == list(range(10))


@FORMATS
def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    options: dict[str, Any] = {"format": table_format, "bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, str(to), **options)
    with bradbury.Admin(bootstrap) as admin:
        admin.delete_topics([topic])
        admin.create_topic(topic, 1)
    send(bootstrap, topic, 100, 120)
    with pytest.raises(DataLoss, match="recreated.* false .the option --allow-data-loss"):
        bradbury.load(topic, str(to), **options)
    bradbury.load(topic, str(to), **options, fail_on_data_loss=False)
    assert values(to, table_format) == [*range(10), *range(100, 120)]


# --- ended in the middle -------------------------------------------------------------------------


class Ended(BaseException):
    """As a kill: nothing is tidied up."""


@pytest.mark.parametrize("step", ["_link", "_move"])
def test_ended_before_or_behind_its_commit_a_load_is_finished_by_the_next(
    bootstrap: str,
    new_topic: NewTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    topic, to = new_topic(2), tmp_path / "table"
    send(bootstrap, topic, 0, 100, 2)
    bradbury.load(topic, str(to), bootstrap_servers=bootstrap)
    send(bootstrap, topic, 100, 200, 2)

    calls: list[int] = []
    the_last = 2 if step == "_move" else 1  # the first move finishes the commit before
    real = getattr(parquet_target.ParquetTarget, step)

    def end(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == the_last:
            raise Ended
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(parquet_target.ParquetTarget, step, end)
        with pytest.raises(Ended):
            bradbury.load(topic, str(to), bootstrap_servers=bootstrap)
    assert values(to, "parquet") == list(range(100))
    is_loaded = step == "_move"
    assert len(list((to / "_bradbury" / "commits").glob("*.json"))) == (2 if is_loaded else 1)
    done = bradbury.load(topic, str(to), bootstrap_servers=bootstrap)
    assert done.records == (0 if is_loaded else 100)
    assert values(to, "parquet") == list(range(200))
    assert not (to / "_bradbury" / "staging").exists() or not os.listdir(
        to / "_bradbury" / "staging"
    )


PROGRAM = """
import sys, bradbury
topic, to, table_format, bootstrap = sys.argv[1:]
print("begun", flush=True)
bradbury.load(topic, to, format=table_format, bootstrap_servers=bootstrap, commit_records=200,
              on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@FORMATS
@pytest.mark.slow
def test_killed_again_and_again_each_record_is_there_once(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(2), tmp_path / "table"
    send(bootstrap, topic, 0, 5_000, 2)
    arguments = [topic, str(to), table_format, bootstrap]
    assert kill_at(PROGRAM, arguments, (1, 2, 3, 1_000)) == 3
    assert values(to, table_format) == list(range(5_000))


# --- several, and on and on ----------------------------------------------------------------------


def test_of_two_loads_at_once_the_second_is_refused(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, to = new_topic(), str(tmp_path / "table")
    send(bootstrap, topic, 0, 10)
    refused: list[Exception] = []

    def another(_: object) -> None:
        with pytest.raises(LoadFailed, match="another load is writing") as error:
            bradbury.load(topic, to, bootstrap_servers=bootstrap)
        refused.append(error.value)

    bradbury.load(topic, to, bootstrap_servers=bootstrap, on_progress=another)
    assert len(refused) == 1


def test_of_two_loads_into_a_delta_table_one_commits(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    options: dict[str, Any] = {"format": "delta", "bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, str(to), **options)
    send(bootstrap, topic, 10, 30)

    def another(progress: Any) -> None:
        if progress.commits == 1:
            bradbury.load(topic, str(to), **options)

    with pytest.raises(LoadFailed, match="was changed by another writer"):
        bradbury.load(topic, str(to), **options, commit_records=10, on_progress=another)
    assert values(to, "delta") == list(range(30))


def test_a_continuous_load_goes_on_until_it_is_stopped(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    send(bootstrap, topic, 0, 10)
    stop = threading.Event()

    def go_on(progress: Any) -> None:
        if progress.records < 30:
            send(bootstrap, topic, progress.records, progress.records + 10)
        else:
            stop.set()

    done = bradbury.load(
        topic,
        str(to),
        bootstrap_servers=bootstrap,
        continuous=True,
        commit_interval_s=0.1,
        stop=stop,
        on_progress=go_on,
    )
    assert done.records == 30
    assert values(to, "parquet") == list(range(30))


def test_a_damaged_commit_is_named(bootstrap: str, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, to = new_topic(), tmp_path / "table"
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, str(to), bootstrap_servers=bootstrap)
    (commit,) = (to / "_bradbury" / "commits").iterdir()
    assert json.loads(commit.read_text())["offsets"] == {topic: {"0": 10}}
    commit.write_text("{")
    with pytest.raises(LoadFailed, match=r"0\.json is damaged"):
        bradbury.load(topic, str(to), bootstrap_servers=bootstrap)

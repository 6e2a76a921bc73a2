"""Does a topic have each row of a table once and in order, whatever ended the replays before?"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bradbury
from bradbury.pipelines.replays.table_source import ReplayFailed
from bradbury.protocol.errors import ProducerFenced, UnknownTopicOrPartition
from bradbury.tests.pipelines.replays.numbered_records import START_MS, seen, send
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.killed_program import kill_at

NewTopic = Callable[..., str]
FORMATS = pytest.mark.parametrize("table_format", ["parquet", "delta"])


@FORMATS
def test_a_loaded_table_comes_back_as_it_was(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, again, table = new_topic(3), new_topic(3), str(tmp_path / "table")
    options: dict[str, Any] = {"bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 300, 3)
    with bradbury.Producer(bootstrap) as producer:
        producer.send(topic, None, b"tombstone", partition=1, timestamp_ms=START_MS)
    bradbury.load(topic, table, format=table_format, partition_by="day", **options)
    done = bradbury.replay(table, again, keep_partitions=True, commit_records=70, **options)
    assert (done.records, done.behind) == (301, 0)
    assert done.commits >= 4
    assert seen(bootstrap, again) == seen(bootstrap, topic)
    assert bradbury.replay(table, again, keep_partitions=True, **options).records == 0
    send(bootstrap, topic, 300, 400, 3)
    bradbury.load(
        topic, table, format=table_format, partition_by="day", commit_records=30, **options
    )
    left: list[tuple[int, int]] = []
    done = bradbury.replay(
        table,
        again,
        keep_partitions=True,
        commit_records=40,
        on_progress=lambda progress: left.append((progress.records, progress.behind)),
        **options,
    )
    assert done.records == 100
    assert len(left) > 1
    assert [records + behind for records, behind in left] == [100] * len(left)
    assert seen(bootstrap, again) == seen(bootstrap, topic)


def test_files_of_others_become_json_in_the_order_that_is_asked_for(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    for number, rows in enumerate(([4, 1, 3], [2, 5, 0])):
        pq.write_table(
            pa.table(
                {
                    "id": pa.array(rows, pa.int64()),
                    "name": [f'"{each}"\n' for each in rows],
                    "price": [each + 0.5 for each in rows],
                    "tags": pa.array([["a"] * each for each in rows], pa.list_(pa.string())),
                }
            ),
            tmp_path / f"{number}.parquet",
        )
    as_they_are, ordered = new_topic(), new_topic()
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "key": "id"}
    bradbury.replay(str(tmp_path), as_they_are, **options)
    bradbury.replay(str(tmp_path), ordered, order_by="id", columns=["price", "name"], **options)
    first = committed_records(bootstrap, as_they_are)
    assert [each.key for each in first] == [b"4", b"1", b"3", b"2", b"5", b"0"]
    assert json.loads(first[3].value) == {
        "id": 2,
        "name": '"2"\n',
        "price": 2.5,
        "tags": ["a", "a"],
    }
    second = committed_records(bootstrap, ordered)
    assert [each.key for each in second] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert json.loads(second[1].value) == {"price": 1.5, "name": '"1"\n'}


def test_what_a_delta_table_has_gained_comes_and_what_it_has_lost_is_refused(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    table, topic = str(tmp_path / "table"), new_topic()

    def add(start: int, end: int) -> None:
        rows = pa.table({"id": pa.array(range(start, end), pa.int64())})
        deltalake.write_deltalake(table, rows, mode="append")

    def run() -> int:
        return bradbury.replay(table, topic, bootstrap_servers=bootstrap).records

    add(0, 5)
    assert run() == 5
    add(5, 8)
    add(8, 10)
    deltalake.DeltaTable(table).optimize.compact()
    assert run() == 5
    found = [json.loads(each.value)["id"] for each in committed_records(bootstrap, topic)]
    assert sorted(found) == list(range(10))
    deltalake.DeltaTable(table).delete("id = 3")
    with pytest.raises(ReplayFailed, match="changed or deleted rows"):
        run()


def test_what_has_changed_meanwhile_is_said_and_another_name_begins_anew(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, again, table = new_topic(), new_topic(), tmp_path / "table"
    options: dict[str, Any] = {"bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 10, 1)
    bradbury.load(topic, str(table), **options)
    bradbury.replay(str(table), again, **options)
    with bradbury.Admin(bootstrap) as admin:
        admin.delete_topics([again])
        admin.create_topic(again, 1)
    with pytest.raises(ReplayFailed, match="deleted and recreated"):
        bradbury.replay(str(table), again, **options)
    assert bradbury.replay(str(table), again, name="anew", **options).records == 10
    table.rename(tmp_path / "former")
    bradbury.load(topic, str(table), **options)
    with pytest.raises(ReplayFailed, match="not the one"):
        bradbury.replay(str(table), again, name="anew", **options)
    pq.write_table(pa.table({"value": ["a"]}), table / "mine.parquet")
    with pytest.raises(ReplayFailed, match="not written by a load"):
        bradbury.replay(str(table), again, **options)


def test_what_cannot_be_is_said_in_a_sentence(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    table, topic = tmp_path / "t.parquet", new_topic()
    rows = {"value": ["a"], "n": [1.5], "partition": [7], "raw": [b"\xff"]}
    pq.write_table(pa.table(rows), table)

    def run(to: str = topic, **options: Any) -> None:
        bradbury.replay(str(table), to, bootstrap_servers=bootstrap, **options)

    for wrong, said in (
        ({"format": "csv"}, "use parquet, delta or iceberg"),
        ({"key": "nobody"}, "there is no column 'nobody'; there are value, n"),
        ({"key": "n"}, "is double, and must be"),
        ({"timestamp": "value"}, "is string, and must be a timestamp"),
        ({"headers": "value"}, "must be a map"),
        ({"value": "value", "columns": ["n"]}, "both given"),
        ({"columns": ["raw"]}, "column 'raw'.*cannot be JSON"),
        ({"order_by": "price"}, "order_by: there is no column"),
        ({"commit_records": 0}, "use more than 0"),
        ({"name": "a/b"}, "use letters"),
    ):
        with pytest.raises(ValueError, match=said):
            run(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ReplayFailed, match="partition 7, and the topic has 0 to 0"):
        run(keep_partitions=True)
    with pytest.raises(ReplayFailed, match="is not a readable Delta table"):
        run(format="delta")
    with pytest.raises(UnknownTopicOrPartition, match="bradbury topics create"):
        run("nowhere")
    with pytest.raises(ReplayFailed, match="none: there is no such file or directory"):
        bradbury.replay(str(tmp_path / "none"), topic, bootstrap_servers=bootstrap)
    assert committed_records(bootstrap, topic) == []


PROGRAM = """
import sys, bradbury
table, to, bootstrap = sys.argv[1:]
print("begun", flush=True)
bradbury.replay(table, to, bootstrap_servers=bootstrap, commit_records=200, keep_partitions=True,
                on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@pytest.mark.long  # killed again and again
@FORMATS
@pytest.mark.slow
def test_killed_again_and_again_each_row_is_there_once_and_in_order(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, table_format: str
) -> None:
    topic, again, table = new_topic(2), new_topic(2), str(tmp_path / "table")
    send(bootstrap, topic, 0, 5_000, 2)
    bradbury.load(
        topic, table, format=table_format, bootstrap_servers=bootstrap, commit_records=1_500
    )
    arguments = [table, again, bootstrap]
    assert kill_at(PROGRAM, arguments, (0, 1, 3, 8, 1_000)) == 4
    assert seen(bootstrap, again) == seen(bootstrap, topic)


def test_a_replay_that_begins_ends_the_former(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, table = new_topic(), str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"value": [str(each) for each in range(30)]}), table)

    def another(progress: Any) -> None:
        if progress.commits == 1:
            bradbury.replay(table, topic, bootstrap_servers=bootstrap)

    with pytest.raises((ProducerFenced, ReplayFailed), match="another"):
        bradbury.replay(
            table, topic, bootstrap_servers=bootstrap, commit_records=10, on_progress=another
        )
    assert [int(each.value) for each in committed_records(bootstrap, topic)] == list(range(30))

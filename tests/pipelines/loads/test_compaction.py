"""Are records there once, and is a table as far as it was, whatever ended its compaction?"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

import bradbury
from bradbury.pipelines.loads import parquet_target
from bradbury.pipelines.loads.load import LoadProgress
from bradbury.pipelines.loads.load_target import LoadFailed
from bradbury.pipelines.replays.table_source import ReplayFailed
from bradbury.tests.pipelines.loads.loaded_table import NAMED, Table, send
from bradbury.tests.pipelines.replays.numbered_records import seen
from bradbury.tests.support.killed_program import kill_at

NewTopic = Callable[..., str]
FORMATS = pytest.mark.parametrize("table", ["parquet", "delta", "iceberg"], indirect=True)
PARQUET = pytest.mark.parametrize("table", ["parquet"], indirect=True)


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path, catalog: dict[str, str]) -> Table:
    return Table(request.param, tmp_path, catalog)


@pytest.fixture
def options(bootstrap: str, table: Table) -> dict[str, Any]:
    """Of a load that compacts nothing."""
    return {**table.options, "bootstrap_servers": bootstrap, "compact_after": 0}


def compact(table: Table, **options: Any) -> LoadProgress:
    """No broker is asked."""
    catalog = {k: v for k, v in table.options.items() if k != "value_decoder"}
    return bradbury.load("anything", table.to, compact=True, **catalog, **options)


# --- what it does --------------------------------------------------------------------------------


@FORMATS
@pytest.mark.parametrize("partition_by", ["day", None])
def test_small_files_become_one_a_folder_and_the_next_load_goes_on(
    new_topic: NewTopic, table: Table, options: dict[str, Any], partition_by: str | None
) -> None:
    topic, options = new_topic(2), {**options, "partition_by": partition_by}
    send(options["bootstrap_servers"], topic, 0, 4_000, 2)
    bradbury.load(topic, table.to, commit_records=400, **options)
    before, schema = table.files(), table.rows().schema
    done = compact(table)
    assert (done.records, done.compacted_files) == (0, before)
    assert before > table.files() == (1 if partition_by is None else 3)
    assert table.values() == list(range(4_000))
    assert table.rows().schema == schema
    assert compact(table).compacted_files == 0
    assert bradbury.load(topic, table.to, **options).commits == 0
    send(options["bootstrap_servers"], topic, 4_000, 4_100, 2)
    assert bradbury.load(topic, table.to, **options).records == 100
    assert compact(table).compacted_files == 2
    assert table.values() == list(range(4_100))


@FORMATS
def test_a_load_compacts_when_there_are_so_many_small_files(
    new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic, options = new_topic(2), {**options, "compact_after": 4}
    send(options["bootstrap_servers"], topic, 0, 4_000, 2)
    done = bradbury.load(topic, table.to, partition_by="day", commit_records=100, **options)
    assert done.records == 4_000
    assert done.compacted_files > 30
    assert table.files() < 3 * 8
    assert table.values() == list(range(4_000))
    assert bradbury.load(topic, table.to, partition_by="day", **options).commits == 0


def test_a_delta_table_is_compacted_without_being_asked_and_keeps_its_transactions(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, table = new_topic(), Table("delta", tmp_path, {})
    send(bootstrap, topic, 0, 1_000, 1)
    options = {**table.options, "bootstrap_servers": bootstrap}
    assert bradbury.load(topic, table.to, commit_records=100, **options).compacted_files == 8
    assert table.files() == 3
    found = deltalake.DeltaTable(table.to)
    assert found.transaction_version(f"bradbury-load:{topic}:0") == 1_000
    assert [each["operation"] for each in found.history()].count("OPTIMIZE") == 1


@FORMATS
def test_files_of_the_target_size_stay_and_larger_ones_are_not_made(
    new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(options["bootstrap_servers"], topic, 0, 3_000, 1)
    bradbury.load(topic, table.to, commit_records=300, **options)
    assert compact(table, target_file_size_bytes=1).compacted_files == 0
    assert compact(table, target_file_size_bytes=50_000).compacted_files > 0
    assert 2 <= table.files() < 10
    assert table.values() == list(range(3_000))


# --- ended in the middle -------------------------------------------------------------------------


class Ended(BaseException):
    """As a kill: nothing is tidied up."""


STEPS = pytest.mark.parametrize("step", ["write_compacted", "_link", "_move", "_remove"])


@pytest.mark.parametrize("goes_on", ["load", "compact"])
@PARQUET
@STEPS
def test_ended_before_or_behind_any_of_its_steps_it_is_finished_by_the_next_run(
    new_topic: NewTopic,
    table: Table,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    goes_on: str,
) -> None:
    topic, again = new_topic(2), new_topic(2)
    bootstrap = options["bootstrap_servers"]
    send(bootstrap, topic, 0, 4_000, 2)
    bradbury.load(topic, table.to, partition_by="day", commit_records=400, **options)
    of = parquet_target if step == "write_compacted" else parquet_target.ParquetTarget
    real = getattr(of, step)
    calls = 0

    def end(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        # The first move and removal finish the commit before; the second is of the first folder.
        if calls == 3:
            raise Ended
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(of, step, end)
        with pytest.raises(Ended):
            compact(table)
    # Who follows the commits sees each record once, also now.
    bradbury.replay(table.to, again, keep_partitions=True, bootstrap_servers=bootstrap)
    assert seen(bootstrap, again) == seen(bootstrap, topic)
    if goes_on == "load":
        assert bradbury.load(topic, table.to, partition_by="day", **options).records == 0
    else:
        compact(table)
        assert table.files() == 3
    assert table.values() == list(range(4_000))
    assert not any((Path(table.to) / "_bradbury" / "staging").glob("*"))
    send(bootstrap, topic, 4_000, 4_100, 2)
    assert bradbury.load(topic, table.to, partition_by="day", **options).records == 100
    assert table.values() == list(range(4_100))
    options = {"keep_partitions": True, "bootstrap_servers": bootstrap}
    assert bradbury.replay(table.to, again, **options).records == 100


PROGRAM = """
import json, sys, bradbury
topic, to, options = sys.argv[1:]
print("begun", flush=True)
bradbury.load(topic, to, **json.loads(options), commit_records=200, partition_by="day",
              compact_after=2, on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@FORMATS
@pytest.mark.slow
@pytest.mark.long  # killed again and again
def test_killed_again_and_again_each_record_is_there_once(
    new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    """A line is printed just before a compaction begins."""
    topic, again, bootstrap = new_topic(2), new_topic(2), options.pop("bootstrap_servers")
    del options["compact_after"]
    send(bootstrap, topic, 0, 5_000, 2)
    given = json.dumps({**options, "bootstrap_servers": bootstrap})
    assert kill_at(PROGRAM, [topic, table.to, given], (2, 3, 4, 5, 1_000)) == 4
    assert table.values() == list(range(5_000))
    catalog = {k: v for k, v in options.items() if k != "value_decoder"}
    bradbury.replay(table.to, again, keep_partitions=True, bootstrap_servers=bootstrap, **catalog)
    assert seen(bootstrap, again) == seen(bootstrap, topic)


COMPACTION = """
import json, sys, bradbury
to, options = sys.argv[1:]
print("begun", flush=True)
print(bradbury.load("any", to, compact=True, **json.loads(options)).compacted_files, flush=True)
print("done", flush=True)
"""


@FORMATS
@pytest.mark.slow
@pytest.mark.long  # killed again and again
def test_a_compaction_that_is_killed_is_done_by_the_next_one(
    new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic = new_topic(2)
    send(options["bootstrap_servers"], topic, 0, 5_000, 2)
    bradbury.load(topic, table.to, commit_records=100, partition_by="hour", **options)
    given = json.dumps({k: v for k, v in table.options.items() if k != "value_decoder"})
    assert kill_at(COMPACTION, [table.to, given], (0, 0, 0, 0)) == 4
    compact(table)
    assert table.files() == len(set(table.rows()["hour"].to_pylist()))
    assert table.values() == list(range(5_000))
    assert bradbury.load(topic, table.to, partition_by="hour", **options).commits == 0


# --- replays -------------------------------------------------------------------------------------


@FORMATS
def test_a_replay_goes_on_in_a_table_that_was_compacted_meanwhile(
    new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic, again = new_topic(2), new_topic(2)
    bootstrap = options["bootstrap_servers"]
    catalog = {k: v for k, v in table.options.items() if k != "value_decoder"}
    replay = {**catalog, "keep_partitions": True, "bootstrap_servers": bootstrap}
    send(bootstrap, topic, 0, 1_000, 2)
    bradbury.load(topic, table.to, commit_records=150, partition_by="day", **options)

    first: list[int] = []

    def end(progress: Any) -> None:
        first.append(progress.records)
        if progress.commits == 3:
            raise Ended

    with pytest.raises(Ended):
        bradbury.replay(table.to, again, commit_records=70, on_progress=end, **replay)
    compact(table)

    def compact_once_more(progress: Any) -> None:
        if progress.commits == 2:
            send(bootstrap, topic, 1_000, 1_100, 2)
            bradbury.load(topic, table.to, commit_records=40, partition_by="day", **options)
            assert compact(table).compacted_files > 3

    done = bradbury.replay(
        table.to, again, commit_records=70, on_progress=compact_once_more, **replay
    )
    assert done.records == 1_000 - first[-1]
    assert bradbury.replay(table.to, again, **replay).records == 100
    assert seen(bootstrap, again) == seen(bootstrap, topic)
    assert bradbury.replay(table.to, again, **replay).records == 0


@PARQUET
def test_a_file_that_was_taken_away_is_named(
    bootstrap: str, new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic, again = new_topic(), new_topic()
    send(bootstrap, topic, 0, 300, 1)
    bradbury.load(topic, table.to, commit_records=100, **options)
    compact(table)
    for file in Path(table.to).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ReplayFailed, match="compacted.*was removed"):
        bradbury.replay(table.to, again, bootstrap_servers=bootstrap)


# --- others --------------------------------------------------------------------------------------


@FORMATS
def test_where_nothing_was_loaded_nothing_is_compacted_or_made(
    table: Table, tmp_path: Path
) -> None:
    with pytest.raises(LoadFailed, match="nothing"):
        compact(table)
    assert not (tmp_path / "table").exists()
    for wrong in ({"continuous": True}, {"engine": "ray"}, {"compact_after": 0}):
        with pytest.raises(ValueError, match="compact"):
            compact(table, **wrong)


def test_a_delta_table_may_be_compacted_by_others_while_a_load_commits(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, table = new_topic(), Table("delta", tmp_path, {})
    send(bootstrap, topic, 0, 100, 1)

    def optimize(_: object) -> None:
        deltalake.DeltaTable(table.to).optimize.compact()

    done = bradbury.load(
        topic,
        table.to,
        bootstrap_servers=bootstrap,
        commit_records=10,
        on_progress=optimize,
        **table.options,
    )
    assert (done.records, done.compacted_files) == (100, 0)
    assert table.values() == list(range(100))


@PARQUET
@pytest.mark.parametrize("damaged", [b"PAR1, once", b"PAR1" + bytes(range(40)) + b"\x20\0\0\0PAR1"])
def test_files_that_no_load_wrote_are_left_alone_and_damaged_ones_named(
    bootstrap: str, new_topic: NewTopic, table: Table, options: dict[str, Any], damaged: bytes
) -> None:
    topic, folder = new_topic(), Path(table.to)
    send(bootstrap, topic, 0, 300, 1)
    bradbury.load(topic, table.to, commit_records=100, **options)
    (folder / "mine.parquet").write_bytes(b"not yours")
    assert compact(table).compacted_files == 3
    assert (folder / "mine.parquet").read_bytes() == b"not yours"
    send(bootstrap, topic, 300, 400, 1)
    bradbury.load(topic, table.to, **options)
    newest = max(file for file in folder.glob("0*.parquet") if "compacted" not in file.name)
    newest.write_bytes(damaged)
    with pytest.raises(LoadFailed, match="cannot be compacted"):
        compact(table)
    assert len(list(folder.glob("0*.parquet"))) == 2


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_an_iceberg_compaction_says_how_far_the_table_is_and_leaves_deleted_rows_deleted(
    bootstrap: str, new_topic: NewTopic, table: Table, options: dict[str, Any]
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 300, 1)
    bradbury.load(topic, table.to, commit_records=50, **options)
    loaded = table.iceberg().current_snapshot().summary["bradbury.load"]
    table.iceberg().delete("value = '7'")
    compact(table)
    found = table.iceberg()
    assert found.current_snapshot().summary["bradbury.load"] == loaded
    assert found.current_snapshot().summary["bradbury.compaction"] == "true"
    assert table.values() == [*range(7), *range(8, 300)]
    old = [one.snapshot_id for one in found.snapshots()][:-1]
    found.maintenance.expire_snapshots().by_ids(old).commit()
    assert bradbury.load(topic, table.to, **options).commits == 0
    # It is read as it was before its compaction, too.
    send(bootstrap, topic, 300, 310, 1)
    bradbury.load(topic, table.to, **options)
    assert len(table.values()) == 309


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_of_a_compaction_and_another_commit_at_once_one_is_there(
    bootstrap: str,
    new_topic: NewTopic,
    table: Table,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 0, 300, 1)
    bradbury.load(topic, table.to, commit_records=50, **options)
    send(bootstrap, topic, 300, 400, 1)
    from bradbury.pipelines.loads import iceberg_target

    real = iceberg_target.write_row_groups
    others = itertools.count()

    def write(*arguments: Any) -> None:
        real(*arguments)
        if next(others) == 0:
            bradbury.load(topic, NAMED, **options)

    monkeypatch.setattr(iceberg_target, "write_row_groups", write)
    with pytest.raises(LoadFailed, match="was changed meanwhile"):
        compact(table)
    assert table.values() == list(range(400))
    assert compact(table).compacted_files == 7
    assert table.values() == list(range(400))

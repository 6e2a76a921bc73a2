"""Does a table have each record once where tasks of Spark or Ray load it, and fail on the way?"""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.loads import load_task
from bradbury.pipelines.loads.load_target import LoadFailed
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.pipelines.ranges.value_decoder import UndecodableValue
from bradbury.tests.pipelines.loads.loaded_table import Table, send
from bradbury.tests.support.killed_program import kill_at

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.long,  # a Spark job, or Ray tasks, for each commit
]

NewTopic = Callable[..., str]


@pytest.fixture(params=["spark", "ray"])
def engine(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue("spark" if request.param == "spark" else "ray_cluster")
    return str(request.param)


FORMATS = pytest.mark.parametrize("table", ["parquet", "delta", "iceberg"], indirect=True)
PARQUET = pytest.mark.parametrize("table", ["parquet"], indirect=True)


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path, catalog: dict[str, str]) -> Table:
    return Table(request.param, tmp_path, catalog)


@FORMATS
def test_its_tasks_load_each_record_once_and_the_next_load_goes_on(
    bootstrap: str, new_topic: NewTopic, engine: str, table: Table
) -> None:
    topic = new_topic(3)
    options = {**table.options, "bootstrap_servers": bootstrap, "engine": engine, "tasks": 4}
    send(bootstrap, topic, 0, 3_000, 3)
    done = bradbury.load(topic, table.to, partition_by="day", commit_records=1_500, **options)
    assert (done.records, done.behind) == (3_000, 0)
    assert 2 <= done.commits <= 3
    found = table.rows()
    assert sorted(map(int, found["value"].to_pylist())) == list(range(3_000))
    assert len(set(found["day"].to_pylist())) == 3
    assert bradbury.load(topic, table.to, partition_by="day", **options).commits == 0
    send(bootstrap, topic, 3_000, 3_100, 3)
    here = {**options, "engine": "local", "tasks": None}
    assert bradbury.load(topic, table.to, partition_by="day", **here).records == 100
    assert table.values() == list(range(3_100))


def test_what_its_tasks_have_loaded_is_replayed_in_order(
    bootstrap: str,
    new_topic: NewTopic,
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A path is of the directory in which `load` is called, wherever its tasks run."""
    monkeypatch.chdir(tmp_path)
    topic, again, to = new_topic(2), new_topic(2), "table"
    send(bootstrap, topic, 0, 1_000, 2)
    bradbury.load(topic, to, bootstrap_servers=bootstrap, engine=engine, tasks=5)
    bradbury.replay(to, again, keep_partitions=True, bootstrap_servers=bootstrap)
    with bradbury.Consumer(bootstrap=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([(again, 0), (again, 1)])
        consumer.seek_to_beginning()
        found: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 1_000:
            for record in consumer.records(timeout_ms=100):
                found[record.partition].append(int(record.value or b""))
    assert found == {0: list(range(0, 1_000, 2)), 1: list(range(1, 1_000, 2))}


@PARQUET
def test_what_a_task_refuses_is_said_as_it_is_and_nothing_is_changed(
    bootstrap: str,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    engine: str,
    table: Table,
) -> None:
    topic = new_topic(2)
    options = {**table.options, "bootstrap_servers": bootstrap, "engine": engine, "tasks": 2}
    send(bootstrap, topic, 0, 100, 2)
    bradbury.load(topic, table.to, **options)
    producer.send_batch(topic, [b"\xff\xfe"], partition=1).result(60)
    with pytest.raises(UndecodableValue, match=f"{topic}-1"):
        bradbury.load(topic, table.to, **options)
    assert table.values() == list(range(100))
    admin.delete_records({(topic, 1): 51})
    with pytest.raises(DataLoss):
        bradbury.load(topic, table.to, **options)
    assert table.values() == list(range(100))
    send(bootstrap, topic, 100, 110, 2)
    done = bradbury.load(topic, table.to, **options, fail_on_data_loss=False)
    assert done.records == 10
    assert table.values() == list(range(110))


def _fails_once(folder: str) -> Callable[[load_task.LoadTask], load_task.TaskResult]:
    """Behind its files: they are there, and of no commit."""
    run = load_task.run_task

    def run_task(task: load_task.LoadTask) -> load_task.TaskResult:
        result = run(task)
        try:
            os.close(os.open(f"{folder}/{task.number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return result
        raise OSError("the first run of this task is lost")

    return run_task


@FORMATS
def test_a_task_that_is_run_again_doubles_nothing(
    bootstrap: str,
    new_topic: NewTopic,
    engine: str,
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, lost = new_topic(2), tmp_path / "lost"
    lost.mkdir()
    send(bootstrap, topic, 0, 400, 2)
    monkeypatch.setattr("bradbury.pipelines.loads.load_engine.run_task", _fails_once(str(lost)))
    options = {**table.options, "bootstrap_servers": bootstrap, "engine": engine, "tasks": 3}
    assert bradbury.load(topic, table.to, **options).records == 400
    assert len(list(lost.iterdir())) == 3
    assert table.values() == list(range(400))


def _always_fails(task: load_task.LoadTask) -> load_task.TaskResult:
    raise OSError("no such luck")


@PARQUET
def test_a_task_that_fails_for_good_ends_the_load_in_a_line(
    bootstrap: str,
    new_topic: NewTopic,
    engine: str,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(2)
    options = {**table.options, "bootstrap_servers": bootstrap, "engine": engine, "tasks": 2}
    send(bootstrap, topic, 0, 10, 2)
    with monkeypatch.context() as patched:
        patched.setattr("bradbury.pipelines.loads.load_engine.run_task", _always_fails)
        with pytest.raises(LoadFailed, match="failed: .*no such luck") as caught:
            bradbury.load(topic, table.to, **options)
    assert "\n" not in str(caught.value)
    assert bradbury.load(topic, table.to, **options).records == 10
    assert table.values() == list(range(10))


PROGRAM = """
import json, sys, bradbury
from bradbury.pipelines.spark.session import local_session
topic, to, options, ray_address = sys.argv[1:]
options = json.loads(options)
if options["engine"] == "ray":
    import ray
    ray.init(ray_address, namespace="bradbury", log_to_driver=False)
else:
    session = local_session(master="local[2]", bootstrap=options["bootstrap_servers"])
    session.sparkContext.setLogLevel("OFF")
print("begun", flush=True)
bradbury.load(topic, to, **options, tasks=2, commit_records=400,
              on_progress=lambda progress: print(progress.records, flush=True))
print("done", flush=True)
"""


@FORMATS
@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_killed_again_and_again_each_record_is_there_once(
    bootstrap: str, new_topic: NewTopic, table: Table, engine: str, ray_cluster: str
) -> None:
    """Files are compacted between its commits."""
    topic = new_topic(2)
    send(bootstrap, topic, 0, 5_000, 2)
    options = {
        **table.options,
        "bootstrap_servers": bootstrap,
        "engine": engine,
        "compact_after": 4,
    }
    arguments = [topic, table.to, json.dumps(options), ray_cluster]
    kills = kill_at(PROGRAM, arguments, (1, 2, 3, 1_000))
    assert kills == 3
    assert table.values() == list(range(5_000))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": "flink"}, "use local, spark, ray"),
        ({"tasks": 2}, "with engine='spark' or 'ray'"),
        ({"engine": "ray", "tasks": 0}, "use 1 or more"),
        ({"engine": "ray", "executors": 2}, "with engine='spark'"),
        ({"executors": 2}, "executors=2: use 1 or more, with engine='spark'"),
        ({"engine": "spark", "executor_cores": 2}, "executor_cores=2: only with executors=N"),
        ({"executor_memory": "2g"}, "executor_memory=2g: only with executors=N"),
        ({"engine": "spark", "executors": 1, "executor_cores": 0}, "executor_cores=0: use 1"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    to = tmp_path / "table"
    with pytest.raises(ValueError, match=said):
        bradbury.load(new_topic(), str(to), bootstrap_servers=bootstrap, **wrong)
    assert not to.exists()


def test_a_continuous_load_of_tasks_ends_when_it_is_stopped(
    bootstrap: str, new_topic: NewTopic, engine: str, tmp_path: Path
) -> None:
    topic, to, stop = new_topic(2), str(tmp_path / "table"), threading.Event()
    send(bootstrap, topic, 0, 10, 2)

    def go_on(progress: Any) -> None:
        if progress.records < 30:
            send(bootstrap, topic, progress.records, progress.records + 10, 2)
        else:
            stop.set()

    done = bradbury.load(
        topic,
        to,
        bootstrap_servers=bootstrap,
        engine=engine,
        continuous=True,
        commit_interval_s=0.1,
        stop=stop,
        on_progress=go_on,
    )
    assert done.records == 30

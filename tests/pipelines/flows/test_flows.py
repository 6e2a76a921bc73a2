"""Do flows bring each record to their targets once, whatever ended the runs before?"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import bradbury
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.ray.ray_nodes import wait_for

pytestmark = [pytest.mark.slow]
EXAMPLES = Path(__file__).parents[3] / "examples" / "flow"
TOPICS = ("flow-flights", "flow-planes", "flow-late", "flow-delays", "flow-scores")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            for topic in TOPICS:
                admin.create_topic(topic, partitions=2)
        yield cluster.bootstrap_servers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, as they leave checkpoints and tables beside them."""
    for file in EXAMPLES.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def command(folder: Path, flow: str, servers: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "bradbury.cli", "flow", "run", str(folder / flow)]
    return [*words, "--bootstrap", servers, *more]


def run(folder: Path, flow: str, servers: str, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        command(folder, flow, servers, "--once", "--json", *more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def values(servers: str, topic: str) -> list[Any]:
    """All committed ones."""
    return [json.loads(each.value or b"{}") for each in committed_records(servers, topic)]


def fly(servers: str, start: int, end: int, topic: str = "flow-flights") -> None:
    with bradbury.Producer(servers) as producer:
        for number in range(start, end):
            flight = {"tail": f"t{number % 3}", "delay": number}
            producer.send(topic, json.dumps(flight), key=flight["tail"])


@pytest.mark.long  # a Spark session and a cluster of its own
@pytest.mark.spark
def test_the_example_of_spark_joins_into_a_topic_and_a_table(servers: str, folder: Path) -> None:
    with bradbury.Producer(servers) as producer:
        for number in range(2):
            plane = {"tail": f"t{number}", "model": f"m{number}"}
            producer.send("flow-planes", json.dumps(plane), key=plane["tail"])
    fly(servers, 0, 30)
    done = run(folder, "delays.yaml", servers)
    assert done["late"] == {"records": 30, "batches": 1, "behind": 0}
    fly(servers, 30, 40)
    assert run(folder, "delays.yaml", servers)["late"]["records"] == 10
    late = values(servers, "flow-late")
    assert sorted(each["delay"] for each in late) == list(range(16, 40))
    assert {each["tail"]: each.get("model") for each in late} == {
        "t0": "m0",
        "t1": "m1",
        "t2": None,
    }
    table = ds.dataset(folder / "tables" / "late", format="parquet", partitioning="hive").to_table()
    assert sorted(table["delay"].to_pylist()) == list(range(16, 40))


@pytest.mark.long  # a Spark session of its own; test_flow_tables has the rules
@pytest.mark.spark
def test_tables_of_delta_and_iceberg_have_each_row_once(servers: str, folder: Path) -> None:
    """Also where a run ended between the commit in the table and Spark's own note of it."""
    with bradbury.Admin(servers) as admin:
        admin.create_topic("table-flights", 2)
    (folder / "tables.yaml").write_text(f"""
name: tables
sources:
  flights: {{topic: table-flights, value: json, schema: "tail string, delay int"}}
steps:
  late: {{sql: "SELECT tail, delay, _timestamp AS at FROM flights WHERE delay >= 5"}}
targets:
  delta: {{table: tables/delta, format: delta, partition_by: tail}}
  iceberg:
    table: db.late
    format: iceberg
    catalog: {{type: sql, uri: "sqlite:///{folder}/catalog.db", warehouse: "file://{folder}/lake"}}
""")

    def delays() -> tuple[list[int], list[int]]:
        of_delta = DeltaTable(folder / "tables" / "delta").to_pyarrow_table()
        catalog = load_catalog(
            "default",
            type="sql",
            uri=f"sqlite:///{folder}/catalog.db",
            warehouse=f"file://{folder}/lake",
        )
        of_iceberg = catalog.load_table("db.late").scan().to_arrow()
        for table in (of_delta, of_iceberg):
            assert table.schema.field("at").type == pa.timestamp("us", "UTC")
        return sorted(of_delta["delay"].to_pylist()), sorted(of_iceberg["delay"].to_pylist())

    fly(servers, 0, 30, "table-flights")
    assert run(folder, "tables.yaml", servers)["delta"] == {
        "records": 30,
        "batches": 1,
        "behind": 0,
    }
    expected = list(range(5, 30))
    assert delays() == (expected, expected)
    for target in ("delta", "iceberg"):
        commits = folder / "checkpoints" / "tables" / target / "commits"
        for note in (*commits.glob("0"), *commits.glob(".0.crc")):
            note.unlink()
    fly(servers, 30, 40, "table-flights")
    run(folder, "tables.yaml", servers)
    expected = list(range(5, 40))
    assert delays() == (expected, expected)

    file = folder / "tables.yaml"
    file.write_text(
        file.read_text()
        .replace("name: tables", "name: others")
        .replace("SELECT tail,", "SELECT tail AS plane, tail,")
    )
    refused = subprocess.run(
        command(folder, "tables.yaml", servers, "--once"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert refused.returncode == 1
    said = refused.stderr.strip().splitlines()[-1]
    assert re.search(r"targets\.(delta|iceberg): .*(tables/delta|db\.late)", said), refused.stderr
    assert "plane" in said
    assert delays() == (expected, expected)


KILLED = """
name: killed
sources:
  flights:
    topic: killed-flights
    value: json
    schema: "tail string, delay int"
    options: {maxOffsetsPerTrigger: 12}
  planes: {topic: killed-planes, value: json, schema: "tail string, model string", stream: false}
  all_flights: {topic: killed-flights, value: json, schema: "tail string, delay int", stream: false}
steps:
  late: {sql: "SELECT tail, delay FROM flights WHERE delay > 15"}
  named: {python: "steps.py:with_models", of: [late, planes]}
  sums: {sql: "SELECT tail, count(*) AS flights, sum(delay) AS delay FROM all_flights GROUP BY tail"}
targets:
  late: {of: named, topic: killed-late, key: tail}
  history: {of: named, table: tables/history, partition_by: model}
  delta: {of: late, table: tables/delta, format: delta, partition_by: tail}
  sums: {of: sums, table: tables/sums}
  totals: {of: sums, topic: killed-sums, key: tail}
"""


def commits(folder: Path, target: str) -> int:
    """Micro-batches of a target that Spark has noted as done."""
    files = (folder / "checkpoints" / "killed" / target / "commits").glob("[0-9]*")
    return len(list(files))


def wait_for_commits(folder: Path, target: str, count: int) -> None:
    wait_for(lambda: commits(folder, target) >= count, 240, f"{target} has not {count} batches")


def streamed_rows(table: Path) -> list[dict[str, Any]]:
    """Rows of the files that count by Spark's list; those of killed batches are beside them."""
    added: set[str] = set()
    listed = sorted((table / "_spark_metadata").glob("[0-9]*"), key=lambda one: int(one.stem))
    for note in listed:
        entries = [json.loads(line) for line in note.read_text().splitlines()[1:]]
        added |= {unquote(urlsplit(one["path"]).path) for one in entries if one["action"] == "add"}
    found = ds.dataset(sorted(added), format="parquet", partitioning=ds.partitioning(flavor="hive"))
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


@pytest.mark.spark
@pytest.mark.long
def test_a_flow_of_spark_is_killed_interrupted_and_in_the_end_topics_and_tables_are_a_batchs(
    servers: str, folder: Path
) -> None:
    (folder / "delays.yaml").write_text(KILLED)
    with bradbury.Admin(servers) as admin:
        for topic in ("killed-flights", "killed-planes", "killed-late", "killed-sums"):
            admin.create_topic(topic, 2)
    with bradbury.Producer(servers) as producer:
        for plane in range(3):
            producer.send("killed-planes", json.dumps({"tail": f"t{plane}", "model": f"m{plane}"}))
    words = command(folder, "delays.yaml", servers)
    kill, interrupt = signal.SIGKILL, signal.SIGINT
    for start, number, target in (
        (0, kill, "late"),
        (60, kill, "delta"),
        (120, interrupt, "late"),
    ):
        fly(servers, start, start + 60, "killed-flights")
        before = {one: commits(folder, one) for one in ("late", "history", "delta")}
        # A group, as a terminal has one: Ctrl-C reaches the JVM and its workers, too.
        with ChildProcess(
            words, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            wait_for_commits(folder, target, before[target] + 2)
            os.killpg(running.pid, number)
            assert running.stderr is not None
            said = running.stderr.read()
        assert running.returncode == (0 if number == interrupt else -number), said
        if start == 0:
            assert min(commits(folder, one) for one in before) < 5, "the kill came too late"
    done = run(folder, "delays.yaml", servers)
    assert done["late"]["behind"] in (0, None)
    assert done["sums"] == {"records": None, "batches": 1, "behind": 0}

    wanted = [{"tail": f"t{n % 3}", "delay": n, "model": f"m{n % 3}"} for n in range(16, 180)]

    def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: int(row["delay"]))

    assert in_order(values(servers, "killed-late")) == wanted
    assert in_order(streamed_rows(folder / "tables" / "history")) == wanted
    of_delta = DeltaTable(folder / "tables" / "delta").to_pyarrow_table().to_pylist()
    assert in_order(of_delta) == [{"tail": row["tail"], "delay": row["delay"]} for row in wanted]
    sums = [{"tail": f"t{n}", "flights": 60, "delay": sum(range(n, 180, 3))} for n in range(3)]
    assert in_order(ds.dataset(folder / "tables" / "sums").to_table().to_pylist()) == sums
    last = {row["tail"]: row for row in values(servers, "killed-sums")}
    assert in_order(list(last.values())) == sums


SLOW = """
name: slow
sources: {flights: {topic: slow-flights, value: utf8, stream: false}}
steps: {slept: {python: "slow.py:slept"}}
targets: {slept: {table: tables/slept}}
"""
SLOW_STEPS = '''
import time
from pathlib import Path
from pyspark.sql import functions as f


def slept(flights):
    """Takes a day, and says when it has begun."""
    @f.udf("string")
    def sleep(value):
        Path("{begun}").touch()
        time.sleep(86_400)
        return value

    return flights.select(sleep("value").alias("value"))
'''


@pytest.mark.spark
@pytest.mark.long
def test_a_whole_result_that_takes_long_is_interrupted(servers: str, folder: Path) -> None:
    begun = folder / "begun"
    (folder / "slow.yaml").write_text(SLOW)
    (folder / "slow.py").write_text(SLOW_STEPS.replace("{begun}", str(begun)))
    with bradbury.Admin(servers) as admin:
        admin.create_topic("slow-flights", 1)
    fly(servers, 0, 1, "slow-flights")
    with ChildProcess(
        command(folder, "slow.yaml", servers), stderr=subprocess.PIPE, text=True
    ) as running:
        wait_for(begun.exists, 240, "the step has not begun")
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        said = running.stderr.read()
    assert running.returncode == 0, said
    assert "slept: not written yet" in said


@pytest.mark.spark
@pytest.mark.deep  # three JVMs
def test_a_part_that_fails_is_named_in_a_line(servers: str, folder: Path) -> None:
    file = folder / "delays.yaml"
    text = file.read_text()
    for broken, said in (
        (text.replace("delay > 15", "speed > 15"), r"delays\.yaml: steps\.late: .*speed"),
        (
            text.replace("key: tail", "key: nobody"),
            r"delays\.yaml: targets\.late: there is no column",
        ),
        (
            text.replace("flow-flights", "nowhere"),
            r"delays\.yaml: sources\.flights: .*nowhere.* does not exist",
        ),
    ):
        file.write_text(broken)
        done = subprocess.run(
            command(folder, "delays.yaml", servers, "--once"),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        (line,) = [one for one in done.stderr.splitlines() if one.startswith("error: ")]
        assert re.search(said, line), line


RAY = """
import sys, ray
from bradbury.cli.main import run
ray.init("local", num_cpus=2, include_dashboard=False, logging_level="error")
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def ray_program(tmp_path: Path) -> Path:
    """The command in a process that has a Ray of its own, and never that of another test or of a killed process
    (which lives on for a moment)."""
    program = tmp_path / "with_ray.py"
    program.write_text(RAY)
    return program


@pytest.mark.ray
@pytest.mark.long
def test_the_example_of_ray_data_is_killed_and_goes_on(
    servers: str, folder: Path, ray_program: Path
) -> None:
    file = folder / "scores.yaml"
    file.write_text(file.read_text() + "commit_records: 40\n")

    def delays(start: int, end: int) -> None:
        with bradbury.Producer(servers) as producer:
            for number in range(start, end):
                producer.send("flow-delays", str(number), key=f"k{number}")

    def once(words: list[str]) -> str:
        done = subprocess.run(
            [*words, "--once"], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 1, done.stderr
        return done.stderr

    words = [sys.executable, str(ray_program), *command(folder, "scores.yaml", servers)[3:]]
    delays(0, 200)
    with ChildProcess(words, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "so far" in line:
                running.send_signal(signal.SIGKILL)
                break
    delays(200, 300)
    done = subprocess.run(
        [*words, "--once", "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{\n") :])["scores"]["behind"] == 0
    found = sorted(values(servers, "flow-scores"), key=lambda each: each["score"])
    assert [each["key"] for each in found] == [f"k{number}" for number in range(300)]
    delays(300, 400)
    broken = folder / "broken.yaml"
    broken.write_text(file.read_text().replace("value: utf8", 'value: avro, schema: {"n": "long"}'))
    with bradbury.Admin(servers) as admin:
        wrong = once([*words[:2], *command(folder, "broken.yaml", servers)[3:]])
        admin.delete_records({("flow-delays", partition): "latest" for partition in range(2)})
    assert "sources.delays: value_schema is not an Avro schema" in wrong
    assert "`bradbury groups reset-offsets bradbury-flow-scores --topic flow-delays" in once(words)

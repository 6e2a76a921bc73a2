"""`bradbury load` as people and scripts run it."""

import io
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pyarrow.dataset as ds
import pytest

from bradbury import LocalCluster, Producer, RegistrySerializer
from bradbury.tests.support.command_line import Command, command_under_way
from bradbury.tests.support.schema_registry import registry_server

pytestmark = pytest.mark.usefixtures("found_cluster")


@pytest.fixture
def topic(bradbury_cluster: LocalCluster, bradbury_topic: str) -> str:
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic, partitions=2)
    return bradbury_topic


def rows(table: Path) -> list[str]:
    found = ds.dataset(table, format="parquet", partitioning="hive").to_table()
    return sorted(found["value"].to_pylist())


def test_it_says_what_it_has_done_and_adds_what_is_new(
    process: Command, command: Command, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    line = ("load", topic, "--to", str(table), "--value", "utf8", "--partition-by", "hour")
    process("produce", topic, stdin=b"a\nb\n")
    done = command(*line)
    assert done.code == 0, done.err
    assert f"2 records into {table}" in done.err
    process("produce", topic, stdin=b"c\n")
    assert json.loads(command(*line, "--json").out) == {
        "records": 1,
        "commits": 1,
        "compacted_files": 0,
        "to": str(table),
    }
    assert rows(table) == ["a", "b", "c"]
    assert command("load", topic, "--to", str(table)).error.startswith(f"{table} has other columns")


def test_what_cannot_be_is_said_in_a_line(command: Command, topic: str, tmp_path: Path) -> None:
    to = str(tmp_path / "table")
    assert "does not exist" in command("load", "nowhere", "--to", to).error
    assert (
        "there is no column 'price'"
        in command("load", topic, "--to", to, "--columns", "price").usage
    )
    assert "--format" in command("load", topic, "--to", to, "--format", "csv").usage
    assert "use the format delta" in command("load", topic, "--to", "s3://bucket/table").usage
    assert not Path("s3:").exists()
    assert "with engine='spark'" in command("load", topic, "--to", to, "--executors", "2").usage
    spark = ["load", topic, "--to", to, "--engine", "spark"]
    assert "only with executors=N" in command(*spark, "--executor-cores", "2").usage
    assert "only with executors=N" in command(*spark, "--executor-memory", "2g").usage


def test_values_are_columns_as_a_schema_says(
    process: Command, command: Command, topic: str, tmp_path: Path
) -> None:
    table, schema = tmp_path / "table", tmp_path / "orders.json"
    schema.write_text('{"customer": "string", "total": "double", "at": "timestamp"}')
    value = '{"customer": "ann", "total": 12.5, "at": "2026-07-01T12:00:00Z", "more": 1}'
    process("produce", topic, stdin=f"{value}\n".encode())
    line = ("load", topic, "--to", str(table), "--value", "json", "--schema", str(schema))
    done = command(*line)
    assert done.code == 0, done.err
    (found,) = ds.dataset(table, format="parquet").to_table()["value"].to_pylist()
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert found == {"customer": "ann", "total": 12.5, "at": noon}
    process("produce", topic, stdin=b"ann\n")
    assert "is not json" in command(*line).error
    assert "needs --schema FILE" in command(*line[:-2]).usage
    assert "leave --schema out" in command(*line[:4], "--schema", str(schema)).usage
    schema.write_text('{"total": "money"}')
    assert "total has the type 'money'" in command(*line).usage
    assert "cannot be read" in command(*line[:-1], str(tmp_path / "none")).usage


def test_avro_values_are_columns_as_an_avsc_says(
    process: Command,
    command: Command,
    bradbury_cluster: LocalCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), {"n": 7})
    with Producer(bradbury_cluster.bootstrap_servers) as producer:
        producer.send(topic, content.getvalue())
    table, file = tmp_path / "table", tmp_path / "order.avsc"
    file.write_text(json.dumps(schema))
    line = ("load", topic, "--to", str(table), "--value", "avro", "--schema", str(file))
    done = command(*line)
    assert done.code == 0, done.err
    assert ds.dataset(table, format="parquet").to_table()["value"].to_pylist() == [{"n": 7}]
    file.write_text('{"type": "money"}')
    assert "is not an Avro schema" in command(*line).usage
    file.write_text('{"n": "long"}')
    said = f"the schema {file} is not an Avro schema: it, or an object in it, has no 'type'"
    assert said in command(*line).usage


def test_small_files_are_compacted_alone_and_by_a_load(
    process: Command, command: Command, topic: str, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    line = ("load", topic, "--to", str(table), "--value", "utf8")
    for text in (b"a\n", b"b\n", b"c\n"):
        process("produce", topic, stdin=text)
        assert command(*line).code == 0
    done = command("load", topic, "--to", str(table), "--compact", "--target-file-size", "1GB")
    assert done.err == f"3 small files of {table} compacted\n"
    assert rows(table) == ["a", "b", "c"]
    process("produce", topic, stdin=b"d\n")
    said = json.loads(command(*line, "--compact-after", "2", "--json").out)
    assert (said["records"], said["compacted_files"]) == (1, 0)  # it is smaller than the other
    nowhere = command("load", topic, "--to", str(tmp_path / "none"), "--compact")
    assert "nothing is loaded into" in nowhere.error
    assert "is not a size" in command(*line, "--target-file-size", "big").usage
    assert "use 2 or more" in command(*line, "--compact-after", "1").usage


def test_without_a_ray_its_tasks_have_nowhere_to_run(
    process: Command, topic: str, tmp_path: Path
) -> None:
    said = process("load", topic, "--to", str(tmp_path / "table"), "--engine", "ray").error
    assert "bradbury up" in said


def test_an_iceberg_table_is_named_with_its_catalog(
    process: Command, command: Command, topic: str, tmp_path: Path
) -> None:
    process("produce", topic, stdin=b"a\nb\n")
    line = ["load", topic, "--to", "plant.turbines", "--format", "iceberg"]
    described = ["type=sql", f"uri=sqlite:///{tmp_path}/c.db", f"warehouse=file://{tmp_path}"]
    catalog = [word for each in described for word in ("--catalog-property", each)]
    done = command(*line, *catalog)
    assert done.code == 0, done.err
    assert "2 records into plant.turbines" in done.err
    assert json.loads(command(*line, *catalog, "--json").out)["records"] == 0
    assert "cannot be opened" in command(*line, "--catalog-property", "type=sql").error
    assert "is not a pair" in command(*line, "--catalog-property", "sql").usage
    assert (
        "needs the format iceberg"
        in command("load", topic, "--to", str(tmp_path), "--catalog", "x").usage
    )


def test_ctrl_c_ends_a_continuous_load_after_its_commit(
    process: Command, environment: dict[str, str], topic: str, tmp_path: Path
) -> None:
    process("produce", topic, stdin=b"a\nb\n")
    table = tmp_path / "table"
    line = ["load", topic, "--to", str(table), "--value", "utf8", "--continuous"]
    with command_under_way([*line, "--commit-interval", "1"], environment) as (running, said):
        assert "2 records so far" in said.readline()
        process("produce", topic, stdin=b"c\n")
        assert "3 records so far" in said.readline()
        os.kill(running.pid, signal.SIGINT)
        assert "3 records into" in said.readline()
        assert running.wait(60) == 0
    assert rows(table) == ["a", "b", "c"]


def test_columns_by_the_schema_of_a_registry(
    process: Command,
    command: Command,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to = str(tmp_path / "table")
    line = ("load", topic, "--to", to, "--value", "avro")
    assert "or --schema-registry URL" in command(*line).usage
    assert "use http://HOST:PORT" in command(*line, "--schema-registry", "here").usage
    assert (
        "schema_registry is for value_decoder"
        in command("load", topic, "--to", to, "--schema-registry", "http://here").usage
    )
    with registry_server() as registry:
        registry.user = "ann:secret"
        assert "asks for a user" in command(*line, "--schema-registry", registry.url).error
        url = registry.url.replace("://", "://ann:secret@")
        said = command(*line, "--schema-registry", url).error
        assert f"subject '{topic}-value' is not in the schema registry {registry.url}" in said
        serialize = RegistrySerializer(url, topic, "avro", '"string"')
        process("produce", topic, stdin=(serialize("a") or b"") + b"\n")
        monkeypatch.setenv("BRADBURY_SCHEMA_REGISTRY", url)
        done = command(*line)
        assert done.code == 0, done.err
    assert rows(Path(to)) == ["a"]

"""Does a table have columns by a registry's schema, whatever schemas the records were written with?"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import bradbury
from bradbury.clients.schemas.registry_request import NotInRegistry, RegistryFailed
from bradbury.pipelines.loads.load_target import LoadFailed
from bradbury.pipelines.ranges.value_decoder import UndecodableValue
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

NewTopic = Callable[..., str]


def flight(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "tail", "type": "string"}, *more]
    return {"type": "record", "name": "Flight", "fields": fields}


DELAY = {"name": "delay", "type": "double", "default": 0.0}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def send(bootstrap: str, topic: str, registry: RegistryServer, schema: Any, *rows: Any) -> None:
    serialize = bradbury.RegistrySerializer(registry.url, topic, "avro", schema)
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(topic, pa.table({"value": serialize.column(rows)})).result(60)


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_records_of_two_schemas_are_rows_of_the_latest(
    bootstrap: str, new_topic: NewTopic, registry: RegistryServer, tmp_path: Path, table_format: str
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    send(bootstrap, topic, registry, flight(), {"tail": "a"}, None)
    send(bootstrap, topic, registry, flight(DELAY), {"tail": "b", "delay": 2.5})
    options: dict[str, Any] = {
        "format": table_format,
        "bootstrap_servers": bootstrap,
        "value_decoder": "avro",
        "schema_registry": registry.url,
    }
    assert bradbury.load(topic, str(to), **options).records == 3
    send(bootstrap, topic, registry, flight(DELAY), {"tail": "c", "delay": 1.0})
    assert bradbury.load(topic, str(to), **options).records == 1
    if table_format == "delta":
        found = pa.table(deltalake.DeltaTable(to).to_pyarrow_table())
    else:
        found = ds.dataset(to, format="parquet", partitioning="hive").to_table()
    assert found.sort_by("offset")["value"].to_pylist() == [
        {"tail": "a", "delay": 0.0},
        None,
        {"tail": "b", "delay": 2.5},
        {"tail": "c", "delay": 1.0},
    ]


def test_a_new_field_is_another_column_unless_the_schema_is_given(
    bootstrap: str, new_topic: NewTopic, registry: RegistryServer, tmp_path: Path
) -> None:
    topic, to = new_topic(), str(tmp_path / "table")
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "value_decoder": "avro",
        "schema_registry": registry.url,
    }
    send(bootstrap, topic, registry, flight(), {"tail": "a"})
    bradbury.load(topic, to, **options)
    send(bootstrap, topic, registry, flight(DELAY), {"tail": "b"})
    with pytest.raises(LoadFailed, match="has other columns"):
        bradbury.load(topic, to, **options)
    assert bradbury.load(topic, to, value_schema=flight(), **options).records == 1


def test_what_stops_a_load_is_named_and_leaves_no_rows(
    bootstrap: str, new_topic: NewTopic, registry: RegistryServer, tmp_path: Path
) -> None:
    topic, to = new_topic(), tmp_path / "table"
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "value_decoder": "avro",
        "schema_registry": registry.url,
    }
    with pytest.raises(NotInRegistry, match=f"subject '{topic}-value' is not in the schema"):
        bradbury.load(topic, str(to), **options)
    send(bootstrap, topic, registry, flight(), {"tail": "a"})
    with bradbury.Producer(bootstrap) as producer:
        producer.send(topic, b"{}", partition=0).result(30)
    with pytest.raises(UndecodableValue, match=f"the value of {topic}-0 at offset 1 is not avro"):
        bradbury.load(topic, str(to), **options)
    registry.answers += [(500, "")] * 4
    with pytest.raises(RegistryFailed, match="answers HTTP 500"):
        bradbury.load(topic, str(to), **options)
    assert not list(to.rglob("*.parquet"))

"""Do Datasets, training loops and flows of Ray have columns by a registry's schemas?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray.data

import bradbury
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.schema_registry import RegistryServer, registry_server

pytestmark = [pytest.mark.ray, pytest.mark.slow]

OLD = {"type": "record", "name": "Flight", "fields": [{"name": "number", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "delay", "type": "double", "default": -1.0},
    ],
}
ROWS = 400


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


@pytest.fixture
def flights(topic: str, registry: RegistryServer) -> str:
    """Numbers 0 to ROWS, every second one of the older schema, and tombstones."""
    serializers = [
        bradbury.RegistrySerializer(registry.url, topic, "avro", schema) for schema in (OLD, NEW)
    ]
    with bradbury.Producer() as producer:
        for number in range(ROWS):
            value = {"number": number, "delay": number / 2}
            producer.send(topic, serializers[number % 2](value), partition=number % 4)
        for partition in range(4):
            producer.send(topic, None, partition=partition)
        producer.flush()
    return topic


EXPECTED = [
    {"number": number, "delay": number / 2 if number % 2 else -1.0} for number in range(ROWS)
]


def test_a_dataset_has_the_latest_schema(flights: str, registry: RegistryServer) -> None:
    dataset = bradbury.read_topic(
        flights, columns=["value"], value_decoder="avro", schema_registry=registry.url
    )
    schema = dataset.schema()
    assert schema is not None
    assert schema.types == [pa.struct([("number", pa.int64()), ("delay", pa.float64())])]
    registry.add(f"{flights}-value", '"string"')  # which comes too late for this Dataset
    found = [row["value"] for row in dataset.take_all()]
    assert found.count(None) == 4
    rows = sorted((row for row in found if row), key=lambda row: row["number"])
    assert rows == EXPECTED


def test_a_dataset_is_written_with_ids(
    topic: str, registry: RegistryServer, cluster: bradbury.Cluster
) -> None:
    serialize = bradbury.RegistrySerializer(registry.url, topic, "avro", NEW)

    def framed(rows: pa.Table) -> pa.Table:
        return pa.table({"value": serialize.column(rows)})

    numbers = ray.data.range(ROWS).map_batches(
        lambda batch: {
            "number": batch["id"],
            "delay": np.where(batch["id"] % 2, batch["id"] / 2, -1),
        }
    )
    bradbury.write_topic(numbers.map_batches(framed, batch_format="pyarrow"), topic)
    dataset = bradbury.read_topic(
        topic, columns=["value"], value_decoder="avro", schema_registry=registry.url
    )
    rows = sorted((row["value"] for row in dataset.take_all()), key=lambda row: row["number"])
    assert rows == EXPECTED


def test_what_cannot_be_decoded_is_named(flights: str, registry: RegistryServer) -> None:
    with bradbury.Producer() as producer:
        offset = producer.send(flights, b"plain", partition=2).result(30).offset
    dataset = bradbury.read_topic(flights, value_decoder="avro", schema_registry=registry.url)
    with pytest.raises(Exception, match=f"value of {flights}-2 at offset {offset} is not avro"):
        dataset.take_all()


def test_a_training_loop_has_the_same_rows(flights: str, registry: RegistryServer) -> None:
    dataset = bradbury.TopicDataset(
        flights,
        columns=["value"],
        value_decoder="avro",
        schema_registry=registry.url,
        batch_size=64,
        batch_format="pyarrow",
    )
    found = [row for batch in dataset for row in batch["value"].to_pylist() if row]
    assert sorted(found, key=lambda row: row["number"]) == EXPECTED


def test_a_flow_reads_by_the_schema_that_was_the_latest_at_its_start(
    flights: str, registry: RegistryServer, cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    target = f"{flights}-late"
    with cluster.admin() as admin:
        admin.create_topic(target, 1)
    (tmp_path / "steps.py").write_text(
        "def late(batch):\n"
        "    values = [each for each in batch['value'].to_pylist() if each and each['delay'] > 100]\n"
        "    return {'value': [str(each['number']) for each in values]}\n"
    )
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        f"name: {flights}\n"
        f"sources: {{flights: {{topic: {flights}, value: avro, schema_registry: '{registry.url}'}}}}\n"
        "steps: {late: {map_batches: 'steps.py:late', options: {batch_format: pyarrow}}}\n"
        f"targets: {{late: {{topic: {target}, value: value}}}}\n"
    )
    bradbury.run_flow(flow, once=True, bootstrap_servers=cluster.bootstrap_servers)
    found: list[Any] = [
        int(each.value or b"") for each in committed_records(cluster.bootstrap_servers, target)
    ]
    assert sorted(found) == list(range(201, ROWS, 2))

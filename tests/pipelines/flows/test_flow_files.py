"""What is a flow, and what is said of a file that is none?"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bradbury.pipelines.flows.flow import flow_of
from bradbury.pipelines.flows.flow_file import read_flow

EXAMPLES = Path(__file__).parents[3] / "examples" / "flow"
SOURCE = {"flights": {"topic": "flights"}}
TARGET = {"late": {"topic": "late"}}


def step(batch: Any) -> Any:
    return batch


def test_the_examples_are_read_with_their_functions_and_places() -> None:
    delays = read_flow(EXAMPLES / "delays.yaml")
    assert delays.engine == "spark"
    assert [each.name for each in delays.steps] == ["late", "named"]
    assert delays.steps[1].python is not None
    assert delays.steps[1].python.__name__ == "with_models"
    assert delays.targets[0].of == "named"
    assert delays.targets[1].table == str(EXAMPLES / "tables" / "late")
    assert delays.checkpoint == str(EXAMPLES / "checkpoints" / "delays")
    scores = read_flow(EXAMPLES / "scores.yaml")
    assert scores.engine == "ray"


def test_a_python_file_has_functions_and_types_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "flow.py"
    path.write_text(
        "def double(batch):\n    return batch\n"
        "flow = {'name': 'n', 'sources': {'a': {'topic': 't', 'value': 'json', 'schema':\n"
        "        {'x': 'int64'}}}, 'steps': {'s': {'map_batches': double}},\n"
        "        'targets': {'b': {'topic': 'u'}}}\n"
    )
    flow = read_flow(path)
    assert flow.sources[0].schema == pa.schema([("x", pa.int64())])
    assert flow.steps[0].of == ("a",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "a flow is a mapping"),
        ({"name": "a b"}, "the flow's name is 'a b'"),
        ({"sources": {}}, "sources is {}; name at least one"),
        ({"targets": {}}, "targets is {}"),
        ({"sources": {"a-b": {"topic": "t"}}}, "'a-b' is not a valid name"),
        ({"sources": {"a": "t"}}, "sources.a is 't'; it must be a mapping"),
        ({"sources": {"a": {}}}, "sources.a needs one of topic, table"),
        ({"sources": {"a": {"topic": "t", "shema": 1}}}, "sources.a has 'shema'; it can have"),
        ({"sources": {"a": {"table": "t", "value": "json"}}}, "a table has no other settings"),
        ({"sources": {"a": {"table": "t"}}}, "none is a topic"),
        ({"sources": {"a": {"topic": "t", "columns": [1]}}}, "sources.a.columns is [1]"),
        (
            {"sources": {"a": {"topic": "t", "value": "jsn", "schema": "x int"}}},
            "sources.a.value is 'jsn'; use raw, utf8, json, avro, protobuf",
        ),
        (
            {
                "sources": {"a": {"topic": "t", "value": "jsn"}},
                "steps": {"s": {"map_batches": step}},
            },
            "sources.a.value is 'jsn'; use raw, utf8, json, avro, protobuf, arrow",
        ),
        ({"sources": {"a": {"topic": "t", "value": "arrow"}}}, "sources.a.value is 'arrow'; use"),
        (
            {"sources": {"a": {"topic": "t", "key": "text"}}},
            "sources.a.key is 'text'; use raw, utf8",
        ),
        (
            {"sources": {"a": {"topic": "t", "value": "json"}}},
            "sources.a: value json needs a schema",
        ),
        ({"sources": {"a": {"topic": "t", "schema": "x int"}}}, "sources.a has a schema, which is"),
        ({"steps": {"s": {}}}, "steps.s needs one of sql, python, map_batches"),
        ({"steps": {"s": {"python": 3}}}, "steps.s.python is 3; use FILE.py:FUNCTION"),
        ({"steps": {"s": {"python": step, "of": ["x"]}}}, "'x' is not a source or an earlier step"),
        ({"steps": {"s": {"sql": "SELECT 1", "of": ["flights"]}}}, "remove `of`"),
        ({"steps": {"s": {"sql": "SELECT 1", "options": {"a": 1}}}}, "only for map_batches"),
        ({"steps": {"flights": {"sql": "SELECT 1"}}}, "another source or step has this name"),
        ({"steps": {"s": {"sql": "x"}, "r": {"map_batches": step}}}, "make two flows"),
        (
            {
                "sources": {"a": {"topic": "t", "key": "utf8"}},
                "steps": {"r": {"map_batches": step}},
            },
            "sources.a.key is for Spark; with map_batches the column key has bytes",
        ),
        ({"steps": {"r": {"map_batches": step}}, "trigger": "1 second"}, "trigger is for Spark"),
        (
            {"steps": {"r": {"map_batches": step}}, "targets": {"t": {"table": "x"}}},
            "bradbury load",
        ),
        ({"targets": {"t": {"topic": "x", "of": "nobody"}}}, "no source or step 'nobody'"),
        ({"targets": {"t": {"table": "x", "key": "k"}}}, "key and value are for topics"),
        ({"targets": {"t": {"topic": "x", "output_mode": "update"}}}, "output_mode is 'update'"),
        ({"targets": {"t": {"topic": "x", "partition_by": "d"}}}, "partition_by is for tables"),
        ({"targets": {"t": {"topic": "x", "format": "delta"}}}, "for tables, not for topics"),
        ({"targets": {"t": {"table": "x", "format": "orc"}}}, "use parquet, delta, iceberg"),
        ({"targets": {"t": {"table": "x", "catalog": "c"}}}, "catalog needs format: iceberg"),
        ({"targets": {"t": {"table": "x", "format": "iceberg"}}}, "use NAMESPACE.TABLE"),
        ({"executors": -1}, "executors is -1"),
        ({"commit_records": 10}, "maxOffsetsPerTrigger"),
        ({"engine": "flink"}, "the flow has 'engine'"),
    ],
)
def test_what_is_no_flow_is_said_with_its_place(content: Any, said: str) -> None:
    whole = {"name": "n", "sources": SOURCE, "targets": TARGET}
    given = {**whole, **content} if isinstance(content, dict) else content
    with pytest.raises(ValueError) as error:
        flow_of(given, "checkpoints", lambda name: step)
    assert said in str(error.value)


def test_files_that_are_not_there_or_no_flow_are_named(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    with pytest.raises(FileNotFoundError):
        read_flow(path)
    path.write_text("a: [")
    with pytest.raises(
        ValueError, match=r"flow\.yaml is not valid YAML: line 1, column 5: "
    ) as said:
        read_flow(path)
    assert "unicode string" not in str(said.value)
    path.write_text("a: \x01")
    with pytest.raises(
        ValueError, match=r"is not valid YAML: character #x0001 at position 3"
    ) as said:
        read_flow(path)
    assert "unicode string" not in str(said.value)
    path.write_text("{name: n, sources: {a: {topic: t}}, steps: {s: {python: 'f.py:g'}}}")
    with pytest.raises(ValueError, match=r"flow\.yaml: there is no file .*f\.py"):
        read_flow(path)
    (tmp_path / "f.py").write_text("")
    with pytest.raises(ValueError, match=r"f\.py has no function 'g'"):
        read_flow(path)
    with pytest.raises(ValueError, match=r"neither \.yaml nor \.py"):
        read_flow(tmp_path / "flow.toml")

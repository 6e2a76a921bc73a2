"""What is in a file of `--schema`?"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from bradbury.pipelines.ranges.schema_file import read_schema_file


def read(folder: Path, content: Any, decoder: str = "json") -> Any:
    file = folder / "schema.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_schema_file(file, decoder)


def test_fields_with_the_names_of_their_types(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "customer": "string",
            "total": "double",
            "count": "int64",
            "at": "timestamp",
            "price": "decimal(10, 2)",
            "items": [{"id": "long", "tags": ["string"]}],
            "address": {"city": "string"},
            "type": "integer",
        },
    )
    assert found == pa.schema(
        [
            ("customer", pa.string()),
            ("total", pa.float64()),
            ("count", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(10, 2)),
            ("items", pa.list_(pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))),
            ("address", pa.struct([("city", pa.string())])),
            ("type", pa.int32()),
        ]
    )


def test_a_schema_as_spark_writes_it(tmp_path: Path) -> None:
    schema = types.StructType(
        [
            types.StructField("id", types.LongType(), nullable=False),
            types.StructField("small", types.ByteType()),
            types.StructField("day", types.DateType()),
            types.StructField("local", types.TimestampNTZType()),
            types.StructField("rate", types.FloatType()),
            types.StructField("price", types.DecimalType(12, 3)),
            types.StructField("of", types.MapType(types.StringType(), types.BooleanType())),
            types.StructField(
                "items",
                types.ArrayType(types.StructType([types.StructField("n", types.ShortType())])),
            ),
        ]
    )
    assert read(tmp_path, schema.json()) == pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int8()),
            ("day", pa.date32()),
            ("local", pa.timestamp("us")),
            ("rate", pa.float32()),
            ("price", pa.decimal128(12, 3)),
            ("of", pa.map_(pa.string(), pa.bool_())),
            ("items", pa.list_(pa.struct([("n", pa.int16())]))),
        ]
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ('"string"', "is not an object"),
        ({}, "the values is {}; use the name of a type"),
        ({"a": 1}, "a is 1; use the name of a type"),
        ({"a": {"b": "money"}}, "a.b has the type 'money'"),
        ({"a": ["string", "long"]}, "use the name of a type"),
        ({"a": "decimal(99, 2)"}, "a has the type 'decimal"),
        ({"type": "struct", "fields": [{"name": "a"}]}, "without name and type"),
    ],
)
def test_what_it_cannot_be_is_said_in_a_line(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)
    assert "schema.json" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.avsc cannot be read"):
        read_schema_file(tmp_path / "nowhere.avsc", "avro")

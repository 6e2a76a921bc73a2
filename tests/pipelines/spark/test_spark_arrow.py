"""Are the Arrow batches exactly what Spark expects?"""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from bradbury.pipelines.ranges.value_decoder import UndecodableValue
from bradbury.pipelines.spark.tasks.arrow import COLUMNS, ArrowRows, check_projection, row_schema
from bradbury.protocol.columns.columns import decode_batches, encode_batch
from bradbury.tests.support.decoded_values import decoded_values


def decoded(count: int, *, headers: pa.Array | None = None, value_bytes: int = 4):
    batch = encode_batch(
        pa.array([None if row % 2 else b"k" for row in range(count)], pa.binary()),
        pa.array([bytes(value_bytes)] * count, pa.binary()),
        np.arange(1_700_000_000_000, 1_700_000_000_000 + count, dtype=np.int64),
        headers,
    )
    return decode_batches(bytes(batch), topic="flights", partition=3, fetch_offset=0)


def rows(schema: StructType, records, batch_rows: int = 20_000) -> list[pa.RecordBatch]:
    return list(ArrowRows(schema, batch_rows).batches(records))


def test_the_schema_is_the_one_spark_checks_against() -> None:
    schema = row_schema(include_headers=True)
    (batch,) = rows(schema, decoded(5))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    batch.validate(full=True)


def test_the_rows_say_what_the_records_say() -> None:
    (batch,) = rows(row_schema(include_headers=False), decoded(2))
    first, second = batch.to_pylist()
    assert first == {
        "key": b"k",
        "value": bytes(4),
        "topic": "flights",
        "partition": 3,
        "offset": 0,
        "timestamp": first["timestamp"],
        "timestampType": 0,
    }
    assert first["timestamp"].timestamp() * 1000 == 1_700_000_000_000
    assert (second["key"], second["offset"]) == (None, 1)


def test_headers_are_null_for_a_record_without_any() -> None:
    given = pa.array(
        [[("a", b"1"), ("b", None)], None, [("c", b"")]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    (batch,) = rows(row_schema(include_headers=True), decoded(3, headers=given))
    assert batch.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [{"key": "c", "value": b""}],
    ]
    (bare,) = rows(row_schema(include_headers=True), decoded(3))
    assert bare.column("headers").null_count == 3


def test_a_users_schema_chooses_columns_by_name_and_in_its_order() -> None:
    schema = StructType().add("offset", LongType()).add("value", BinaryType())
    check_projection(schema)
    (batch,) = rows(schema, decoded(2))
    assert batch.to_pydict() == {"offset": [0, 1], "value": [bytes(4), bytes(4)]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType().add("body", BinaryType()), "no column 'body'"),
        (StructType().add("value", StringType()), "'value' is binary, not string"),
        (StructType().add("offset", IntegerType()), "'offset' is bigint"),
        (StructType().add("value", BinaryType(), nullable=False), "leave NOT NULL out"),
    ],
)
def test_a_schema_that_is_no_choice_of_columns_is_refused(schema: StructType, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_projection(schema)


def test_batches_have_at_most_so_many_rows_and_are_of_about_one_size() -> None:
    batches = rows(row_schema(include_headers=False), decoded(25), batch_rows=10)
    assert [batch.num_rows for batch in batches] == [8, 8, 9]
    assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(25))


def test_batches_of_large_values_are_cut_by_size() -> None:
    batches = rows(row_schema(include_headers=False), decoded(12, value_bytes=1024 * 1024))
    assert max(batch.num_rows for batch in batches) <= 4


def test_nothing_becomes_nothing() -> None:
    empty = decode_batches(b"", topic="t", partition=0, fetch_offset=0)
    assert rows(row_schema(include_headers=True), empty) == []
    assert list(COLUMNS) == row_schema(include_headers=True).fieldNames()


# --- values that are decoded ------------------------------------------------------------------

FLIGHT = (
    StructType()
    .add("carrier", StringType())
    .add("delay", DoubleType())
    .add("late", BooleanType())
    .add("legs", ArrayType(StructType().add("from", StringType()).add("miles", LongType())))
)


def values_of(of_type: DataType) -> StructType:
    return StructType().add("value", StructType().add("x", of_type))


VALUES_OF_JSON = StructType().add("partition", IntegerType()).add("value", FLIGHT)


def test_values_of_json_are_structs_of_the_fields_that_are_asked_for() -> None:
    check_projection(VALUES_OF_JSON, "json")
    found = decoded_values(
        b'{"carrier": "\xc3\x9cA", "delay": 3, "other": [1], "late": true,'
        b' "legs": [{"from": "JFK", "miles": 9}]}',
        None,
        b'{\n"delay": null}',
    )
    (batch,) = ArrowRows(VALUES_OF_JSON, 100, "json").batches(found)
    assert batch.schema.equals(to_arrow_schema(VALUES_OF_JSON, timezone="UTC"))
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == [
        {"carrier": "\u00dcA", "delay": 3.0, "late": True, "legs": [{"from": "JFK", "miles": 9}]},
        None,
        {"carrier": None, "delay": None, "late": None, "legs": None},
    ]


def test_values_of_text_are_strings() -> None:
    schema = row_schema(include_headers=False, value_decoder="utf8")
    check_projection(schema, "utf8")
    (batch,) = ArrowRows(schema, 100, "utf8").batches(decoded_values("\u00fc".encode(), None))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    assert batch.column("value").to_pylist() == ["\u00fc", None]


def test_values_that_are_not_asked_for_are_not_decoded() -> None:
    schema = StructType().add("offset", LongType())
    check_projection(schema, "json")
    (batch,) = ArrowRows(schema, 100, "json").batches(decoded_values(b"no JSON"))
    assert batch.to_pydict() == {"offset": [0]}


@pytest.mark.parametrize(
    ("decoder", "value"),
    [("json", b"no JSON"), ("json", b'{"delay": "late"}'), ("json", b"[1]"), ("utf8", b"\xff")],
)
def test_a_value_that_cannot_be_decoded_is_named_by_its_place(decoder: str, value: bytes) -> None:
    schema = VALUES_OF_JSON if decoder == "json" else StructType().add("value", StringType())
    with pytest.raises(UndecodableValue, match=f"flights-3 .* 0.* is not {decoder}: "):
        list(ArrowRows(schema, 100, decoder).batches(decoded_values(value, None)))


@pytest.mark.parametrize(
    ("decoder", "schema", "said"),
    [
        ("raw", VALUES_OF_JSON, "'value' is binary, not struct"),
        ("utf8", VALUES_OF_JSON, "'value' is string, not struct"),
        ("json", StructType().add("value", StringType()), "a struct of the values' fields"),
        ("json", StructType().add("value", StructType()), "a struct of the values' fields"),
        ("json", StructType().add("value", FLIGHT, nullable=False), "leave NOT NULL out"),
        ("json", StructType().add("key", FLIGHT), "'key' is binary"),
        ("json", values_of(DateType()), r"no date \(value.x\): read it as a string"),
        ("json", values_of(ArrayType(MapType(StringType(), LongType()))), r"no map.*value.x\[\]"),
    ],
)
def test_a_schema_has_the_values_as_they_are_decoded(
    decoder: str, schema: StructType, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        check_projection(schema, decoder)


def test_json_needs_a_schema() -> None:
    with pytest.raises(ValueError, match=r"valueDecoder=json needs .*\.schema\("):
        row_schema(include_headers=False, value_decoder="json")

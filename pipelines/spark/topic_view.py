"""`bradbury.topic_view`: a topic as a temporary view, so that `spark.sql` reads it by name.

    bradbury.topic_view(spark, "flights", value="json", schema="tail string, delay double")
    spark.sql("SELECT tail, avg(delay) FROM flights GROUP BY tail")

What always holds: a value that is not what `value` says fails the query, unless on_error="null".

A view that is no stream has what was there when it was first asked, as Spark keeps the ranges of a
source with its DataFrame: it is made again for what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..ranges.schema_values import AvroValues, NotOfSchema, ProtobufValues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

FORMATS: Final = ("raw", "utf8", "json", "avro", "protobuf")
KEYS: Final = ("raw", "utf8")
ERRORS: Final = ("fail", "null")
_DECODED: Final = "__bradbury_value"


def topic_view(
    spark: SparkSession,
    topic: str,
    *,
    name: str | None = None,
    value: str = "raw",
    schema: Any = None,
    key: str = "utf8",
    on_error: str = "fail",
    stream: bool = False,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Make (or replace) a temporary view of a topic; returns its DataFrame.

    Args:
        spark: a session that knows format("bradbury").
        topic: one, or several with commas.
        name: of the view; None: the topic's. In SQL names with other signs than letters, digits and
            "_" stand in backticks.
        value: "raw" (binary), "utf8" (a string), or "json", "avro", "protobuf": each field is a
            column, and the columns of the record are _key, _topic, _partition, _offset, _timestamp,
            _timestampType and, with the option includeHeaders, _headers.
        schema: for json a pyarrow.Schema, a StructType or its DDL ("tail string, delay double");
            for avro an Avro schema; for protobuf the class that protoc has generated.
        key: "utf8" or "raw".
        on_error: "fail": a value that is not JSON fails the query; "null": its fields are null.
        stream: a streaming view; queries on it are streams.
        options: of the source, as startingOffsets (docs/spark.md).

    Raises:
        ValueError: an argument cannot be.
    """
    for given, allowed, what in (
        (value, FORMATS, "value"),
        (key, KEYS, "key"),
        (on_error, ERRORS, "on_error"),
    ):
        if given not in allowed:
            raise ValueError(f"{what} is {given!r}; use {', '.join(map(repr, allowed))}")
    if (schema is None) == (value in ("json", "avro", "protobuf")):
        raise ValueError(
            f"value={value!r} " + ("needs a schema" if schema is None else "has no schema")
        )
    if on_error != "fail" and value != "json":
        raise ValueError("on_error is for value='json'")
    reader = spark.readStream if stream else spark.read
    settings = {name: str(one) for name, one in (options or {}).items()}
    frame = reader.format("bradbury").options(**{**settings, "subscribe": topic}).load()
    decoded = _decoded(frame, value, schema, on_error)
    if key == "utf8":
        column = "key" if "key" in decoded.columns and value in KEYS else "_key"
        decoded = decoded.withColumn(column, decoded[column].cast("string"))
    view = (topic if name is None else name).replace("`", "``")
    decoded.createOrReplaceTempView(f"`{view}`")
    return decoded


def _decoded(frame: DataFrame, value: str, schema: Any, on_error: str) -> DataFrame:
    from pyspark.sql import functions as f

    if value == "raw":
        return frame
    if value == "utf8":
        return frame.withColumn("value", f.col("value").cast("string"))
    if value == "json":
        mode = {"mode": "FAILFAST" if on_error == "fail" else "PERMISSIVE"}
        fields = _struct(schema)
        whole = frame.withColumn(_DECODED, f.from_json(f.col("value").cast("string"), fields, mode))
    else:
        values = AvroValues(schema) if value == "avro" else ProtobufValues(schema)
        whole, fields = _by_arrow(frame, values, value, schema)
    named = [f.col(f"{_DECODED}.`{name}`").alias(name) for name in fields.names]
    rest = [f.col(name).alias(f"_{name}") for name in frame.columns if name != "value"]
    return whole.select(*named, *rest)


def _struct(schema: Any) -> StructType:
    """Raises ValueError for what is no schema of columns."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, _parse_datatype_string

    if isinstance(schema, pa.Schema):
        found: DataType = _arrow_type(pa.struct(list(schema)))
    elif isinstance(schema, str):
        try:
            found = _parse_datatype_string(schema)
        except PySparkException as error:
            said = str(error).strip().splitlines()[0]
            raise ValueError(f"schema {schema!r} is no DDL of columns: {said}") from None
    else:
        found = schema
    if not isinstance(found, StructType):
        raise ValueError(  # noqa: TRY004 -- one kind of error for whatever is wrong with it
            f"schema is {schema!r}; for json use a pyarrow.Schema, a StructType or DDL, as "
            "'tail string, delay double'"
        )
    return found


def _by_arrow(
    frame: DataFrame, values: AvroValues | ProtobufValues, format_name: str, schema: Any
) -> tuple[DataFrame, StructType]:
    """Decoded in Spark's Python workers, a batch at a time."""
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

    kind = _arrow_type(values.type)
    if not isinstance(kind, StructType):
        raise ValueError(  # noqa: TRY004 -- it is the schema that is wrong
            f"the {format_name} schema is no record: it has no fields for columns"
        )
    to = StructType(
        [StructField(_DECODED, kind), *(one for one in frame.schema if one.name != "value")]
    )

    def decode(batches: Iterable[Any]) -> Iterator[Any]:
        decoder: AvroValues | ProtobufValues = (
            AvroValues(schema) if format_name == "avro" else ProtobufValues(schema)
        )
        for batch in batches:
            try:
                column = decoder.decode(batch.column("value"))
            except NotOfSchema as error:
                at = {
                    name: batch.column(name)[error.place]
                    for name in ("topic", "partition", "offset")
                }
                raise ValueError(
                    f"the value of {at['topic']}-{at['partition']} at offset {at['offset']} is not "
                    f"{format_name}: {error}"
                ) from None
            rest = [name for name in batch.schema.names if name != "value"]
            yield pa.RecordBatch.from_arrays(
                [column, *(batch.column(name) for name in rest)], [_DECODED, *rest]
            )

    return frame.mapInArrow(decode, to), kind


def _arrow_type(kind: Any) -> DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind)
    except PySparkException as error:
        raise ValueError(f"Spark has no type for {kind}: {error}") from None

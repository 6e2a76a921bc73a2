"""`bradbury.topic_view`: a temporary view of a topic, which `spark.sql` reads by name.

    bradbury.topic_view(spark, "flights", value="json", schema="tail string, delay double")
    spark.sql("SELECT tail, avg(delay) FROM flights GROUP BY tail")

Invariants: a value that is not what `value` says fails the query, unless on_error="null".
With a schema registry the columns are those of the latest schema at the time of the call.

A view that is not a stream has the records that existed when it was first queried, as Spark keeps
the ranges of a source with its DataFrame: create the view again for newer records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...clients.schemas.registered_schema import RegisteredSchema
from ..ranges.registry_values import (
    PlainValues,
    RegistryValues,
    SchemaValues,
    latest_schema,
    schema_values,
)
from ..ranges.schema_values import SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

FORMATS: Final = ("raw", "utf8", "json", "avro", "protobuf")
WITH_SCHEMA: Final = ("json", "avro", "protobuf")
KEYS: Final = ("raw", "utf8")
BINARY: Final = "binary"
ERRORS: Final = ("fail", "null")
_DECODED: Final = "__bradbury_value"


def topic_view(
    spark: SparkSession,
    topic: str,
    *,
    name: str | None = None,
    value: str = "raw",
    schema: Any = None,
    schema_registry: str | None = None,
    columns: Sequence[str] | None = None,
    key: str = "utf8",
    on_error: str = "fail",
    stream: bool = False,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Create or replace a temporary view of a topic; returns its DataFrame.

    Args:
        spark: a session with format("bradbury").
        topic: a name, or several with commas.
        name: name of the view; None: the topic's. In SQL, names with characters other than letters,
            digits and "_" need backticks.
        value: "raw" (binary), "utf8" (a string), or "json", "avro", "protobuf": each field is a
            column, and the other columns are _key, _topic, _partition, _offset, _timestamp,
            _timestampType and, with the option includeHeaders, _headers.
        schema: for json a pyarrow.Schema, a StructType or its DDL ("tail string, delay double");
            for avro an Avro schema; for protobuf the class that protoc has generated. With a
            schema_registry it may be left out, and is the latest of the subject TOPIC-value.
        schema_registry: http://HOST:PORT of a schema registry: json, avro and protobuf values
            begin with the ids of schemas that it has (docs/schemas.md).
        columns: names of the record's columns to have besides the value ("key", "partition", ...),
            for raw, utf8 and json values without a schema_registry: others are not built, which is
            up to half faster. None: all.
        key: "utf8" or "raw".
        on_error: "fail": a value that cannot be decoded fails the query (FAILFAST of from_json and
            from_avro); "null": its fields are null (PERMISSIVE). A registry that does not answer
            fails it either way.
        stream: a streaming view; queries on it are streams.
        options: of the source, as startingOffsets (docs/spark.md). With valueDecoder "json" the
            source decodes json values itself, which is faster than from_json and stricter.

    Raises:
        ValueError: an argument is invalid.
        NotInRegistry, RegistryFailed: the schema registry has no schema of the topic, or does not
            answer.
    """
    for given, allowed, what in (
        (value, FORMATS, "value"),
        (key, KEYS, "key"),
        (on_error, ERRORS, "on_error"),
    ):
        if given not in allowed:
            raise ValueError(f"{what} is {given!r}; use {', '.join(map(repr, allowed))}")
    if value not in WITH_SCHEMA and (schema is not None or schema_registry is not None):
        given = "schema" if schema is not None else "schema_registry"
        raise ValueError(f"value={value!r} has no {given}; that is for {', '.join(WITH_SCHEMA)}")
    if schema_registry is not None and schema is None:
        topics = [one.strip() for one in topic.split(",")]
        schema = latest_schema(schema_registry, value, topics)
    if value in WITH_SCHEMA and schema is None:
        raise ValueError(f"value={value!r} needs a schema, or a schema_registry that has it")
    if on_error != "fail" and value not in WITH_SCHEMA:
        raise ValueError(f"on_error is for the values {', '.join(WITH_SCHEMA)}")
    settings = {name: str(one) for name, one in (options or {}).items()}
    by_source = value == "json" and _option(settings, "valueDecoder").lower() == "json"
    if by_source and (on_error != "fail" or schema_registry is not None):
        raise ValueError(
            'the option valueDecoder="json" goes with on_error="fail" and without schema_registry'
        )
    if columns is not None and (value in ("avro", "protobuf") or schema_registry is not None):
        raise ValueError("columns is for the values raw, utf8 and json without schema_registry")
    reader: Any = spark.readStream if stream else spark.read
    reader = reader.format("bradbury").options(**{**settings, "subscribe": topic})
    if by_source or columns is not None:
        with_headers = _option(settings, "includeHeaders").lower() == "true"
        of_type = _struct(schema) if by_source else "binary"
        reader = reader.schema(_selected(columns, of_type, with_headers=with_headers))
    frame = reader.load()
    if by_source:
        decoded = _with_fields(frame.withColumnRenamed("value", _DECODED), _struct(schema))
    else:
        decoded = _decoded(frame, value, schema, on_error, schema_registry)
    column = "key" if value in KEYS else "_key"
    if key == "utf8" and column in decoded.columns:
        decoded = decoded.withColumn(column, decoded[column].cast("string"))
    view = (topic if name is None else name).replace("`", "``")
    decoded.createOrReplaceTempView(f"`{view}`")
    return decoded


def _decoded(
    frame: DataFrame, value: str, schema: Any, on_error: str, registry: str | None
) -> DataFrame:
    from pyspark.sql import functions as f

    if value == "raw":
        return frame
    if value == "utf8":
        return frame.withColumn("value", f.col("value").cast("string"))
    lenient = on_error == "null"
    if value == "json":
        if registry is not None:
            frame = _plain(frame, registry, lenient=lenient)
        mode = {"mode": "PERMISSIVE" if lenient else "FAILFAST"}
        fields = _struct(schema)
        whole = frame.withColumn(_DECODED, f.from_json(f.col("value").cast("string"), fields, mode))
    else:
        whole, fields = _by_arrow(frame, value, schema, registry, lenient=lenient)
    return _with_fields(whole, fields)


def _with_fields(frame: DataFrame, fields: StructType) -> DataFrame:
    """The fields of the column of values as columns, and `_` before the record's own."""
    from pyspark.sql import functions as f

    named = [f.col(f"{_DECODED}.`{name}`").alias(name) for name in fields.names]
    others = [name for name in frame.columns if name not in ("value", _DECODED)]
    return frame.select(*named, *(f.col(name).alias(f"_{name}") for name in others))


def _selected(
    columns: Sequence[str] | None, value: StructType | str, *, with_headers: bool
) -> StructType:
    """Schema of the rows to read. Raises ValueError: there is no such column."""
    from pyspark.sql.types import StructType

    from .tasks.arrow import COLUMNS

    names = [one for one in COLUMNS if one != "value" and (with_headers or one != "headers")]
    for column in columns or ():
        if column not in names:
            raise ValueError(f"columns has {column!r}; choose from {', '.join(names)}")
    found = StructType()
    for name in names:
        if columns is None or name in columns:
            found = found.add(name, COLUMNS[name])
    return found.add("value", value)


def _option(settings: Mapping[str, str], wanted: str) -> str:
    """Value of an option, whose name is case-insensitive; "" if it is not given."""
    return next((one for name, one in settings.items() if name.lower() == wanted.lower()), "")


def _struct(schema: Any) -> StructType:
    """Spark type of a schema of columns. Raises ValueError for an invalid one."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, _parse_datatype_string

    if isinstance(schema, pa.Schema | RegisteredSchema):
        found: DataType = _arrow_type(schema_values("json", schema).type)
    elif isinstance(schema, str):
        try:
            found = _parse_datatype_string(schema)
        except PySparkException as error:
            said = str(error).strip().splitlines()[0]
            raise ValueError(f"schema {schema!r} is not a DDL of columns: {said}") from None
    else:
        found = schema
    if not isinstance(found, StructType):
        raise ValueError(  # noqa: TRY004 -- one kind of error for all that is wrong with it
            f"schema is {schema!r}; for json use a pyarrow.Schema, a StructType or DDL such "
            "as 'tail string, delay double'"
        )
    return found


def _by_arrow(
    frame: DataFrame, format_name: str, schema: Any, registry: str | None, *, lenient: bool
) -> tuple[DataFrame, StructType]:
    """Frame with values decoded in Spark's Python workers, and the Spark type of the values."""
    from pyspark.sql.types import StructField, StructType

    kind = _arrow_type(schema_values(format_name, schema).type)
    if not isinstance(kind, StructType):
        raise ValueError(  # noqa: TRY004 -- it is the schema that is wrong
            f"the {format_name} schema is not a record: it has no fields for columns"
        )
    to = StructType(
        [StructField(_DECODED, kind), *(one for one in frame.schema if one.name != "value")]
    )

    def decode(batches: Iterable[Any]) -> Iterator[Any]:
        reader = schema_values(format_name, schema)
        return _decoded_batches(batches, _DECODED, format_name, reader, registry, lenient)

    return frame.mapInArrow(decode, to), kind


def _plain(frame: DataFrame, registry: str, *, lenient: bool) -> DataFrame:
    """The frame with JSON values without their ids, for from_json."""
    from pyspark.sql.types import StructType

    value = frame.schema["value"]
    to = StructType([value, *(one for one in frame.schema if one.name != "value")])

    def decode(batches: Iterable[Any]) -> Iterator[Any]:
        return _decoded_batches(batches, "value", "json", PlainValues(), registry, lenient)

    return frame.mapInArrow(decode, to).select(*frame.columns)


def _decoded_batches(
    batches: Iterable[Any],
    name: str,
    format_name: str,
    reader: SchemaValues,
    registry: str | None,
    lenient: bool,
) -> Iterator[Any]:
    """Batches whose first column, `name`, has the decoded values. Runs in Spark's workers."""
    import pyarrow as pa

    framed = (
        None if registry is None else RegistryValues(format_name, reader, registry, lenient=lenient)
    )
    for batch in batches:
        values = batch.column("value")
        try:
            column = (
                reader.decode(values, lenient=lenient) if framed is None else framed.decode(values)
            )
        except SchemaMismatch as error:
            at = {
                each: batch.column(each)[error.place] for each in ("topic", "partition", "offset")
            }
            raise ValueError(
                f"the value of {at['topic']}-{at['partition']} at offset {at['offset']} is not "
                f"{format_name}: {error}"
            ) from None
        rest = [each for each in batch.schema.names if each != "value"]
        yield pa.RecordBatch.from_arrays(
            [column, *(batch.column(each) for each in rest)], [name, *rest]
        )


def _arrow_type(kind: Any) -> DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind)
    except PySparkException as error:
        raise ValueError(f"Spark has no type for {kind}: {error}") from None

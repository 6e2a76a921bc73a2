"""Conversion of decoded records to Arrow batches in the row schema of Spark's Kafka source.

    key, value     binary                 null where the record has none; value by the option
                                       valueDecoder: binary, a string, or a struct
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[us, UTC]     Spark refuses any other unit or zone
    timestampType  int32                  0 CreateTime, 1 LogAppendTime
    headers        list<struct<key: string, value: binary>>, null if there are none; only with
                   includeHeaders

Invariants:
    A batch has exactly the schema that Spark expects (order, types, nullability), or Spark refuses
    it. A schema given by the user is a projection by name: omitted columns are never built.
    Batches have at most `batch_rows` rows and about MAX_BATCH_BYTES: each is one allocation in the
    executor's JVM.

Nothing here runs per record. Not here: fetching (range_reader), decoding (protocol.columns).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ....protocol.columns.columns import DecodedBatches
from ....protocol.columns.columns_arrow import constant_text, number_array
from ...ranges.value_decoder import ValueDecoder
from ..options.spark_options import VALUE_DECODERS

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024

RAW, UTF8, JSON = VALUE_DECODERS

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}

_JSON_TYPES: Final = (
    StringType,
    BinaryType,
    BooleanType,
    IntegralType,
    FractionalType,
    TimestampType,
    TimestampNTZType,
)
"""Types that pyarrow can read from JSON: no dates, no maps."""


def row_schema(*, include_headers: bool, value_decoder: str = RAW) -> StructType:
    """Row schema of Spark's Kafka source.

    Raises:
        ValueError: for JSON values, whose fields are unknown without a schema.
    """
    if value_decoder == JSON:
        raise ValueError(
            "valueDecoder=json needs the fields of the values: give them with "
            '.schema("value STRUCT<name: STRING, ...>, ..."), with the other columns to read'
        )
    return StructType(
        [
            StructField(name, of_type)
            for name, of_type in _columns(value_decoder).items()
            if include_headers or name != "headers"
        ]
    )


def check_projection(schema: StructType, value_decoder: str = RAW) -> None:
    """Raise ValueError if `schema` is not a selection of the source's columns."""
    columns = _columns(value_decoder)
    for field in schema.fields:
        wanted = columns.get(field.name)
        if field.name == "value" and value_decoder == JSON:
            wanted = _checked_struct(field.dataType)
        if wanted is None:
            raise ValueError(f"there is no column {field.name!r}; choose from {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != wanted.simpleString():
            raise ValueError(
                f"column {field.name!r} is {wanted.simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it afterwards"
            )
        if not field.nullable:
            raise ValueError(f"column {field.name!r} is nullable; leave NOT NULL out of the schema")


def _columns(value_decoder: str) -> dict[str, DataType]:
    return COLUMNS | ({"value": StringType()} if value_decoder == UTF8 else {})


def _checked_struct(of_type: DataType) -> StructType:
    """The struct of JSON values. Raise ValueError if JSON cannot be read as this type."""
    if not isinstance(of_type, StructType) or not len(of_type):
        raise ValueError(
            "with valueDecoder=json the column 'value' is a struct of the values' fields, not "
            f"{of_type.simpleString()}"
        )
    _check_json(of_type, "value")
    return of_type


def _check_json(of_type: DataType, name: str) -> None:
    """Raise ValueError if values of JSON cannot have this type."""
    if isinstance(of_type, StructType):
        for field in of_type.fields:
            _check_json(field.dataType, f"{name}.{field.name}")
    elif isinstance(of_type, ArrayType):
        _check_json(of_type.elementType, f"{name}[]")
    elif not isinstance(of_type, _JSON_TYPES):
        raise ValueError(  # noqa: TRY004 -- the schema is the user's value
            f"valueDecoder=json has no {of_type.simpleString()} ({name}): read it as a string and "
            "cast it, or leave the option out and use from_json"
        )


class ArrowRows:
    """Builder of the Arrow batches of one task."""

    def __init__(self, schema: StructType, batch_rows: int, value_decoder: str = RAW) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._batch_rows = batch_rows
        builders = dict(_BUILDERS)
        if value_decoder != RAW and "value" in schema.fieldNames():
            of_type = self._schema.field("value").type
            fields = pa.schema(list(of_type)) if value_decoder == JSON else None
            builders["value"] = ValueDecoder(value_decoder, fields).column
        self._columns = [builders[field.name] for field in schema.fields]
        self._topics: dict[str, Any] = {}

    def batches(self, decoded: DecodedBatches) -> Iterator[Any]:
        """Rows of `decoded`, in order, in batches of about equal size; none if it has no rows."""
        count = len(decoded)
        if not count:
            return
        size = decoded.values.nbytes + decoded.keys.nbytes
        if decoded.headers is not None:
            size += decoded.headers.nbytes
        pieces = max(-(-count // self._batch_rows), min(count, -(-size // MAX_BATCH_BYTES)))
        whole = pa.RecordBatch.from_arrays(
            [
                self._topic(decoded.topic, count) if build is _topic else build(decoded)
                for build in self._columns
            ],
            schema=self._schema,
        )
        start = 0
        for left in range(pieces, 0, -1):
            length = (count - start) // left
            yield whole if pieces == 1 else whole.slice(start, length)
            start += length

    def _topic(self, topic: str, count: int) -> Any:
        """Column with the topic in each row, built once for the largest batch so far."""
        names = self._topics.get(topic)
        if names is None or len(names) < count:
            names = self._topics[topic] = constant_text(topic, count)
        return names.slice(0, count)


def _key(decoded: DecodedBatches) -> Any:
    return decoded.keys


def _value(decoded: DecodedBatches) -> Any:
    return decoded.values


def _topic(decoded: DecodedBatches) -> Any:
    return constant_text(decoded.topic, len(decoded))


def _partition(decoded: DecodedBatches) -> Any:
    return number_array(np.full(len(decoded), decoded.partition, np.int32), pa.int32())


def _offset(decoded: DecodedBatches) -> Any:
    return number_array(decoded.offsets, pa.int64())


def _timestamp(decoded: DecodedBatches) -> Any:
    return number_array(decoded.timestamps * 1000, pa.timestamp("us", "UTC"))


def _timestamp_type(decoded: DecodedBatches) -> Any:
    return number_array(decoded.timestamp_types, pa.int32())


def _headers(decoded: DecodedBatches) -> Any:
    of_type = to_arrow_schema(StructType([StructField("headers", HEADERS)]), timezone="UTC")
    of_type = of_type.field("headers").type
    headers = decoded.headers
    if headers is None:
        return pa.nulls(len(decoded), of_type)
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    names, values = headers.flatten().flatten()
    structs = pa.StructArray.from_arrays([names, values], fields=list(of_type.value_type))
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), structs, type=of_type, mask=pc.equal(lengths, 0)
    )


_BUILDERS: Final[dict[str, Callable[[DecodedBatches], Any]]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}

"""Values that begin with a schema's id (Confluent's wire format) -> one column of one schema.

The ids of a chunk are read as a column. The rows of each id are decoded together, from the schema
that they were written with into the reader's: the given one, or the latest of the topic's subject.

Invariants:
    A null value (a tombstone) is null.
    A value without an id, or with an id that the registry does not know or has for another format,
    is reported with its place. If a registry cannot be reached, the read fails; values never
    become null for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from ...clients.schemas.registered_schema import SCHEMA_TYPES, RegisteredSchema
from ...clients.schemas.registry_request import NotInRegistry
from ...clients.schemas.schema_registry import SchemaRegistry
from ...clients.schemas.wire_format import MAGIC, PREFIX_SIZE
from .json_values import JsonValues
from .schema_values import AvroValues, ProtobufValues, SchemaMismatch

SUBJECT: Final = "{}-value"
"""Subject of a topic's values: Confluent's TopicNameStrategy, the default of its clients."""


class SchemaValues(Protocol):
    """Decoder of one format into the column of one reader's schema."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(
        self, values: pa.Array, writer: RegisteredSchema | None = None, *, lenient: bool = False
    ) -> pa.Array:
        """Column of the values, which are without prefixes.

        writer: schema that they were written with; None: the reader's.
        lenient: values that cannot be decoded become null.

        Raises SchemaMismatch; ValueError: `writer` is no schema of the format.
        """
        ...


class PlainValues:
    """Values without their ids, undecoded."""

    type = pa.binary()

    def decode(
        self, values: pa.Array, writer: RegisteredSchema | None = None, *, lenient: bool = False
    ) -> pa.Array:
        """See SchemaValues."""
        return values


def schema_values(format_name: str, schema: Any) -> SchemaValues:
    """Decoder of json, avro or protobuf. Raises ValueError: `schema` is none of that format."""
    match format_name:
        case "avro":
            return AvroValues(schema)
        case "protobuf":
            return ProtobufValues(schema)
    return JsonValues(schema)


def latest_schema(url: str, format_name: str, topics: Sequence[str]) -> RegisteredSchema:
    """Latest schema of the topics' values in a registry.

    Raises:
        ValueError: the topics have several schemas, or it is one of another format.
        NotInRegistry, RegistryFailed.
    """
    registry = SchemaRegistry(url)
    latest: dict[str, RegisteredSchema] = {}
    for topic in topics:
        try:
            latest[topic] = registry.latest(SUBJECT.format(topic))
        except NotInRegistry as error:
            raise NotInRegistry(
                f"{error}: give a schema, or register one; the subject of a topic is TOPIC-value"
            ) from None
    found = next(iter(latest.values()))
    for topic, one in latest.items():
        if one.schema_type != SCHEMA_TYPES[format_name]:
            raise ValueError(
                f"the latest schema of {topic} in {registry!r} is of the type {one.schema_type}, "
                f"and values are to be decoded as {format_name!r}"
            )
        if (one.schema, one.references) != (found.schema, found.references):
            raise ValueError(
                f"the topics {', '.join(topics)} have different schemas in {registry!r}: give the "
                "one that all of them are to be read as"
            )
    return found


class RegistryValues:
    """Decoder of values that begin with ids of one registry. `type`: that of the column."""

    def __init__(
        self, format_name: str, reader: SchemaValues, url: str, *, lenient: bool = False
    ) -> None:
        """lenient: values that cannot be decoded become null.

        Raises ValueError: url is no address.
        """
        self._format = format_name
        self._reader = reader
        self._registry = SchemaRegistry(url)
        self._lenient = lenient
        self.type = reader.type

    def decode(self, values: pa.Array) -> pa.Array:
        """Column of the values. Raises SchemaMismatch, RegistryFailed, pyarrow.ArrowException."""
        if values.type != pa.binary():
            values = values.cast(pa.binary())
        ids, is_framed = self._ids(values)
        present = np.unique(ids[is_framed])
        if len(present) == 1 and is_framed.all():
            # The usual case: one schema, and the rows need no sorting.
            return self._of_one(int(present[0]), values, np.arange(len(values)))
        parts, order = [], np.full(len(values), -1, np.int64)
        count = 0
        for schema_id in present:
            places = np.flatnonzero(is_framed & (ids == schema_id))
            parts.append(self._of_one(int(schema_id), values.take(pa.array(places)), places))
            order[places] = np.arange(count, count + len(places))
            count += len(places)
        if not parts:
            return pa.nulls(len(values), self.type)
        return pa.concat_arrays(parts).take(pa.array(order, mask=order < 0))

    def _of_one(self, schema_id: int, values: pa.Array, places: Any) -> pa.Array:
        """Column of values of one id, none of them null. places: their row numbers in the chunk."""
        content = _without_prefixes(values)
        try:
            writer = self._writer(schema_id)
            return self._reader.decode(content, writer, lenient=self._lenient)
        except SchemaMismatch as error:
            raise SchemaMismatch(int(places[error.place]), error) from error
        except pa.ArrowException:
            raise
        except (NotInRegistry, ValueError) as error:
            if self._lenient:
                return pa.nulls(len(values), self.type)
            raise SchemaMismatch(int(places[0]), error) from error

    def _writer(self, schema_id: int) -> RegisteredSchema:
        found = self._registry.schema(schema_id)
        if found.schema_type != SCHEMA_TYPES[self._format]:
            raise ValueError(f"schema id {schema_id} is of the type {found.schema_type}")
        return found

    def _ids(self, values: pa.Array) -> tuple[Any, Any]:
        """Ids as int64, and a mask of the values that have one."""
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        ids = np.zeros(len(values), np.int64)
        _, ends, content = values.buffers()
        if not is_valid.any():
            return ids, is_valid
        offsets = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
        data = np.frombuffer(content or b"", np.uint8)
        is_framed = is_valid & (np.diff(offsets) >= PREFIX_SIZE)
        starts = offsets[:-1][is_framed].astype(np.int64)
        prefixes = data[starts[:, None] + np.arange(PREFIX_SIZE)]
        ids[is_framed] = prefixes[:, 1:].astype(np.int64) @ (1 << np.array([24, 16, 8, 0]))
        is_framed[is_framed] = prefixes[:, 0] == MAGIC
        wrong = np.flatnonzero(is_valid & ~is_framed)
        if len(wrong) and not self._lenient:
            value = values[int(wrong[0])].as_py()
            raise SchemaMismatch(
                int(wrong[0]),
                "it does not begin with a byte 0 and a schema's id, as values of a schema registry "
                f"do, but with {value[:PREFIX_SIZE]!r}; leave schema_registry out for other values",
            )
        return ids, is_framed


def _without_prefixes(values: pa.Array) -> pa.Array:
    """Values without their prefixes; none is null or shorter than one.

    Not pyarrow's binary_slice: that of pyarrow 26.0.1 fails ("Negative buffer resize") for some
    columns of such values, as for slices of longer ones.
    """
    _, ends, content = values.buffers()
    offsets = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    kept = np.ones(len(data), np.bool_)
    kept[offsets[:-1, None] + np.arange(PREFIX_SIZE)] = False
    shortened = (offsets - PREFIX_SIZE * np.arange(len(offsets))).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(shortened), pa.py_buffer(data[kept])]
    )

"""JSON objects -> a struct column, all values of a chunk at once.

Invariants: each value is one object; the error for any other has its place, if that is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...clients.schemas.registered_schema import RegisteredSchema
from ...protocol.columns.columns_arrow import constant_text, number_array
from .json_schema import arrow_fields
from .schema_values import SchemaMismatch


class JsonValues:
    """Decoder of JSON objects by a pyarrow.Schema of the fields or a registered JSON Schema.

    Raises ValueError: a property of the JSON Schema has no single type.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = arrow_fields(schema) if isinstance(schema, RegisteredSchema) else schema
        self.type = pa.struct(list(self._schema))

    def decode(
        self, values: pa.Array, writer: RegisteredSchema | None = None, *, lenient: bool = False
    ) -> pa.Array:
        """Struct column. writer: unused, as fields are found by their names.

        Raises SchemaMismatch, pyarrow.ArrowInvalid.
        """
        assert not lenient, "where JSON may be wrong, from_json of Spark reads it"
        return _objects(values, self._schema)


def _objects(values: pa.Array, schema: pa.Schema) -> pa.Array:
    """Structs of JSON objects, one for each value; objects may contain line ends."""
    from pyarrow import json

    values = values.cast(pa.string())  # raises for bytes that are not UTF-8
    _check_objects(values)
    present = values if not values.null_count else values.drop_null()
    if not len(present):
        return pa.nulls(len(values), pa.struct(list(schema)))
    # Not pa.array nor a plain "\n": their first use imports pandas, a second in each new worker.
    whole = number_array(np.array([0, len(present)], np.int32), pa.int32())
    line_end = constant_text("\n", 1)[0]
    joined = pc.binary_join(pa.ListArray.from_arrays(whole, present), line_end)
    read = json.read_json(
        pa.BufferReader(joined[0].as_buffer()),
        read_options=json.ReadOptions(block_size=max(1 << 20, joined[0].as_buffer().size + 1)),
        parse_options=json.ParseOptions(
            explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
        ),
    )
    if len(read) != len(present):
        raise pa.ArrowInvalid(f"{len(present)} values have {len(read)} JSON objects")
    struct = read.combine_chunks().to_struct_array()
    if isinstance(struct, pa.ChunkedArray):
        struct = struct.combine_chunks()
    if not values.null_count:
        return struct
    places = np.cumsum(values.is_valid().to_numpy(zero_copy_only=False)) - 1
    return struct.take(pa.array(places, mask=values.is_null().to_numpy(zero_copy_only=False)))


def _check_objects(values: pa.Array) -> None:
    """Raise SchemaMismatch for a value that does not begin and end as an object.

    If all do, and as many objects are read as there are values, each value is one object: a string
    cannot contain a line end. And pyarrow crashes the process if it reads nothing but `null`.
    """
    are_objects = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if pc.all(are_objects).as_py() is not False:
        return
    for place in np.flatnonzero(~are_objects.fill_null(True).to_numpy(zero_copy_only=False)):
        text = values[place].as_py().strip(" \t\r\n")
        if not (text.startswith("{") and text.endswith("}")):
            raise SchemaMismatch(int(place), f"{text[:40]!r} is not a JSON object")

"""Conversion of a table's columns to records, by whole batches without Python per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .json_objects import json_objects, json_values
from .table_source import ReplayFailed

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ReplayedColumns:
    """Choice of columns for the fields of records.

    key, timestamp, headers: names of columns; None: the columns of these names, if their types are
    suitable; "": none. value: column of bytes or text, others as JSON. columns: the value is a JSON
    object of these.
    """

    def __init__(
        self,
        schema: Any,
        *,
        key: str | None,
        value: str | None,
        columns: Sequence[str] | None,
        timestamp: str | None,
        headers: str | None,
        keep_partitions: bool,
    ) -> None:
        """Raises ValueError: a column does not exist, or has an unsuitable type."""
        self._schema = schema
        if value is not None and columns is not None:
            raise ValueError(
                "value and columns are both given; use one: a column, or an object of several"
            )
        self._key = self._chosen("key", key, _can_be_key, "text, bytes, a number, a date or a time")
        self._timestamp = self._chosen(
            "timestamp",
            timestamp,
            # The unit of a number is unknown: such a column must be given explicitly.
            pa.types.is_timestamp if timestamp is None else _can_be_time,
            "a timestamp, a date or milliseconds as a long",
        )
        self._headers = self._chosen(
            "headers", headers, _can_be_headers, "a map of text to bytes, or a list of such pairs"
        )
        self._partition = None
        if keep_partitions:
            self._partition = self._chosen("partition", "partition", pa.types.is_integer, "an int")
        self._value: str | None = None
        self._columns: list[str] = []
        if columns is not None:
            self._columns = [self._there(name, "columns") for name in columns]
            if not self._columns:
                raise ValueError("columns is empty; name at least one, or leave it out for all")
        elif value is not None or "value" in schema.names:
            self._value = self._there(value or "value", "value")
        else:
            self._columns = list(schema.names)

    @property
    def keeps_partitions(self) -> bool:
        return self._partition is not None

    @property
    def needed(self) -> list[str]:
        """Names of the columns that have to be read."""
        named = [self._key, self._value, self._timestamp, self._headers, self._partition]
        return list(dict.fromkeys([*filter(None, named), *self._columns]))

    def records(self, batch: Any, partition_count: int) -> Any:
        """Table of records for Producer.send_batch.

        Raises:
            ReplayFailed: a partition that the topic does not have.
            ValueError: a column cannot be JSON.
        """
        found = {"value": self._values(batch)}
        if self._key is not None:
            found["key"] = _bytes_or_text(batch.column(self._key))
        if self._timestamp is not None:
            times = batch.column(self._timestamp)
            if not pa.types.is_integer(times.type):
                times = times.cast(pa.timestamp("ms", getattr(times.type, "tz", None)), safe=False)
            found["timestamp"] = times.cast(pa.int64())
        if self._headers is not None:
            found["headers"] = batch.column(self._headers).cast(_HEADERS)
        if self._partition is not None:
            partitions = batch.column(self._partition).cast(pa.int32())
            most = pc.max(partitions).as_py()
            if partitions.null_count or most >= partition_count or pc.min(partitions).as_py() < 0:
                raise ReplayFailed(
                    f"a row has the partition {'null' if partitions.null_count else most}, and the "
                    f"topic has 0 to {partition_count - 1}; give it more partitions, or do not "
                    "keep them"
                )
            found["partition"] = partitions
        return pa.table(found)

    def _values(self, batch: Any) -> Any:
        if self._value is None:
            return json_objects(batch, self._columns)
        array = batch.column(self._value)
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if _is_bytes_or_text(array.type):
            return array
        # A null stays a tombstone.
        return pc.if_else(array.is_valid(), json_values(array), pa.scalar(None, pa.string()))

    def _there(self, name: str, what: str) -> str:
        if name not in self._schema.names:
            raise ValueError(
                f"{what}: there is no column {name!r}; there are {', '.join(self._schema.names)}"
            )
        return name

    def _chosen(self, what: str, name: str | None, can_be: Any, kinds: str) -> str | None:
        if name == "":
            return None
        if name is None:
            has_it = what in self._schema.names and can_be(self._schema.field(what).type)
            return what if has_it else None
        kind = self._schema.field(self._there(name, what)).type
        if not can_be(kind):
            raise ValueError(f"{what}: column {name!r} is {kind}, and must be {kinds}")
        return name


def _is_bytes_or_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _can_be_key(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return (
        _is_bytes_or_text(kind)
        or types.is_null(kind)  # Arrow's type of a NumPy batch in which all are None
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
    )


def _can_be_time(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_int64(kind))


def _can_be_headers(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return _is_bytes_or_text(kind.key_type) and _is_bytes_or_text(kind.item_type)
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [field.name for field in kind.value_type] == ["key", "value"]


def _bytes_or_text(array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array if _is_bytes_or_text(array.type) else array.cast(pa.string())

"""Conversion of Arrow columns to a column of JSON objects, without Python values for rows.

    numbers             as they are; NaN and infinities, which JSON lacks, are null
    decimals            numbers with all their digits
    text, binary        text; binary must be UTF-8
    timestamps          "2026-07-01T12:00:00.000000Z"; without a zone, without the Z
    dates, times        "2026-07-01", "12:00:00"
    structs, maps       objects; the keys of a map are text
    lists               arrays

A null is null; its field is present.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_NULL: Final = "null"
_ESCAPED: Final = r'[\x00-\x1f"\\]'


def json_objects(batch: Any, columns: Sequence[str]) -> Any:
    """String array with an object of these columns for each row.

    Raises:
        ValueError: a column cannot be JSON; the text names it.
    """
    values = []
    for name in columns:
        try:
            values.append(json_values(batch.column(name)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(
                f"column {name!r} ({batch.schema.field(name).type}) cannot be JSON: "
                f"{str(error).splitlines()[0]}; choose others with columns=, or a column of "
                "bytes as the value"
            ) from None
    return _object(list(columns), values, batch.num_rows)


def json_values(array: Any) -> Any:
    """String array of JSON values; "null" for null. Raises ArrowInvalid for other types."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return json_values(array.cast(kind.value_type))
    if pa.types.is_null(kind):
        return pa.repeat(_NULL, len(array))
    if pa.types.is_struct(kind):
        children = [json_values(one) for one in array.flatten()]
        found = _object([field.name for field in kind], children, len(array))
    elif pa.types.is_map(kind):
        entries = _element(_text(array.keys.cast(pa.string())), ":", json_values(array.items))
        found = _joined(array, entries, "{", "}")
    elif (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        if pa.types.is_fixed_size_list(kind):
            array = array.cast(pa.list_(kind.value_type))
        found = _joined(array, json_values(array.values), "[", "]")
    elif pa.types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(array), array, pa.scalar(None, kind))
        found = finite.cast(pa.string())
    elif _is_number(kind):
        found = array.cast(pa.string())
    else:
        found = _text(_as_text(array, kind))
    return pc.fill_null(pc.if_else(array.is_valid(), found, pa.scalar(None, pa.string())), _NULL)


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind))


def _as_text(array: Any, kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        moments = array if kind.tz is None else array.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(moments, f"%Y-%m-%dT%H:%M:%S{zone}")
    return array.cast(pa.string())


def _text(strings: Any) -> Any:
    """JSON strings: quoted, and escaped where needed."""
    if pc.any(pc.match_substring_regex(strings, _ESCAPED)).as_py():
        strings = pc.replace_substring(strings, "\\", "\\\\")
        strings = pc.replace_substring(strings, '"', '\\"')
        for code in range(0x20):
            if pc.any(pc.match_substring(strings, chr(code))).as_py():
                strings = pc.replace_substring(strings, chr(code), json.dumps(chr(code))[1:-1])
    return _element('"', strings, '"')


def _object(names: list[str], values: list[Any], count: int) -> Any:
    if not names:
        return pa.repeat("{}", count)
    pieces: list[Any] = []
    for name, value in zip(names, values, strict=True):
        pieces += [("," if pieces else "{") + json.dumps(name, ensure_ascii=False) + ":", value]
    return _element(*pieces, "}")


def _joined(lists: Any, elements: Any, begin: str, end: str) -> Any:
    """JSON arrays or objects of `lists`, from `elements`, all child elements of its buffer."""
    offsets = lists.offsets.cast(pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")
    return _element(begin, joined, end)


def _element(*pieces: Any) -> Any:
    return pc.binary_join_element_wise(*pieces, "")

r"""Output formats of `bradbury consume`: whole tables to bytes.

    value                  the value and a newline
    json                   one object per line; bytes that are not UTF-8 as base64 (key_base64, ...)
    "%o %k: %v"            a template: %t topic  %p partition  %o offset  %T timestamp (ms)
                           %k key  %v value (or %s)  %h headers as JSON  %% a percent sign; \n \t

The letters are kcat's, and %v. A missing key or value is printed as an empty string.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..terminal.failure import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

Formatter = Callable[["pa.Table"], bytes]

COLUMNS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp",
    "k": "key",
    "v": "value",
    "s": "value",
    "h": "headers",
}
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_PART = re.compile(r"%(.)|(\\[nt\\])|([^%\\]+|.)", re.DOTALL)


def formatter(text: str) -> Formatter:
    """Formatter for a name or template. Raises CommandFailed: it has an unknown letter."""
    if text == "json":
        return format_json
    if text == "value":
        return _template("%v")
    if "%" not in text:
        raise UsageError(f"--format {text!r}: use value, json, or a template such as '%o %k: %v'")
    return _template(text)


def format_json(table: pa.Table) -> bytes:
    """Format records as JSON objects, one per line."""
    return b"".join(
        json.dumps(_json_of(record), ensure_ascii=False).encode() + b"\n" for record in _rows(table)
    )


def _template(text: str) -> Formatter:
    parts = _parse(text)

    def format_table(table: pa.Table) -> bytes:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not table.num_rows:
            return b""
        # One column of whole lines; the separator between columns is empty.
        columns = [
            pa.scalar(part, pa.binary()) if isinstance(part, bytes) else _text(table, part[0])
            for part in parts
        ]
        lines = pc.binary_join_element_wise(*columns, b"\n", b"")
        if isinstance(lines, pa.ChunkedArray):
            lines = lines.combine_chunks()
        return b"".join(lines.to_pylist())

    return format_table


def _parse(text: str) -> list[bytes | tuple[str]]:
    """Parse a template to literal bytes, and names of columns as 1-tuples."""
    parts: list[bytes | tuple[str]] = []
    for letter, escape, literal in _PART.findall(text):
        if escape:
            parts.append(ESCAPES[escape].encode())
        elif literal:
            parts.append(literal.encode())
        elif letter == "%":
            parts.append(b"%")
        elif letter in COLUMNS:
            parts.append((COLUMNS[letter],))
        else:
            letters = " ".join(f"%{name}" for name in COLUMNS)
            raise UsageError(f"--format has an unknown %{letter}; use {letters} %%")
    return parts


def _text(table: pa.Table, name: str) -> Any:
    """Convert a column to the bytes that are printed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if name == "headers":
        rows = [json.dumps(_headers(row)).encode() for row in column.to_pylist()]
        return pa.chunked_array([pa.array(rows, pa.binary())])
    if name == "timestamp":
        column = pc.cast(column, pa.int64())
    if not pa.types.is_binary(column.type):
        column = pc.cast(pc.cast(column, pa.string()), pa.binary())
    return pc.fill_null(column, b"")


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    import pyarrow as pa

    position = table.schema.get_field_index("timestamp")
    plain = table.set_column(position, "timestamp", table.column("timestamp").cast(pa.int64()))
    rows: list[dict[str, Any]] = plain.to_pylist()
    return rows


def _json_of(record: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, content in record.items():
        if name == "headers":
            shown[name] = _headers(content)
        elif isinstance(content, bytes):
            shown.update(_text_or_base64(name, content))
        else:
            shown[name] = content
    return shown


def _headers(pairs: Any) -> list[dict[str, Any]]:
    return [
        {"key": pair["key"]}
        | (
            {"value": None}
            if pair["value"] is None
            else _text_or_base64("value", bytes(pair["value"]))
        )
        for pair in pairs or ()
    ]


def _text_or_base64(name: str, content: bytes) -> dict[str, str]:
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}

"""Decoded records -> Arrow tables with the columns of ray.data.read_kafka.

    offset           int64
    key, value       binary                null where the record has none
    topic            string
    partition        int32
    timestamp        int64                 ms since 1970
    timestamp_type   int32                 as in librdkafka: 1 CreateTime, 2 LogAppendTime
    headers          map<string, binary>   empty where the record has none; a name may come twice

Nothing here runs per record. Columns that are not requested are not built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.columns import DecodedBatches
from ...protocol.columns.columns_arrow import constant_text, number_array

HEADERS_TYPE: Final = pa.map_(pa.string(), pa.binary())
SCHEMA: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)


def check_columns(columns: str | Iterable[str]) -> list[str]:
    """Column names as a list. Raises ValueError for an unknown one, or if there is none."""
    chosen = [columns] if isinstance(columns, str) else list(columns)
    for name in chosen:
        if name not in SCHEMA.names:
            raise ValueError(f"there is no column {name!r}; choose from {', '.join(SCHEMA.names)}")
    if not chosen:
        raise ValueError("columns is empty; name at least one, or leave it out for all")
    return chosen


def topic_table(decoded: DecodedBatches, columns: Sequence[str]) -> pa.Table:
    """Table of these columns, in this order."""
    return pa.table({name: _BUILDERS[name](decoded) for name in columns})


def _headers(decoded: DecodedBatches) -> Any:
    headers = decoded.headers
    ends = np.zeros(len(decoded) + 1, np.int32)
    if headers is None:
        names: Any = pa.nulls(0, pa.string())
        values: Any = pa.nulls(0, pa.binary())
    else:
        lengths = pc.fill_null(pc.list_value_length(headers), 0)
        np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
        names, values = headers.flatten().flatten()
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, values)


_BUILDERS: Final[dict[str, Callable[[DecodedBatches], Any]]] = {
    "offset": lambda decoded: number_array(decoded.offsets, pa.int64()),
    "key": lambda decoded: decoded.keys,
    "value": lambda decoded: decoded.values,
    "topic": lambda decoded: constant_text(decoded.topic, len(decoded)),
    "partition": lambda decoded: number_array(
        np.full(len(decoded), decoded.partition, np.int32), pa.int32()
    ),
    "timestamp": lambda decoded: number_array(decoded.timestamps, pa.int64()),
    "timestamp_type": lambda decoded: number_array(decoded.timestamp_types + 1, pa.int32()),
    "headers": _headers,
}

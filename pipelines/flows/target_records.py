"""Records of a flow's target: the columns key and value that are written to its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .flow import FlowTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def records_of(frame: DataFrame, target: FlowTarget) -> DataFrame:
    """Rows of a step as records. Raises ValueError: a column of the target does not exist."""
    from pyspark.sql import functions as f

    for column in filter(None, (target.key, target.value)):
        if column not in frame.columns:
            raise ValueError(
                f"there is no column {column!r} in {target.of}; there are "
                f"{', '.join(frame.columns)}"
            )
    types: Mapping[str, str] = dict(frame.dtypes)

    def content(column: str) -> Any:
        found = f.col(f"`{column}`")
        return found if types[column] == "binary" else found.cast("string")

    whole = f.to_json(f.struct(*(f.col(f"`{one}`") for one in frame.columns)))
    value = whole if target.value is None else content(target.value)
    chosen = [value.alias("value")]
    if target.key is not None:
        chosen.append(content(target.key).alias("key"))
    return frame.select(*chosen)

"""Narrowing of the ranges of a read by filters. Pure.

    ds = bradbury.read_topic("flights").filter(expr=(col("partition") == 3) & (col("offset") >= 10))

Ray pushes a filter that follows the read down to the source, which then applies all of it to the
rows. Before that, the parts of a conjunction that compare `topic`, `partition` or `offset` with a
constant exclude ranges, or parts of them, that have no such row. A least `timestamp` excludes what
is before the first record that has it, which brokers look up; later ones may come in any order, so
a greatest one excludes nothing. Other expressions narrow nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ray.data.expressions import BinaryExpr, ColumnExpr, Expr, LiteralExpr, Operation

from ..ranges.partition_range import PartitionRange

_MIRRORED: Final = {
    Operation.GT: Operation.LT,
    Operation.LT: Operation.GT,
    Operation.GE: Operation.LE,
    Operation.LE: Operation.GE,
    Operation.EQ: Operation.EQ,
}


def narrowed(ranges: Iterable[PartitionRange], predicate: Expr) -> list[PartitionRange]:
    """Parts of `ranges` that may have rows for which `predicate` is true."""
    left = list(ranges)
    for name, operation, value in _comparisons(predicate):
        left = [
            piece for one in left if (piece := _narrow(one, name, operation, value)) is not None
        ]
    return left


def least_timestamp(predicate: Expr) -> int | None:
    """Lowest timestamp of rows for which `predicate` is true; None: any may be."""
    bounds = [
        value + (operation is Operation.GT)
        for name, operation, value in _comparisons(predicate)
        if name == "timestamp"
        and operation in (Operation.EQ, Operation.GE, Operation.GT)
        and isinstance(value, int)
        and not isinstance(value, bool)
    ]
    return max(bounds, default=None)


def columns_of(predicate: Expr) -> set[str]:
    """Names of the columns that a predicate refers to."""
    if isinstance(predicate, ColumnExpr):
        return {predicate.name}
    found: set[str] = set()
    for part in vars(predicate).values():
        for each in part if isinstance(part, list | tuple) else (part,):
            if isinstance(each, Expr):
                found |= columns_of(each)
    return found


def _comparisons(predicate: Expr) -> Iterator[tuple[str, Operation, Any]]:
    """Comparisons of a conjunction, as (column, operation, constant)."""
    if not isinstance(predicate, BinaryExpr):
        return
    left, right, operation = predicate.left, predicate.right, predicate.op
    if operation is Operation.AND:
        yield from _comparisons(left)
        yield from _comparisons(right)
    elif isinstance(left, ColumnExpr) and isinstance(right, LiteralExpr):
        yield left.name, operation, right.value
    elif isinstance(left, LiteralExpr) and isinstance(right, ColumnExpr) and operation in _MIRRORED:
        yield right.name, _MIRRORED[operation], left.value


def _are_like(own: str | int, values: object) -> bool:
    """Whether all values have the column's type. For others the filter itself raises."""
    return isinstance(values, list | tuple | set) and all(
        isinstance(one, type(own)) for one in values
    )


def _narrow(
    one: PartitionRange, name: str, operation: Operation, value: Any
) -> PartitionRange | None:
    if name in ("topic", "partition"):
        own = one.topic if name == "topic" else one.partition
        values = value if operation is Operation.IN else [value]
        if operation not in (Operation.EQ, Operation.IN) or not _are_like(own, values):
            return one
        return one if own in values else None
    if name != "offset" or isinstance(value, bool) or not isinstance(value, int):
        return one
    start, end = one.start, one.end
    match operation:
        case Operation.EQ:
            start, end = max(start, value), min(end, value + 1)
        case Operation.GE:
            start = max(start, value)
        case Operation.GT:
            start = max(start, value + 1)
        case Operation.LE:
            end = min(end, value + 1)
        case Operation.LT:
            end = min(end, value)
        case _:
            pass
    return one._replace(start=start, end=end) if start < end else None

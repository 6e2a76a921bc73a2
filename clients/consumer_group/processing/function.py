"""The function a group runs, its arguments, and the outcome of a call.

It is a function, called with each batch, or a class, instantiated once in every actor that
processes and then called with each batch, as in Ray Data's map_batches: so expensive objects (a
model, a database connection) are created once.

Not here: the callers (local_pool, actor_pool).
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from ...fetch.record_stream import ConsumerRecord
from .batch import Span, spans_text

BatchFormat = Literal["arrow", "records"]


class CallOutcome(NamedTuple):
    """Outcome of a call. error: exception raised; None: it returned. traceback: as text."""

    error: Exception | None = None
    traceback: str = ""


class WorkerDied(Exception):
    """A worker's process ended while it had the batch, as often as `max_attempts` allows."""


class BatchFailed(Exception):
    """The function raised for a batch, or it killed its workers; `__cause__` is the error.

    spans: the offsets of the batch, by partition. table: its rows. It is not committed;
    iterating past this error marks the batch as handled.
    """

    def __init__(
        self, spans: tuple[Span, ...], table: pa.Table | None, cause: Exception, trace: str
    ) -> None:
        super().__init__(spans, table, cause, trace)
        self.spans = spans
        self.table = table
        self.trace = trace
        # As text: Ray's copy of this error in another process has its attributes, but no __cause__.
        self.reason = f"{type(cause).__name__}: {cause}"
        self.__cause__ = cause

    def __str__(self) -> str:
        text = f"{spans_text(self.spans)}: {self.reason}"
        return f"{text}\n{self.trace}" if self.trace else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Function of a group. fn: a function, or a class whose instances are called.

    batch_format: "arrow": a table with the columns topic, partition, offset, timestamp, key, value,
        headers; "records": a list of ConsumerRecord.
    arguments, keywords: passed with each batch. constructor_...: passed to a class.
    """

    fn: Callable[..., Any]
    batch_format: BatchFormat = "arrow"
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    constructor_arguments: tuple[Any, ...] = ()
    constructor_keywords: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        batch_format: BatchFormat,
        fn_args: Iterable[Any],
        fn_kwargs: Mapping[str, Any] | None,
        fn_constructor_args: Iterable[Any],
        fn_constructor_kwargs: Mapping[str, Any] | None,
    ) -> Self:
        """Make it from arguments of ConsumerGroup.map.

        Raises:
            TypeError, ValueError: an argument is invalid.
        """
        return cls(
            fn=fn,
            batch_format=batch_format,
            arguments=tuple(fn_args),
            keywords=dict(fn_kwargs or {}),
            constructor_arguments=tuple(fn_constructor_args),
            constructor_keywords=dict(fn_constructor_kwargs or {}),
        )

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"{self.fn!r} is neither a function nor a class")
        if self.batch_format not in {"arrow", "records"}:
            raise ValueError(f'batch_format={self.batch_format!r}: use "arrow" or "records"')
        given = self.constructor_arguments or self.constructor_keywords
        if given and not isinstance(self.fn, type):
            raise TypeError(
                "fn_constructor_args and fn_constructor_kwargs need a class, not a function"
            )

    def build(self) -> Callable[[pa.Table], Any]:
        """Build the callable for each table. Raises exceptions of the class's constructor."""
        fn: Callable[..., Any] = self.fn
        if isinstance(fn, type):
            fn = fn(*self.constructor_arguments, **self.constructor_keywords)
        if self.batch_format == "records":
            return lambda table: fn(records_in(table), *self.arguments, **self.keywords)
        return lambda table: fn(table, *self.arguments, **self.keywords)


def call(built: Callable[[pa.Table], Any], table: pa.Table) -> tuple[CallOutcome, Any]:
    """Call the function; return the outcome and its result. SystemExit is a failure, too."""
    try:
        return CallOutcome(), built(table)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is raised to the caller
        return CallOutcome(portable(error), traceback.format_exc()), None


def portable(error: BaseException) -> Exception:
    """Return the error, or a RuntimeError with its text if it cannot be pickled."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 -- made in this line
            return error
        except Exception as reason:  # noqa: BLE001 -- an error may refuse in any way
            return RuntimeError(f"{type(error).__name__}: {error} (it cannot be sent: {reason})")
    return RuntimeError(f"{type(error).__name__}: {error}")


def records_in(table: pa.Table) -> list[ConsumerRecord]:
    """Convert rows to records. Cost: about 1 us each."""
    columns: Any = table
    headers: Any = columns.column("headers")
    any_headers = bool(pc.max(pc.list_value_length(headers)).as_py())
    rows = zip(
        columns.column("topic").to_pylist(),
        columns.column("partition").to_pylist(),
        columns.column("offset").to_pylist(),
        columns.column("timestamp").cast(pa.int64()).to_pylist(),
        columns.column("key").to_pylist(),
        columns.column("value").to_pylist(),
        headers.to_pylist() if any_headers else repeat(None, columns.num_rows),
        strict=True,
    )
    return [
        ConsumerRecord._make(
            (*row, [(pair["key"], pair["value"]) for pair in pairs] if pairs else [])
        )
        for *row, pairs in rows
    ]

"""Check that every row was read exactly once, in order per key and unaltered; sums of delays.

Its input is the tables that consumers poll. Pure: no Ray, no clock, no terminal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from .flights import Flights

PARSED = pa.schema(
    [
        ("row", pa.int64()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("month", pa.int64()),
        ("arr_delay", pa.int64()),
    ]
)


@dataclass(slots=True)
class Delays:
    """Sum of delays. flights: their number. timed: those that arrived. delay: sum in minutes."""

    flights: int = 0
    timed: int = 0
    delay: int = 0

    @property
    def mean(self) -> float | None:
        """Mean delay in minutes; None if no flight arrived."""
        return self.delay / self.timed if self.timed else None


class DeliveryCheck:
    """Check of the rows read so far. `by_carrier` and `by_month` are running sums of them."""

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self._seen: npt.NDArray[np.int32] = np.zeros(flights.row_count, np.int32)
        self._last_row: npt.NDArray[np.int64] = np.full(len(flights.keys), -1, np.int64)
        self._partition_of: npt.NDArray[np.int32] = np.full(len(flights.keys), -1, np.int32)
        self._unmatched = 0
        self._out_of_order = 0
        self._altered = 0
        self._moved = 0
        self.record_count = 0
        self.by_carrier: dict[str, Delays] = {}
        self.by_month: dict[tuple[str, int], Delays] = {}

    def add(self, table: pa.Table) -> None:
        """Add the records of a poll: columns partition, timestamp, key, value."""
        if not table.num_rows:
            return
        self.record_count += table.num_rows
        rows = parse_rows(table.column("value"))
        numbers = rows.column("row").to_numpy()
        known = (numbers >= 0) & (numbers < self._flights.row_count)
        self._unmatched += int(np.count_nonzero(~known))
        if not known.all():
            table, rows, numbers = table.filter(known), rows.filter(known), numbers[known]
        np.add.at(self._seen, numbers, 1)
        self._check_records(table, numbers)
        self._check_order(table, numbers)
        self._count(rows)

    def _check_records(self, table: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
        """Check that keys, values and timestamps are those that were sent."""
        sent = self._flights.records.take(pa.array(numbers))
        same = pc.and_(
            pc.equal(table.column("key"), sent.column("key")),
            pc.equal(table.column("value"), sent.column("value")),
        )
        times = pc.equal(table.column("timestamp").cast(pa.int64()), sent.column("timestamp"))
        good = pc.sum(pc.fill_null(pc.and_(same, times), False)).as_py() or 0
        self._altered += table.num_rows - good

    def _check_order(self, table: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
        """Check that row numbers of each key ascend, and all are in one partition."""
        keys = self._flights.key_of[numbers]
        partitions = table.column("partition").to_numpy()
        order = np.argsort(keys, kind="stable")
        keys, numbers, partitions = keys[order], numbers[order], partitions[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        lasts = np.append(firsts[1:], len(keys)) - 1
        before = np.empty_like(numbers)
        before[1:] = numbers[:-1]
        before[firsts] = self._last_row[keys[firsts]]
        self._out_of_order += int(np.count_nonzero(numbers <= before))
        self._last_row[keys[lasts]] = numbers[lasts]
        home = self._partition_of[keys[firsts]]
        self._partition_of[keys[firsts]] = np.where(home < 0, partitions[firsts], home)
        self._moved += int(np.count_nonzero(self._partition_of[keys] != partitions))

    def _count(self, rows: pa.Table) -> None:
        for carrier, flights, timed, delay in _grouped(rows, ["carrier"]):
            _add(self.by_carrier.setdefault(carrier, Delays()), flights, timed, delay)
        for origin, month, flights, timed, delay in _grouped(rows, ["origin", "month"]):
            _add(self.by_month.setdefault((origin, month), Delays()), flights, timed, delay)

    def problems(self) -> list[str]:
        """List the problems after everything has been read; empty if there are none."""
        missing = int(np.count_nonzero(self._seen == 0))
        repeated = int(np.count_nonzero(self._seen > 1))
        found = (
            (missing, "rows were not read"),
            (repeated, "rows were read more than once"),
            (self._unmatched, "records belong to no row"),
            (self._altered, "records differ from what was sent"),
            (self._out_of_order, "records were read out of order for their key"),
            (self._moved, "records are not in their key's partition"),
        )
        return [f"{count:,} {text}" for count, text in found if count]


def parse_rows(values: pa.ChunkedArray) -> pa.Table:
    """Parse values, JSON objects, to the fields of PARSED. Raises pyarrow.ArrowInvalid."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    lines = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    text = pc.binary_join(lines, b"\n")[0].as_buffer()
    return pyarrow.json.read_json(
        pa.BufferReader(text),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=PARSED, unexpected_field_behavior="ignore"
        ),
    )


def _grouped(rows: pa.Table, keys: list[str]) -> list[tuple[Any, ...]]:
    grouped = rows.group_by(keys).aggregate(
        [("row", "count"), ("arr_delay", "count"), ("arr_delay", "sum")]
    )
    columns = [*keys, "row_count", "arr_delay_count", "arr_delay_sum"]
    return list(zip(*(grouped.column(name).to_pylist() for name in columns), strict=True))


def _add(delays: Delays, flights: int, timed: int, delay: int | None) -> None:
    delays.flights += flights
    delays.timed += timed
    delays.delay += delay or 0

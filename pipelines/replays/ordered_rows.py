"""External sort of rows by some columns: sorted runs on disk, which are merged.

Invariants:
    The order is the same each time: the sort is stable.
    Nulls and NaN come last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.columns.columns_arrow import number_array

RUN_BYTES: Final = 256 * 1024 * 1024
MERGED_ROWS: Final = 65_536
"""Rows of each run in memory while runs are merged."""
_ROW: Final = "__bradbury_row"
_RUN: Final = "__bradbury_run"


def ordered_rows(
    batches: Iterable[Any], by: Sequence[str], *, run_bytes: int = RUN_BYTES
) -> Iterator[Any]:
    """Record batches with the rows of `batches`, ascending.

    Runs are kept in TMPDIR until the last row is taken; up to `run_bytes` are sorted in memory.
    """
    runs = _runs(batches, by, run_bytes)
    first = next(runs, None)
    if first is None:
        return
    second = next(runs, None)
    if second is None:
        yield from _rows(first).to_batches(max_chunksize=MERGED_ROWS)
        return
    with tempfile.TemporaryDirectory(prefix="bradbury-replay-") as folder:
        files = [_written(first, Path(folder), 0), _written(second, Path(folder), 1)]
        for number, run in enumerate(runs, 2):
            files.append(_written(run, Path(folder), number))
        del first, second
        yield from _merged([_read(path) for path in files], by)


def _runs(batches: Iterable[Any], by: Sequence[str], run_bytes: int) -> Iterator[Any]:
    """Sorted tables of about `run_bytes`, with row numbers."""
    held: list[Any] = []
    size = count = 0
    for batch in batches:
        numbers = number_array(np.arange(count, count + batch.num_rows), pa.int64())
        held.append(batch.append_column(_ROW, numbers))
        count += batch.num_rows
        size += batch.nbytes
        if size >= run_bytes:
            yield _sorted(pa.Table.from_batches(held), by)
            held, size = [], 0
    if held:
        yield _sorted(pa.Table.from_batches(held), by)


def _sorted(table: Any, by: Sequence[str]) -> Any:
    return table.take(
        pc.sort_indices(table, [*((name, "ascending") for name in by), (_ROW, "ascending")])
    )


def _written(run: Any, folder: Path, number: int) -> Path:
    path = folder / f"{number}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, run.schema) as writer:
        writer.write_table(run, max_chunksize=MERGED_ROWS)
    return path


def _read(path: Path) -> Iterator[Any]:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


def _merged(runs: list[Iterator[Any]], by: Sequence[str]) -> Iterator[Any]:
    """Merge runs in rounds: a piece of every run is held, and rows that precede all rows not read
    yet are output.
    """
    open_runs = dict(enumerate(runs))
    held: dict[int, Any] = {}
    while True:
        for number in [each for each in open_runs if each not in held]:
            piece = next(open_runs[number], None)
            if piece is None:
                del open_runs[number]
            else:
                held[number] = piece
        if not held:
            return
        # The least of the last rows: rows after it may be preceded by rows not read yet.
        lasts = pa.concat_tables(piece.slice(len(piece) - 1) for piece in held.values())
        limit = _sorted(lasts, by)[_ROW][0]
        together = _sorted(
            pa.concat_tables(
                piece.append_column(_RUN, pa.repeat(number, len(piece)))
                for number, piece in held.items()
            ),
            by,
        )
        end = pc.index(together[_ROW], limit).as_py() + 1
        yield from _rows(together.slice(0, end).drop_columns([_RUN])).to_batches()
        rest = together.slice(end)
        held = {}
        for number in pc.unique(rest[_RUN]).to_pylist():
            held[number] = rest.filter(pc.equal(rest[_RUN], number)).drop_columns([_RUN])


def _rows(table: Any) -> Any:
    return table.drop_columns([_ROW])

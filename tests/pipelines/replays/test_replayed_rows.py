"""Are rows sorted on the disk as in memory, and is what JSON is made of read back as it was?"""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from bradbury.pipelines.replays import ordered_rows as module
from bradbury.pipelines.replays.json_objects import json_objects
from bradbury.pipelines.replays.ordered_rows import ordered_rows


@given(st.lists(st.tuples(st.integers(-5, 5) | st.none(), st.text(max_size=2))))
@settings(deadline=None, max_examples=50)
def test_sorted_runs_are_merged_as_a_stable_sort_would_order_them(
    rows: list[tuple[int | None, str]],
) -> None:
    table = pa.table(
        {
            "a": pa.array([row[0] for row in rows], pa.int64()),
            "b": pa.array([row[1] for row in rows], pa.string()),
            "n": pa.array(range(len(rows)), pa.int64()),
        }
    )
    expected = sorted(range(len(rows)), key=lambda n: (rows[n][0] is None, rows[n][0] or 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED_ROWS", 3)
        for run_bytes in (1, 100, 1 << 20):
            found = list(
                ordered_rows(table.to_batches(max_chunksize=5), ["a"], run_bytes=run_bytes)
            )
            assert [n for batch in found for n in batch["n"].to_pylist()] == expected


values = st.none() | st.text() | st.text(alphabet='\\"\n\t\x00\x1f/é😀')


@given(st.lists(st.tuples(values, st.none() | st.lists(values, max_size=3))))
@settings(deadline=None, max_examples=100)
def test_text_and_lists_are_read_back_as_they_were(
    rows: list[tuple[str | None, list[str | None] | None]],
) -> None:
    batch = pa.record_batch(
        {
            'a "name"': pa.array([row[0] for row in rows], pa.string()),
            "list": pa.array([row[1] for row in rows], pa.list_(pa.string())),
        }
    )
    for start in (0, 1):
        found = json_objects(batch.slice(start), batch.schema.names).to_pylist()
        assert [json.loads(each) for each in found] == batch.slice(start).to_pylist()


def test_every_type_has_its_form() -> None:
    moment = datetime(2026, 7, 1, 12, 30, 5, 250_000, UTC)
    row = {
        "int": pa.array([1, None], pa.int32()),
        "double": pa.array([0.1, float("nan")], pa.float64()),
        "bool": pa.array([True, False]),
        "decimal": pa.array([Decimal("12.50"), None], pa.decimal128(10, 2)),
        "time": pa.array([moment, None], pa.timestamp("ms", "UTC")),
        "local": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        "day": pa.array([date(2026, 7, 1), None]),
        "word": pa.array(["a", "b"]).dictionary_encode(),
        "bytes": pa.array([b"text", None]),
        "struct": pa.array(
            [{"x": 1, "y": None}, None], pa.struct([("x", pa.int8()), ("y", pa.string())])
        ),
        "map": pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float32())),
        "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
        "nothing": pa.nulls(2),
    }
    batch = pa.record_batch(row)
    first, second = map(json.loads, json_objects(batch, batch.schema.names).to_pylist())
    assert first == {
        "int": 1,
        "double": 0.1,
        "bool": True,
        "decimal": 12.5,
        "time": "2026-07-01T12:30:05.250Z",
        "local": "2026-07-01T12:30:05.250000",
        "day": "2026-07-01",
        "word": "a",
        "bytes": "text",
        "struct": {"x": 1, "y": None},
        "map": {"k": 1.5},
        "fixed": [1, 2],
        "nothing": None,
    }
    assert second["double"] is None
    assert second["struct"] is None
    assert second["map"] == {}


def test_bytes_that_are_no_text_are_named() -> None:
    batch = pa.record_batch({"raw": pa.array([b"\xff"])})
    with pytest.raises(ValueError, match="column 'raw'.*cannot be JSON.*columns="):
        json_objects(batch, ["raw"])

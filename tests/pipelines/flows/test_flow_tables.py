"""Is a micro-batch in a Delta or an Iceberg table once, however often Spark writes it?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from bradbury.pipelines.flows.flow import FlowFailed, FlowTarget
from bradbury.pipelines.flows.flow_tables import FlowTable, table_of

Made = tuple[FlowTable, Callable[[], list[dict[str, Any]]]]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "day": [f"d{one % 2}" for one in numbers]})


def delta(path: Path) -> Made:
    place = str(path / "table")
    target = FlowTarget(name="t", of="s", table=place, format="delta", partition_by=("day",))
    return table_of(target), lambda: DeltaTable(place).to_pyarrow_table().to_pylist()


def iceberg(path: Path) -> Made:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{path / 'catalog.db'}",
        "warehouse": f"file://{path / 'warehouse'}",
    }
    target = FlowTarget(
        name="t", of="s", table="db.rows", format="iceberg", partition_by=("day",), catalog=catalog
    )

    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            load_catalog("default", **catalog).load_table("db.rows").scan().to_arrow().to_pylist()
        )
        return found

    return table_of(target), read


@pytest.fixture(params=[delta, iceberg], ids=["delta", "iceberg"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    found: Made = request.param(tmp_path)
    return found


def numbers(made: Made) -> list[int]:
    return sorted(row["n"] for row in made[1]())


def test_a_batch_that_comes_again_is_passed_over(made: Made) -> None:
    table, _ = made
    assert table.write(rows(1, 2), "query", 0)
    assert table.write(rows(3), "query", 1)
    assert not table.write(rows(3), "query", 1)
    assert not table.write(rows(1, 2), "query", 0)
    assert table.write(rows(), "query", 2)
    assert table.write(rows(4), "query", 3)
    assert numbers(made) == [1, 2, 3, 4]


def test_a_table_that_is_written_whole_has_the_last_rows_only(made: Made) -> None:
    table, _ = made
    table.replace(rows(1, 2, 3))
    assert numbers(made) == [1, 2, 3]
    table.replace(rows(2, 4))
    assert numbers(made) == [2, 4]
    table.replace(rows(1).slice(0, 0))
    assert numbers(made) == []
    with pytest.raises(FlowFailed, match="has the columns n, day, and the flow has another"):
        table.replace(pa.table({"another": ["x"]}))


def test_queries_do_not_take_each_others_batches_for_theirs(made: Made) -> None:
    table, _ = made
    assert table.write(rows(1), "one", 7)
    assert table.write(rows(2), "another", 0)
    assert not table.write(rows(1), "one", 7)
    assert numbers(made) == [1, 2]


def test_other_columns_are_refused_in_a_line(made: Made) -> None:
    table, _ = made
    table.write(rows(1), "query", 0)
    with pytest.raises(FlowFailed) as refused:
        table.write(pa.table({"another": ["x"], "day": ["d1"]}), "query", 1)
    assert "has the columns n, day, and the flow has another, day" in str(refused.value)
    with pytest.raises(FlowFailed) as refused:
        table.write(pa.table({"n": ["x"], "day": ["d1"]}), "query", 1)
    assert "\n" not in str(refused.value)
    assert numbers(made) == [1]


def test_what_somebody_else_commits_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look at the table and our commit."""
    table, read = iceberg(tmp_path)
    table.write(rows(1), "query", 0)
    opened = table._opened  # type: ignore[attr-defined]
    meanwhile = [("another", 2), ("query", 3)]

    def with_others(schema: pa.Schema) -> Any:
        found = opened(schema)
        if meanwhile:
            application, number = meanwhile.pop(0)
            other, _ = iceberg(tmp_path)
            assert other.write(rows(number), application, 1)
        return found

    monkeypatch.setattr(table, "_opened", with_others)
    assert not table.write(rows(3), "query", 1), "another run of the query was quicker"
    assert sorted(row["n"] for row in read()) == [1, 2, 3]


def test_a_delta_batch_is_committed_on_top_of_others(tmp_path: Path) -> None:
    table, read = delta(tmp_path)
    table.write(rows(1), "query", 0)
    write_deltalake(tmp_path / "table", rows(2), mode="append")
    assert table.write(rows(3), "query", 1)
    assert sorted(row["n"] for row in read()) == [1, 2, 3]

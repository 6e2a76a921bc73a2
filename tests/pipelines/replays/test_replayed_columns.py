"""Do columns of a table become keys and values of records?"""

import pyarrow as pa
import pytest

from bradbury.pipelines.replays.replayed_columns import ReplayedColumns


@pytest.mark.parametrize("key", [None, "key"], ids=["by its name", "as it is chosen"])
def test_a_column_without_any_value_is_one_of_nulls(key: str | None) -> None:
    """A NumPy batch in which all are None gets Arrow's type null, whatever others have."""
    batch = pa.record_batch({"key": pa.nulls(2), "value": pa.nulls(2)})
    columns = ReplayedColumns(
        batch.schema,
        key=key,
        value=None,
        columns=None,
        timestamp="",
        headers="",
        keep_partitions=False,
    )
    assert columns.records(batch, 0).to_pylist() == [{"value": None, "key": None}] * 2

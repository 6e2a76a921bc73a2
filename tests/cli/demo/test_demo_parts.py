"""The demo's pure parts: the records it makes, and the check that would notice if one were wrong."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from bradbury.cli.demo.charts import chart_table
from bradbury.cli.demo.delivery_check import Delays, DeliveryCheck
from bradbury.cli.demo.flights import Flights, flights_of, json_objects, load_airlines, load_flights


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(2_000)


def delivered(flights: Flights) -> pa.Table:
    """As a consumer would hand it out: partitioned by key, in order."""
    partitions = (flights.key_of % 4).astype(np.int32)
    table = flights.records.append_column("partition", pa.array(partitions))
    return table.take(pa.array(np.argsort(partitions, kind="stable")))


def check(flights: Flights, table: pa.Table, step: int = 300) -> DeliveryCheck:
    checked = DeliveryCheck(flights)
    for start in range(0, table.num_rows, step):
        checked.add(table.slice(start, step))
    return checked


@pytest.mark.slow
def test_all_rows_of_the_data_are_there_with_distinct_numbers() -> None:
    everything = load_flights()
    assert everything.row_count == 336_776
    last = json.loads(everything.records.column("value")[-1].as_py())
    assert last["row"] == 336_775


def test_a_record_is_a_flight(flights: Flights) -> None:
    key, value, timestamp = (
        flights.records.column(name)[0].as_py() for name in ("key", "value", "timestamp")
    )
    row = json.loads(value)
    assert key == b"UA1545"
    assert (row["row"], row["carrier"], row["flight"], row["origin"]) == (0, "UA", 1545, "EWR")
    assert row["time_hour"] == "2013-01-01T10:00:00Z"
    assert timestamp == 1357035300000  # 05:15 in New York, the scheduled departure
    cancelled = next(
        json.loads(v) for v in flights.records.column("value").to_pylist() if b":null" in v
    )
    assert cancelled["arr_delay"] is None


@given(
    st.lists(
        st.tuples(st.none() | st.text(max_size=8), st.none() | st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=10,
    )
)
def test_json_of_columns_is_json_of_rows(rows: list[tuple[str | None, int | None]]) -> None:
    texts = pa.array([text for text, _ in rows], pa.string())
    numbers = pa.array([number for _, number in rows], pa.int64())
    made = json_objects(pa.table({'te"xt': texts, "n": numbers})).to_pylist()
    assert [json.loads(text) for text in made] == [{'te"xt': t, "n": n} for t, n in rows]


def test_a_key_is_in_one_shard_in_order(flights: Flights) -> None:
    shards = flights.shards(3)
    assert sum(shard.num_rows for shard in shards) == flights.row_count
    keys = [set(shard.column("key").to_pylist()) for shard in shards]
    assert not (keys[0] & keys[1] or keys[1] & keys[2] or keys[0] & keys[2])
    for shard in shards:
        rows = [json.loads(value)["row"] for value in shard.column("value").to_pylist()]
        assert rows == sorted(rows)


def test_what_came_back_as_it_was_sent_has_no_problem(flights: Flights) -> None:
    for step in (1_000_000, 7):
        checked = check(flights, delivered(flights), step)
        assert checked.problems() == []
        assert checked.record_count == flights.row_count


def test_the_running_table_is_what_plain_python_counts(flights: Flights) -> None:
    checked = check(flights, delivered(flights))
    rows = [json.loads(value) for value in flights.records.column("value").to_pylist()]
    expected: dict[str, Delays] = {}
    for row in rows:
        delays = expected.setdefault(row["carrier"], Delays())
        delays.flights += 1
        if row["arr_delay"] is not None:
            delays.timed += 1
            delays.delay += row["arr_delay"]
    assert checked.by_carrier == expected
    assert sum(delays.flights for delays in checked.by_month.values()) == len(rows)
    assert set(checked.by_carrier) <= set(load_airlines())


def test_a_row_that_is_missing_is_noticed(flights: Flights) -> None:
    assert check(flights, delivered(flights).slice(1)).problems() == ["1 rows were not read"]


def test_a_row_that_came_twice_is_noticed(flights: Flights) -> None:
    table = delivered(flights)
    problems = check(flights, pa.concat_tables([table, table.slice(5, 1)])).problems()
    assert "1 rows were read more than once" in problems


def test_rows_out_of_order_for_a_key_are_noticed_within_a_poll_and_between_two(
    flights: Flights,
) -> None:
    table = delivered(flights)
    turned = table.take(pa.array(np.arange(table.num_rows)[::-1]))
    for step in (1_000_000, 1):
        assert any("out of order" in text for text in check(flights, turned, step).problems())


def test_an_altered_value_key_or_time_is_noticed(flights: Flights) -> None:
    table = delivered(flights)
    first = table.slice(0, 1)
    changes = {
        "value": pa.array([first.column("value")[0].as_py() + b" "], pa.binary()),
        "key": pa.array([b"ZZ1"], pa.binary()),
        "timestamp": pa.array([0], pa.int64()),
    }
    for name, column in changes.items():
        altered = first.set_column(first.schema.get_field_index(name), name, column)
        problems = check(flights, pa.concat_tables([altered, table.slice(1)])).problems()
        assert problems == ["1 records differ from what was sent"]


def test_a_record_of_no_row_is_noticed_and_not_counted(flights: Flights) -> None:
    table = delivered(flights)
    stranger = pa.table(
        {
            "key": pa.array([b"k"], pa.binary()),
            "value": pa.array(
                [b'{"row":999999,"carrier":"XX","origin":"A","month":1,"arr_delay":1}'], pa.binary()
            ),
            "timestamp": pa.array([0], pa.int64()),
            "partition": pa.array([0], pa.int32()),
        }
    )
    checked = check(flights, pa.concat_tables([table, stranger.select(table.column_names)]))
    assert checked.problems() == ["1 records belong to no row"]
    assert "XX" not in checked.by_carrier


def test_a_key_in_two_partitions_is_noticed() -> None:
    columns = {
        "carrier": ["UA", "UA"],
        "flight": [1, 1],
        "origin": ["EWR", "EWR"],
        "month": [1, 1],
        "minute": [0, 0],
        "arr_delay": [1, 2],
        "time_hour": ["2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"],
    }
    two = flights_of(pa.table(columns))
    table = two.records.append_column("partition", pa.array([0, 1], pa.int32()))
    assert check(two, table).problems() == ["1 records are not in their key's partition"]


def test_the_chart_has_a_row_for_each_month_also_where_nothing_flew() -> None:
    table = chart_table(
        {("EWR", 1): Delays(2, 2, 10), ("JFK", 2): Delays(1, 1, -3), ("LGA", 2): Delays(1)}
    )
    assert table.row_count == 12

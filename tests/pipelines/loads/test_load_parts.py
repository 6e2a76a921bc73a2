"""Is a commit cut so that nothing is left out, and is what Delta is told of a file true?"""

import io
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, strategies as st

from bradbury.pipelines.loads.delta_target import file_statistics
from bradbury.pipelines.loads.load_task import share_out
from bradbury.pipelines.ranges.partition_range import PartitionRange

RANGES = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 10**6), st.integers(0, 500)), max_size=12
).map(
    lambda found: [
        PartitionRange(topic, number, start, start + size)
        for number, (topic, start, size) in enumerate(found)
    ]
)


@given(RANGES, st.integers(1, 9))
def test_every_record_is_in_one_part_and_parts_are_even_and_in_order(
    ranges: list[PartitionRange], count: int
) -> None:
    parts = share_out(ranges, count)
    pieces = [piece for part in parts for piece in part]
    assert all(piece.size for piece in pieces)
    found = [(p.topic, p.partition, n) for p in pieces for n in range(p.start, p.end)]
    assert found == [(r.topic, r.partition, n) for r in ranges for n in range(r.start, r.end)]
    sizes = [sum(piece.size for piece in part) for part in parts]
    assert len(parts) <= count
    assert not sizes or max(sizes) == -(-sum(sizes) // count)


NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TIMES = st.one_of(
    st.none(), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
)


@given(st.lists(st.tuples(NUMBERS, TIMES, st.booleans()), max_size=20), st.integers(1, 5))
def test_what_delta_is_told_of_a_file_holds_for_all_its_rows(
    rows: list[tuple[int | None, datetime | None, bool]], group_rows: int
) -> None:
    """A reader passes a file over by it."""
    numbers, times, flags = ([row[at] for row in rows] for at in range(3))
    table = pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "flag": pa.array(flags, pa.bool_()),
            "text": pa.array(["x"] * len(rows), pa.string()),
            "in": pa.array([{"a": 1}] * len(rows), pa.struct([("a", pa.int64())])),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows)
    said = file_statistics(pq.read_metadata(file))
    assert said["numRecords"] == len(rows)
    least, largest = said["minValues"], said["maxValues"]
    assert least.keys() == largest.keys() <= {"n", "t"}
    known = [number for number in numbers if number is not None]
    if known:
        assert (least["n"], largest["n"]) == (min(known), max(known))
    moments = [moment for moment in times if moment is not None]
    if moments:
        first, last = (
            datetime.strptime(each["t"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
            for each in (least, largest)
        )
        assert first <= min(moments) < first + timedelta(milliseconds=1)
        assert last - timedelta(milliseconds=1) <= max(moments) <= last

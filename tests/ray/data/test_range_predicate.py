"""Which ranges do filters leave out before anything is read?"""

from typing import Any

import pytest
from ray.data.expressions import col

from bradbury.pipelines.ranges.partition_range import PartitionRange
from bradbury.pipelines.ray_data.range_predicate import least_timestamp, narrowed

RANGES = [PartitionRange(topic, number, 0, 100) for topic in ("a", "b") for number in range(2)]


def whole(*keys: tuple[str, int]) -> list[PartitionRange]:
    return [PartitionRange(*key, 0, 100) for key in keys]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ((col("topic") == "a") & (col("partition") == 1), whole(("a", 1))),
        (col("partition").is_in([1, 7]), whole(("a", 1), ("b", 1))),
        (
            (col("topic") == "b") & (col("offset") >= 10) & (20 > col("offset")),
            [PartitionRange("b", 0, 10, 20), PartitionRange("b", 1, 10, 20)],
        ),
        ((col("partition") == 1) | (col("offset") < 10), RANGES),
        (col("value") == b"1", RANGES),
        (col("offset") >= 100, []),
    ],
)
def test_comparisons_of_a_conjunction_leave_out_what_has_no_such_row(
    predicate: Any, expected: list[PartitionRange]
) -> None:
    assert narrowed(RANGES, predicate) == expected


@pytest.mark.parametrize(
    "predicate",
    [
        col("partition") == "1",
        col("partition").is_in(["1"]),
        col("topic") == 1,
        col("topic") == None,  # noqa: E711 -- as somebody might write it
    ],
)
def test_what_is_of_another_type_is_left_to_the_filter_which_refuses_it(predicate: Any) -> None:
    """Without a range there would be nothing to filter, and no error: just no rows."""
    assert narrowed(RANGES, predicate) == RANGES


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("timestamp") >= 10, 10),
        ((col("timestamp") > 10) & (col("timestamp") < 90), 11),
        ((5 <= col("timestamp")) & (col("timestamp") == 7), 7),
        (col("timestamp") < 10, None),
        ((col("timestamp") >= 10) | (col("offset") == 1), None),
        (col("timestamp") >= 1.5, None),
        (col("offset") >= 10, None),
    ],
)
def test_a_least_timestamp_may_be_looked_up(predicate: Any, expected: int | None) -> None:
    assert least_timestamp(predicate) == expected

"""How many members does a group want, as its lag comes and goes?"""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from bradbury.clients.consumer_group.lag_scaling import Backlog, LagScaling, ScalingConfig
from bradbury.protocol.errors import InvalidConfig

PARTITIONS = 8


def config(**changes: Any) -> ScalingConfig:
    usual = {
        "min_actors": 1,
        "max_actors": 6,
        "target_lag": 100,
        "target_lag_s": None,
        "upscale_delay_s": 2.0,
        "downscale_delay_s": 10.0,
    }
    return ScalingConfig(**{**usual, **changes})


def lag(*records: int, age_s: float | None = None) -> list[Backlog]:
    return [Backlog(each, age_s if each else 0.0) for each in records]


def test_it_grows_when_the_lag_has_lasted() -> None:
    scaling = LagScaling(config())
    much = lag(200, 200, 50, 0)
    assert scaling.decide(0.0, 1, much) == 1
    assert scaling.decide(1.0, 1, much) == 1
    assert scaling.decide(2.0, 1, much) == 3, "5 by records, but three partitions lag"


def test_a_moment_of_lag_changes_nothing() -> None:
    scaling = LagScaling(config())
    for second in range(20):
        much = lag(0) if second % 2 else lag(*[500] * PARTITIONS)
        assert scaling.decide(float(second), 1, much) == 1


def test_it_shrinks_to_what_was_wanted_at_most_lately() -> None:
    scaling = LagScaling(config())
    for second in range(10):
        records = 400 if second == 5 else 0
        assert scaling.decide(float(second), 6, lag(*[records // 8] * PARTITIONS)) == 6
    assert scaling.decide(11.0, 6, lag(0)) == 4, "400 records six seconds ago"
    assert scaling.decide(16.0, 4, lag(0)) == 1


def test_it_grows_by_the_age_of_the_oldest_record() -> None:
    scaling = LagScaling(config(target_lag=None, target_lag_s=5.0, upscale_delay_s=0.0))
    old = lag(*[3] * PARTITIONS, age_s=60.0)
    assert scaling.decide(0.0, 2, old) == 4, "twice as many at most"
    assert scaling.decide(1.0, 4, lag(*[3] * PARTITIONS, age_s=6.0)) == 5
    assert scaling.decide(2.0, 5, lag(*[3] * PARTITIONS, age_s=1.0)) == 5


@given(
    looks=st.lists(
        st.tuples(
            st.floats(0.1, 5.0), st.lists(st.integers(0, 1_000), min_size=1, max_size=PARTITIONS)
        ),
        max_size=30,
    ),
    low=st.integers(1, 3),
    high=st.integers(3, 6),
)
def test_it_stays_within_its_bounds(
    looks: list[tuple[float, list[int]]], low: int, high: int
) -> None:
    scaling = LagScaling(config(min_actors=low, max_actors=high))
    now, actors = 0.0, low
    for passed, records in looks:
        now += passed
        before, actors = actors, scaling.decide(now, actors, lag(*records))
        assert low <= actors <= high
        lagging = sum(1 for each in records if each)
        assert actors <= before or actors <= max(low, lagging), "it does not grow beyond those"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"min_actors": 0}, "min_actors=0"),
        ({"min_actors": 7}, "max_actors=6"),
        ({"target_lag": None}, "target_lag"),
        ({"target_lag": 0}, "target_lag=0"),
        ({"target_lag_s": -1.0}, "target_lag_s=-1.0"),
        ({"upscale_delay_s": -1.0}, "negative"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        config(**changes)

"""Hours of a day, against a list of those that they have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.daily_hours import ALL_DAY, DailyHours, parse_daily_hours
from bradbury.protocol.errors import InvalidConfig

hours = st.integers(0, 23)


@given(hours, st.integers(1, 24), st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)))
def test_it_has_every_hour_from_the_first_to_the_one_before_the_last(
    start: int, length: int, moment: datetime
) -> None:
    end = (start + length) % 24
    if end == start:
        return
    named = [(start + number) % 24 for number in range(length)]
    wall_ms = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    assert parse_daily_hours(f"{start}-{end}").has(wall_ms) == (moment.hour in named)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)))
def test_nothing_and_0_to_24_are_all_day(moment: datetime) -> None:
    wall_ms = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    assert parse_daily_hours(" ") == ALL_DAY == parse_daily_hours("0-24") == DailyHours(0, 24)
    assert ALL_DAY.has(wall_ms)


@pytest.mark.parametrize(
    "text", ["6", "6-6", "24-6", "6-25", "six-eight", "-1-6", "1-2-3", "1:30-6"]
)
def test_what_are_no_hours_is_refused_as_a_setting(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"bradbury\.log\.scrub\.hours: .* is not hours"):
        BrokerConfig.from_kafka({"bradbury.log.scrub.hours": text})

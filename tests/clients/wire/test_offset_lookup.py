"""Which timestamp is that of a datetime?"""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, strategies as st

from bradbury.clients.wire.offset_lookup import timestamp_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(min_value=0, max_value=4 * 10**12), st.integers(min_value=0, max_value=999))
def test_the_first_millisecond_that_is_not_before_it(milliseconds: int, more: int) -> None:
    moment = EPOCH + timedelta(milliseconds=milliseconds, microseconds=more)
    assert timestamp_of(moment) == milliseconds + bool(more)


def test_a_zone_counts_and_without_one_it_is_utc() -> None:
    assert timestamp_of(datetime(2026, 1, 1)) == 1_767_225_600_000
    assert timestamp_of(datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))) == (
        1_767_225_600_000
    )

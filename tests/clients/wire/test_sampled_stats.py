"""Are rates, averages and maxima those of the last minute, as Kafka counts them?"""

import math

import pytest

from bradbury.clients.wire.sampled_stats import Average, Meter, SampledStat, tagged


def test_nothing_recorded_is_no_number_and_a_rate_of_none() -> None:
    assert Meter("x").figures(5.0) == {"x-total": 0.0, "x-rate": 0.0}
    found = Average("y").figures(5.0)
    assert set(found) == {"y-avg", "y-max"}
    assert all(map(math.isnan, found.values()))


def test_a_rate_counts_at_least_one_whole_window_more_than_has_passed() -> None:
    meter = Meter("records")
    meter.record(60, now=100.0)
    assert meter.figures(110.0)["records-rate"] == pytest.approx(60 / 40)  # 10 s and a window
    meter.record(60, now=140.0)
    assert meter.figures(150.0)["records-rate"] == pytest.approx(120 / 50)
    assert meter.figures(150.0)["records-total"] == 120


def test_what_is_older_than_a_minute_is_forgotten_but_in_the_total() -> None:
    meter, average = Meter("records"), Average("size")
    for one in (meter, average):
        one.record(10, now=0.0)
        one.record(90, now=31.0)
        one.record(20, now=62.0)
    assert meter.figures(63.0)["records-rate"] == pytest.approx(110 / 32)
    assert average.figures(63.0) == {"size-avg": 55.0, "size-max": 90}
    assert average.figures(95.0) == {"size-avg": 20.0, "size-max": 20}
    assert math.isnan(average.figures(200.0)["size-avg"])
    assert meter.figures(200.0) == {"records-total": 120.0, "records-rate": 0.0}


def test_some_have_only_the_figures_that_kafka_has() -> None:
    assert set(Average("x", highest=False).figures(0.0)) == {"x-avg"}
    assert set(Average("x", average=False).figures(0.0)) == {"x-max"}
    assert set(Meter("x", per_hour=True).figures(0.0)) == {"x-total", "x-rate-per-hour"}


def test_a_rate_per_hour_is_3600_times_as_much() -> None:
    meter = Meter("rebalance", per_hour=True)
    meter.record(1, now=0.0)
    assert meter.figures(30.0)["rebalance-rate-per-hour"] == pytest.approx(3600 / 30)


def test_negative_values_have_a_highest_too() -> None:
    stat = SampledStat()
    stat.record(-5, now=0.0)
    stat.record(-3, now=1.0)
    assert stat.highest(2.0) == -3


def test_a_group_is_named_with_its_topic_and_partition() -> None:
    assert tagged("g", {"topic": "t", "partition": 3}) == "g,topic=t,partition=3"

"""Does a group have more members when it is behind, and fewer when it is not?"""

import io
import time

import pytest
from rich.console import Console

import bradbury
from bradbury.protocol.errors import InvalidConfig

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RECORDS = 3_000
WAIT_S = 120


@pytest.mark.long  # a group that grows and shrinks
def test_a_group_grows_and_shrinks_with_its_lag(topic: str) -> None:
    with bradbury.Producer() as producer:
        pairs = [(f"key-{number}", str(number)) for number in range(RECORDS)]
        producer.send_batch(topic, pairs).result()

    def slow(table):  # type: ignore[no-untyped-def]
        time.sleep(0.05)
        return [int(value) for value in table["value"].to_pylist()]

    found: list[int] = []
    sizes = set()
    with bradbury.ConsumerGroup(
        topic,
        topic,
        max_actors=4,
        target_lag=300,
        upscale_delay_s=1.0,
        downscale_delay_s=3.0,
        batch_records=10,
        auto_offset_reset="earliest",
    ) as group:
        for numbers in group.map(slow, stop_at_end=True):
            found += numbers
            sizes.add(group.size)
        assert sorted(found) == list(range(RECORDS)), "none is missing, none is double"
        assert max(sizes) > 1
        assert max(sizes) <= 4
        events = group.status().scale_events
        assert events
        assert events[0].actors_before == 1
        assert events[0].lag > 300


@pytest.mark.long  # the other test comes down to it, too
def test_without_lag_the_smallest_number_is_left(topic: str) -> None:
    with bradbury.ConsumerGroup(
        topic, topic, actors=3, max_actors=3, target_lag=10, downscale_delay_s=1.0
    ) as group:
        group.for_each(lambda table: None)
        deadline = time.monotonic() + WAIT_S
        while len(group.status().members) > 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        status = group.status()
        assert len(status.members) == 1
        assert [event.actors for event in status.scale_events] == [1]
        out = io.StringIO()
        Console(file=out, width=120).print(status)
        assert "3 -> 1 actors: lag 0 records" in out.getvalue()


def test_bounds_without_a_maximum_are_refused(topic: str) -> None:
    for options in ({"target_lag": 5}, {"min_actors": 2}, {"target_lag_s": 1.0}):
        with pytest.raises(InvalidConfig, match="max_actors"):
            bradbury.ConsumerGroup(topic, topic, **options)  # type: ignore[arg-type]

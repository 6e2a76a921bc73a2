"""Does a group of consumer actors process every record, whatever dies?"""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import bradbury

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def topic(cluster: bradbury.Cluster, request: pytest.FixtureRequest) -> str:
    name = f"group-{request.node.name}"[:120]
    with bradbury.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(name, 4)
    return name


def fill(topic: str, count: int, start: int = 0) -> None:
    numbers = [b"%d" % number for number in range(start, start + count)]
    keys = [b"%d" % (number % 10) for number in range(start, start + count)]
    with bradbury.Producer() as producer:
        producer.send_batch(topic, pa.table({"key": keys, "value": numbers})).result(30)


def numbers_in(table: pa.Table) -> list[int]:
    return [int(value) for value in table.column("value").to_pylist()]


def test_a_function_is_mapped_over_all_that_is_there(topic: str) -> None:
    fill(topic, 1000)
    with bradbury.ConsumerGroup(topic, topic, actors=2, auto_offset_reset="earliest") as group:
        found = [n for result in group.map(numbers_in, stop_at_end=True) for n in result]
        print(group.status())
    assert sorted(found) == list(range(1000))

"""A topic that is deleted and made again under its name: nothing of the former one touches it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.support.ray.three_nodes import ThreeNodes, until


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(tmp_path) as nodes:
        yield nodes


def test_its_records_survive_a_kill_right_after_they_were_written(nodes: ThreeNodes) -> None:
    """The checkpoints still had the former one's log start, above everything that was new."""
    with bradbury.Producer(nodes.servers) as producer, bradbury.Admin(nodes.servers) as admin:
        admin.create_topic("t")
        leader = nodes.leader("t")
        for number in range(10):
            producer.send("t", b"old %d" % number)
        producer.flush()
        admin.delete_records({("t", 0): "latest"})
        admin.delete_topic("t")
        until(lambda: not nodes.replicas("t"))
        admin.create_topic("t")
        admin.alter_partition_reassignments({("t", 0): [leader]})
        until(lambda: nodes.partition("t").replicas == (leader,))
        until(lambda: nodes.leader("t") == leader)
    with bradbury.Producer(nodes.servers) as producer:
        for number in range(3):
            producer.send("t", b"new %d" % number)
        producer.flush()
    nodes.kill(leader)
    nodes.start(leader)
    until(lambda: nodes.leader("t") == leader)
    found: list[bytes] = []
    with bradbury.Consumer(bootstrap=nodes.servers) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning()

        def is_enough() -> bool:
            found.extend(consumer.poll(200)["value"].to_pylist())
            return len(found) >= 3

        until(is_enough)
    assert found == [b"new 0", b"new 1", b"new 2"]
    assert [replica.log.log_start_offset for replica in nodes.replicas("t").values()] == [0]

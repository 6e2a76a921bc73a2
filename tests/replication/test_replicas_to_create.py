"""When are replicas tried again whose logs could not be made?"""

from collections.abc import Collection

from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.replication.effects import DeadlineMoved, Effects
from bradbury.replication.manager.replicas_to_create import RETRY_MS, ReplicasToCreate

A, B = ("t", 0), ("t", 1)


class Node:
    """Counts what it is asked to make."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, set[TopicPartitionPair]]] = []

    def make_replicas(self, keys: Collection[TopicPartitionPair], now_ms: int) -> bool:
        self.asked.append((now_ms, set(keys)))
        return True


def test_they_are_tried_when_it_is_time_and_not_before() -> None:
    node = Node()
    effects: Effects = []
    unmade = ReplicasToCreate(node, effects)
    assert not unmade
    assert unmade.next_deadline_ms is None
    unmade.wait_for([A, B], 100)
    assert effects == [DeadlineMoved(unmade)]
    assert unmade.next_deadline_ms == 100 + RETRY_MS
    unmade.on_tick(99 + RETRY_MS)
    assert node.asked == []
    unmade.on_tick(100 + RETRY_MS)
    assert node.asked == [(100 + RETRY_MS, {A, B})]
    unmade.on_tick(101 + RETRY_MS)
    assert len(node.asked) == 1, "what becomes of the first try is not known yet"
    unmade.forget(A)
    unmade.on_tick(100 + 2 * RETRY_MS)
    assert node.asked[1:] == [(100 + 2 * RETRY_MS, {B})]
    unmade.forget(B)
    assert not unmade
    assert unmade.next_deadline_ms is None
    unmade.on_tick(10 * RETRY_MS)
    assert len(node.asked) == 2


def test_nothing_to_wait_for_moves_no_deadline() -> None:
    effects: Effects = []
    unmade = ReplicasToCreate(Node(), effects)
    unmade.wait_for([], 100)
    unmade.on_tick(100 + RETRY_MS)
    assert effects == []
    assert unmade.next_deadline_ms is None

"""When does a node tell the controller what it has in a directory that is offline?"""

from dataclasses import replace
from typing import Any

from bradbury.cluster.control.offline_replicas import RemoveOfflineReplicas
from bradbury.cluster.metadata.metadata_image import MetadataImage, PartitionImage
from bradbury.protocol.errors import NotController
from bradbury.replication.effects import DeadlineMoved, SendControllerRequest
from bradbury.replication.manager.offline_replicas_manager import (
    LOOK_AGAIN_MS,
    RETRY_MS,
    OfflineReplicasManager,
)
from tests.support.metadata import applied, cluster, create, decide

LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC = ("t", 0), ("t", 1), ("t", 2)


class Node:
    node_id = 1
    broker_epoch = 7

    def __init__(self, *offline: tuple[str, int]) -> None:
        image = cluster("a1", "b1")
        image = applied(image, create(image, "t", assignments={0: (1, 2), 1: (2, 1), 2: (2, 1)}))
        gone = PartitionImage(
            replicas=(2, 1), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1
        )
        self.image = applied(image, [gone.to_record(image.topics["t"].topic_id, 2)])
        self.broker_epoch = self.image.nodes[1].epoch
        self.effects: list[Any] = []
        self.offline = dict.fromkeys(offline, "broken")
        self.step = OfflineReplicasManager(self, self.offline, self.effects)

    def look(self) -> None:
        self.step.look()
        assert self.effects.pop() == DeadlineMoved(self.step)

    def asked(self, now_ms: int) -> RemoveOfflineReplicas | None:
        """What is asked at this time, if anything."""
        self.step.on_tick(now_ms)
        if not self.effects:
            return None
        (effect,) = self.effects
        self.effects.clear()
        assert isinstance(effect, SendControllerRequest)
        assert isinstance(effect.request, RemoveOfflineReplicas)
        return effect.request


def test_at_once_for_what_others_count_on_and_no_more_when_they_do_not() -> None:
    node = Node(LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC)
    assert node.step.next_deadline_ms is None
    node.look()
    request = node.asked(0)
    assert request is not None
    assert [each.partition for each in request.replicas] == [0, 1]
    records, answers = decide(node.image, request)
    assert node.step.next_deadline_ms is None, "one request at a time"
    node.step.on_answer(answers, 10)
    node.image = applied(node.image, records)
    assert node.asked(10 + LOOK_AGAIN_MS) is None
    assert node.step.next_deadline_ms is None


def test_again_later_where_nobody_else_could_lead() -> None:
    node = Node(LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC)
    node.look()
    request = node.asked(0)
    node.step.on_answer((False,), 10)
    assert node.asked(9 + LOOK_AGAIN_MS) is None
    assert node.asked(10 + LOOK_AGAIN_MS) == request


def test_again_soon_when_the_controller_could_not_be_asked() -> None:
    node = Node(LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC)
    node.look()
    request = node.asked(0)
    node.step.on_failed(NotController("elsewhere"), 10)
    assert node.step.next_deadline_ms == 10 + RETRY_MS
    assert node.asked(10 + RETRY_MS) == request


def test_at_once_when_another_directory_fails_while_a_question_is_on_its_way() -> None:
    node = Node(LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC)
    node.look()
    node.asked(0)
    node.look()
    assert node.asked(5) is None
    node.step.on_answer((False,), 10)
    assert node.asked(10) is not None


def test_never_for_what_is_deleted() -> None:
    node = Node(LED_HERE, LED_BY_ANOTHER, OUT_OF_SYNC)
    node.image = MetadataImage(nodes=node.image.nodes)
    node.look()
    assert node.asked(0) is None


def test_what_is_given_up_is_led_by_another_and_only_then_forgotten() -> None:
    node = Node()
    node.step.give_up(LED_HERE)
    node.effects.clear()
    request = node.asked(0)
    assert request is not None
    assert [each.partition for each in request.replicas] == [0]
    records, answers = decide(node.image, request)
    assert answers == (True,)
    node.step.on_answer((False,), 10)
    assert node.asked(10 + LOOK_AGAIN_MS) == request, "it is led here still"
    node.step.on_answer(answers, 20 + LOOK_AGAIN_MS)
    node.image = applied(node.image, records)
    state = node.image.partition(*LED_HERE)
    assert state is not None
    assert (state.leader, state.isr) == (2, (2,))
    assert node.asked(20 + 2 * LOOK_AGAIN_MS) is None
    assert node.step.next_deadline_ms is None


def test_nothing_is_given_up_to_whoever_lacks_what_is_committed() -> None:
    node = Node()
    alone = PartitionImage(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=1, partition_epoch=1)
    topic_id = node.image.topics["t"].topic_id
    node.image = applied(node.image, [alone.to_record(topic_id, 0)])
    node.step.give_up(LED_HERE)
    node.effects.clear()
    assert node.asked(0) is None
    eligible = replace(alone, elr=(2,), partition_epoch=2)
    node.image = applied(node.image, [eligible.to_record(topic_id, 0)])
    assert node.asked(LOOK_AGAIN_MS) is not None


def test_what_another_leads_by_now_is_not_given_up() -> None:
    node = Node()
    node.step.give_up(LED_BY_ANOTHER)
    node.effects.clear()
    assert node.asked(0) is None
    assert node.step.next_deadline_ms is None

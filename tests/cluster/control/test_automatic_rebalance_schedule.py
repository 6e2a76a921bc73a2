"""When does the controller begin to move partitions to nodes that have joined?"""

from typing import Any

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.control import controller_state
from bradbury.cluster.control.automatic_rebalance import (
    LOOK_MS,
    SETTLE_MS,
    AutomaticRebalance,
)
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.errors import NotController
from tests.support.metadata import RULES, applied, cluster, create, registration

ON = BrokerConfig.from_kafka({"bradbury.auto.rebalance": True})


class Asked:
    """Instead of the controller: carries out what is due."""

    def __init__(self, config: BrokerConfig = ON) -> None:
        self.image = cluster("a1", "b1")
        self.image = applied(self.image, create(self.image, "t", partitions=8))
        self.answers: list[Any] = []
        self.failure: Exception | None = None
        self.now_ms = 0
        self.schedule = AutomaticRebalance(config)

    def join(self, name: str) -> None:
        records = controller_state.register_node(self.image, registration(name))[1]
        self.image = applied(self.image, records)

    def go_on(self, milliseconds: int) -> None:
        until = self.now_ms + milliseconds
        while self.now_ms < until:
            self.now_ms += LOOK_MS
            step = self.schedule.next_step(self.image, self.now_ms)
            if step is None:
                continue
            answer: Any = self.failure
            if answer is None:
                records, answer = step.decide(self.image, RULES)
                self.image = applied(self.image, records)
            self.answers.append(answer)
            self.schedule.on_done(answer, None)


def reassigned(image: MetadataImage) -> int:
    return sum(each.is_reassigned for each in image.topics["t"].partitions)


def test_it_waits_until_no_other_node_comes() -> None:
    asked = Asked()
    asked.go_on(2 * SETTLE_MS)
    assert asked.answers == []
    asked.join("c1")
    asked.go_on(SETTLE_MS // 2)
    asked.join("d1")
    asked.go_on(SETTLE_MS - LOOK_MS)
    assert asked.answers == []
    asked.go_on(2 * LOOK_MS)
    (moves,) = asked.answers
    assert {node for move in moves for node in move.after} >= {3, 4}
    assert reassigned(asked.image) == len(moves)
    asked.go_on(SETTLE_MS)
    assert len(asked.answers) == 1, "what moves is waited for"


def test_switched_off_nothing_moves() -> None:
    asked = Asked(BrokerConfig())
    asked.join("c1")
    asked.go_on(3 * SETTLE_MS)
    assert asked.answers == []


def test_a_node_for_which_there_is_nothing_is_looked_at_once() -> None:
    asked = Asked()
    asked.image = applied(cluster("a1"), create(cluster("a1"), "t", partitions=1))
    asked.join("b1")
    asked.go_on(5 * SETTLE_MS)
    assert asked.answers == [()]


def test_a_controller_that_is_none_any_more_is_no_reason_to_stop() -> None:
    asked = Asked()
    asked.join("c1")
    asked.failure = NotController("gone")
    asked.go_on(2 * SETTLE_MS)
    assert reassigned(asked.image) == 0
    asked.failure = None
    asked.join("d1")
    asked.go_on(2 * SETTLE_MS)
    assert reassigned(asked.image) > 0

"""The threads in which a simulated node converts records; see actors/replication/conversion_threads.

How long one takes is chance's, so that what came later may be ready first, also after its replica
leads no more. The chance is a stream of its own: seeds without conversions are what they were.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from bradbury.actors.replication.conversion_threads import answer_appended
from bradbury.protocol.errors import KafkaError
from bradbury.replication.partition.conversion_queue import (
    BatchAppended,
    ConvertRecords,
    RecordsCheckedSlowly,
)

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

SLOWEST_MS = (10, 10, 40, 150)
"""A few take so long that a leadership ends meanwhile, and begins again."""


class SimulatedConversions:
    """Those of one life of a node's process; they end with it."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._random = Random(f"conversions {node.cluster.seed} {node.node_id} {node.process.life}")
        node.driver.on(ConvertRecords, self._convert)
        node.driver.on(RecordsCheckedSlowly, lambda effect: None)  # batches are small here
        node.driver.on(BatchAppended, answer_appended)

    def _convert(self, effect: ConvertRecords) -> None:
        node = self._node

        def done() -> None:
            failure: Exception | None = None
            try:
                effect.conversion.run()
            except KafkaError as error:
                failure = error
            effect.queue.on_converted(
                effect.conversion, failure, now_ms=node.now_ms(), wall_ms=node.now_ms()
            )
            node.driver.carry_out()

        node.process.after(1 + self._random.randrange(self._random.choice(SLOWEST_MS)), done)

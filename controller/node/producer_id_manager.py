"""Producer ids of one node, taken one by one from blocks that the controller allocates.

The transaction coordinator's rules take an id at once or not at all, so some are kept in reserve:
when a block is nearly used up the next one is requested, and the rest of the former is used
meanwhile. Unused ids are lost when the node ends; there are 2**63 ids.

Invariants: no id is assigned twice, whether requests succeed or fail. A lost answer costs the block
that was in it.
Source: apache/kafka transaction-coordinator/.../RPCProducerIdManager.java.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from ...protocol.errors import KafkaError
from ...steps.replies import Refuse, Reply
from ..controller_calls import AllocateProducerIds
from ..controller_effects import AskController, Instant

logger = logging.getLogger(__name__)

LOW = 100
"""Number of remaining ids at which the next block is requested: a tenth of a block, as in Kafka."""


class ProducerIdManager:
    """A step object: inputs are `take`, `take_or_wait`, `fill`, and what the controller answers."""

    def __init__(self, effects: list[Any]) -> None:
        self._effects = effects
        self._ids: deque[range] = deque()
        self._is_asking = False
        self._waiting: deque[Any] = deque()

    @property
    def next_deadline_ms(self) -> None:
        """None: it never waits for a time; after a failure the next `take` asks again."""

    def on_tick(self, now: Instant) -> None:
        """Do nothing: no deadline is used."""

    def take(self) -> int | None:
        """Take a producer id; None: none is available at the moment, and the next block is
        requested.

        Waiting tickets come first.
        """
        producer_id = None if self._waiting else self._next()
        self.fill()
        return producer_id

    def take_or_wait(self, ticket: Any) -> None:
        """Take a producer id; answered when there is one. Refused with the controller's error."""
        producer_id = None if self._waiting else self._next()
        if producer_id is None:
            self._waiting.append(ticket)
        else:
            self._effects.append(Reply(ticket, producer_id))
        self.fill()

    def fill(self) -> None:
        """Ask for the next block if there are few ids left."""
        if not self._is_asking and sum(map(len, self._ids)) <= LOW:
            self._is_asking = True
            self._effects.append(AskController(AllocateProducerIds(), self._on_block))

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of an effect that has a `then`."""
        effect.then(result, now)

    def _on_block(self, block: tuple[int, int] | Exception, now: Instant) -> None:
        """Called with (first id, count) of a block."""
        del now
        self._is_asking = False
        if isinstance(block, Exception):
            logger.log(
                logging.INFO if isinstance(block, KafkaError) else logging.ERROR,
                "allocating producer ids failed: %s",
                block,
            )
            while self._waiting:
                self._effects.append(Refuse(self._waiting.popleft(), block))
            return
        first, count = block
        self._ids.append(range(first, first + count))
        while self._waiting and (producer_id := self._next()) is not None:
            self._effects.append(Reply(self._waiting.popleft(), producer_id))
        if self._waiting:
            self.fill()

    def _next(self) -> int | None:
        if not self._ids:
            return None
        ids = self._ids.popleft()
        if len(ids) > 1:
            self._ids.appendleft(ids[1:])
        return ids[0]

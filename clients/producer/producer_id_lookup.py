"""Lookup of the producer id of an idempotent producer without transactions.

Source: TransactionManager.bumpIdempotentEpochAndResetIdIfNeeded in apache/kafka
clients/.../producer/internals (KIP-98).

Not here: the id of a transactional producer, which its coordinator gives (transaction_manager).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from ...protocol.errors import ConnectionFailed, KafkaError, error_for
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClusterClient, is_retriable
from .batches.partition_queue import Identity, PartitionQueue
from .batches.partition_queues import PartitionQueues

_NO_TRANSACTION_TIMEOUT: Final = 2**31 - 1


class ProducerIdLookup:
    """Used on the I/O thread. `identity` is None until a batch has needed one.

    on_refused: called with the error if the brokers refuse a producer id.
    on_end: called after each lookup, however it ends.
    """

    def __init__(
        self,
        client: ClusterClient,
        queues: PartitionQueues,
        *,
        on_refused: Callable[[Exception], None],
        on_end: Callable[[], None],
    ) -> None:
        self.identity: Identity | None = None
        self._client = client
        self._queues = queues
        self._on_refused = on_refused
        self._on_end = on_end
        self._asking: Future[None] | None = None

    def has_one_for(self, queue: PartitionQueue) -> bool:
        """Whether the next batch of `queue` may be sent; if not, an id is being looked up."""
        if not queue.needs_identity():
            return True
        if self.identity is not None and (
            queue.identity is None or queue.identity.producer_id != self.identity.producer_id
        ):
            return True
        if self._asking is None:
            self._asking = self._client.io.spawn(self._ask())
        return False

    def _ask(self) -> Steps[None]:
        """Get a producer id, for as long as there are batches that wait for it."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT
        )
        try:
            while self._queues.has_ready():
                try:
                    response = yield from self._client.send_to_any(request, InitProducerIdResponse)
                    if response.error_code:
                        raise error_for(response.error_code)
                except (KafkaError, ConnectionFailed) as error:
                    self._queues.on_delayed(error)
                    if not is_retriable(error):
                        self._on_refused(error)
                        return
                    yield self._client.config.retry_backoff_ms / 1000
                else:
                    self.identity = Identity(response.producer_id, response.producer_epoch)
                    return
        finally:
            self._asking = None
            self._on_end()

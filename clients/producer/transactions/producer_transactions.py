"""The requests of a transactional producer, sent one after another on the I/O thread.

Invariants:
    The manager chooses the requests; this module looks up the coordinator and sends them, with the
    manager's advice between two requests. A request that may succeed later is retried for as long
    as the producer is open; a caller waits for its own timeout, and may call again.
    A transaction ends when all records that were sent before `end` are encoded and have their
    outcome.

Not here: the choice of requests, and the handling of answers (transaction_manager); batches
(sender).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar

from ....protocol.errors import (
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    TransactionAbortable,
)
from ....protocol.topic_partition import TopicPartition, TopicPartitionPair
from ...group.membership import ConsumerGroupMetadata
from ...threads.awaitable_future import AwaitableFuture
from ...threads.io_thread import Steps, wait
from ...wire.cluster_client import CONTROL, ClusterClient
from ...wire.coordinator_lookup import TRANSACTION_KEY, CoordinatorLookup
from ...wire.record_metadata import OffsetAndMetadata
from ..batches.producer_metrics import ProducerMetrics
from .transaction_manager import Phase, TransactionManager
from .transaction_request import Advice, TransactionOperation, TransactionRequest

logger = logging.getLogger(__name__)
T = TypeVar("T")

FEATURE: Final = "transaction.version"
GivenOffset = int | OffsetAndMetadata
_OPEN: Final = frozenset(
    {Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR, Phase.COMMITTING, Phase.ABORTING}
)


class ProducerTransactions:
    """`initialize` to `on_send_failed` may be called from any thread; the rest by the sender."""

    def __init__(
        self,
        client: ClusterClient,
        manager: TransactionManager,
        *,
        max_block_ms: int,
        metrics: ProducerMetrics,
    ) -> None:
        self.manager = manager
        self.metrics = metrics
        self._client = client
        self._max_block_ms = max_block_ms
        self._lookup = CoordinatorLookup(client, manager.transactional_id, key_type=TRANSACTION_KEY)
        self._group_lookups: dict[str, CoordinatorLookup] = {}
        self._waiting: list[tuple[TransactionOperation, Future[None]]] = []
        self._is_busy = False
        self._is_drained = False
        self._drain: Callable[[], Steps[None]]
        self._is_flushed: Callable[[], bool]
        self._on_change: Callable[[], None]

    def attach(
        self,
        *,
        drain: Callable[[], Steps[None]],
        is_flushed: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        """Set the sender's functions. drain: encodes all records. is_flushed: whether all have
        their outcome. on_change: called when batches may be sent, or no longer.
        """
        self._drain = drain
        self._is_flushed = is_flushed
        self._on_change = on_change

    # --- from any thread -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.manager.phase in _OPEN

    @property
    def may_abort(self) -> bool:
        return self.manager.phase in (Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR)

    def initialize(self) -> AwaitableFuture[TransactionOperation]:
        return self._client.io.spawn(self._performed(self.manager.initialize))

    def begin(self) -> AwaitableFuture[None]:
        return self._client.io.spawn(self._begin())

    def call(self, what: Callable[[], T]) -> AwaitableFuture[T]:
        """Make a call that sends nothing on the I/O thread, which owns the manager."""
        return self._client.io.spawn(_called(what))

    def end(self, *, is_commit: bool) -> AwaitableFuture[TransactionOperation]:
        return self._client.io.spawn(self._end(is_commit=is_commit))

    def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
    ) -> AwaitableFuture[TransactionOperation]:
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group, -1, "", None)
        member = group
        given = {
            TopicPartition(*key): one
            if isinstance(one, OffsetAndMetadata)
            else OffsetAndMetadata(one)
            for key, one in offsets.items()
        }
        return self._client.io.spawn(
            self._performed(lambda: self.manager.send_offsets(given, member))
        )

    def result(
        self, future: Future[TransactionOperation], name: str, timeout_s: float | None
    ) -> None:
        """Wait for the end of a call, for max_block_ms if no time is given.

        Raises:
            RequestTimedOut: it has not ended; repeat the call to continue waiting.
        """
        limit_s = self._max_block_ms / 1000 if timeout_s is None else timeout_s
        try:
            operation = future.result(limit_s)
        except TimeoutError:
            raise self.timed_out(name, limit_s) from None
        self.finish(operation)

    def timed_out(self, name: str, limit_s: float) -> RequestTimedOut:
        return RequestTimedOut(
            f"{name} of {self.manager.transactional_id!r} has not ended within {limit_s} s; it "
            "goes on: call it again to wait for its end"
        )

    @property
    def max_block_s(self) -> float:
        return self._max_block_ms / 1000

    @staticmethod
    def finish(operation: TransactionOperation) -> None:
        """Mark the operation as seen by the caller, and raise its error if it failed."""
        operation.is_acknowledged = True
        if operation.error is not None:
            raise operation.error

    def on_send_failed(self, error: Exception) -> None:
        """Report a record that could not be sent or encoded."""
        if self._client.io.is_current():  # at once, as the end of the transaction may be next
            self.manager.on_send_failed(error)
            self._on_change()
        else:
            self._client.io.call_soon(lambda: self.on_send_failed(error))

    # --- of the sender, on the I/O thread ------------------------------------------------------

    def pump(self) -> None:
        """Send the next request if there is one to be sent."""
        if self._is_busy or self._client.closed:
            return
        is_flushed = self._is_drained and self._is_flushed()
        request = self.manager.next_request(is_flushed=is_flushed)
        self._settle()
        if request is not None:
            self._is_busy = True
            self._client.io.spawn(self._perform(request)).add_done_callback(self._on_performed)

    def refusal(self) -> Exception:
        """Error of a batch that was not sent before its transaction failed or ended."""
        failure = self.manager.failure
        if failure is not None:
            return failure
        return TransactionAbortable(
            f"the transaction of {self.manager.transactional_id!r} ended before this was sent"
        )

    # --- steps ---------------------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        self.manager.begin()
        self._is_drained = False
        return
        yield 0.0

    def _performed(self, call: Callable[[], TransactionOperation]) -> Steps[TransactionOperation]:
        operation = call()
        return (yield from self._ended(operation))

    def _end(self, *, is_commit: bool) -> Steps[TransactionOperation]:
        operation = self.manager.end(is_commit=is_commit)
        yield from self._drain()
        self._is_drained = True
        return (yield from self._ended(operation))

    def _ended(self, operation: TransactionOperation) -> Steps[TransactionOperation]:
        self._on_change()
        if not operation.is_done:
            future: Future[None] = Future()
            self._waiting.append((operation, future))
            yield from wait(future)
        return operation

    def _perform(self, request: TransactionRequest) -> Steps[None]:
        lookup = self._lookup_for(request)
        try:
            address = yield from lookup.find()
            response = yield from wait(
                self._client.connection(address, CONTROL).request(
                    request.message,
                    request.response,
                    timeout_ms=self._client.config.request_timeout_ms,
                    min_version=request.min_version,
                    max_version=request.max_version,
                )
            )
        except (KafkaError, ConnectionFailed) as error:
            logger.debug("%s: %s", request.kind.value, error)
            advice = self.manager.on_error(request, error)
        else:
            self.manager.on_features(self._client.feature_level(FEATURE))
            advice = self.manager.on_response(request, response)
        yield from self._follow(advice, lookup)

    def _follow(self, advice: Advice, lookup: CoordinatorLookup) -> Steps[None]:
        if advice.find_coordinator:
            lookup.forget()
        if advice.delay_ms:
            yield advice.delay_ms / 1000

    def _lookup_for(self, request: TransactionRequest) -> CoordinatorLookup:
        group_id = request.group_id
        if group_id is None:
            return self._lookup
        if group_id not in self._group_lookups:
            self._group_lookups[group_id] = CoordinatorLookup(self._client, group_id)
        return self._group_lookups[group_id]

    def _on_performed(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None and not self._client.closed:
            logger.error("a transaction's request failed; this is a bug", exc_info=error)
        self._is_busy = False
        self._settle()
        self._on_change()

    def _settle(self) -> None:
        """Resume steps whose operations are done."""
        waiting, self._waiting = self._waiting, []
        for operation, future in waiting:
            if operation.is_done:
                future.set_result(None)
            else:
                self._waiting.append((operation, future))


def _called(what: Callable[[], T]) -> Steps[T]:
    return what()
    yield 0.0

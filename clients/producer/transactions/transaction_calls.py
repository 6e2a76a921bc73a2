"""Transactions as applications use them: the calls of Producer and AsyncProducer.

    producer = Producer(transactional_id="delays-0")
    with producer.transaction():
        producer.send("delays", b"{}", key=b"UA1545")
        producer.send_offsets(offsets, consumer.group_metadata())

Invariants:
    When commit() has returned, read_committed consumers will see all records of the transaction,
    and its offsets are committed; of an aborted transaction they see nothing. The coordinator has
    stored the decision by then, and writes markers to the partitions: a consumer may wait a moment
    for them.
    commit() fails if any record that was sent is not in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from ....protocol.errors import (
    ConnectionFailed,
    InvalidTxnState,
    KafkaError,
    TransactionAbortable,
)
from ....protocol.topic_partition import TopicPartitionPair
from ...group.membership import ConsumerGroupMetadata
from ..batches.partition_queue import Identity
from .producer_transactions import GivenOffset, ProducerTransactions
from .transaction_errors import FENCED
from .transaction_manager import OpenTransaction, Phase
from .transaction_request import TransactionOperation

logger = logging.getLogger(__name__)

_UNUSED: Final = (Phase.UNINITIALIZED, Phase.INITIALIZING)


class TransactionCalls:
    """Part of a Producer, whose methods of the same names document them.

    transactions: None if the producer has no transactional_id. Times are seconds; None is
    `max_block_ms`. Each call can time out (RequestTimedOut): it continues; repeat it to wait for
    its end.
    """

    def __init__(self, transactions: ProducerTransactions | None) -> None:
        self._transactions = transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        transactions = self._transactional("init_transactions")
        with transactions.metrics.transaction_call("init"):
            transactions.result(transactions.initialize(), "init_transactions", timeout)

    def release(self) -> Identity | None:
        """Release the transactional id for the producer that resumes it; see TransactionManager."""
        transactions = self._transactional("release")
        released = transactions.call(transactions.manager.release).result()
        assert not isinstance(released, OpenTransaction)
        return released

    def release_open(self) -> OpenTransaction:
        """Release the open transaction, of which all is acknowledged, for the producer that ends
        it.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable, ProducerFenced, ApplicationRecoverable: it has failed.
        """
        transactions = self._transactional("release_open")
        transactions.call(transactions.manager.check_open).result()
        released = transactions.call(transactions.manager.release).result()
        assert isinstance(released, OpenTransaction)
        return released

    def resume(self, released: Identity | OpenTransaction) -> None:
        """Continue with what another producer released; see TransactionManager."""
        transactions = self._transactional("resume")
        transactions.call(lambda: transactions.manager.resume(released)).result()

    def begin(self, timeout: float | None = None) -> None:
        transactions = self._transactional("begin")
        if transactions.manager.phase in _UNUSED:
            self.init_transactions(timeout)
        with transactions.metrics.transaction_call("begin"):
            transactions.begin().result()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        transactions = self._transactional("send_offsets")
        with transactions.metrics.transaction_call("send-offsets"):
            transactions.result(transactions.send_offsets(offsets, group), "send_offsets", timeout)

    def commit(self, timeout: float | None = None) -> None:
        self._end("commit", timeout)

    def abort(self, timeout: float | None = None) -> None:
        self._end("abort", timeout)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        transactions = self._transactional("transaction")
        self.begin()
        try:
            yield
            if transactions.manager.phase is not Phase.READY:
                self.commit()
        except BaseException as error:
            failure, not_aborted = transactions.manager.failure, None
            if transactions.may_abort:
                try:
                    self.abort()
                except (KafkaError, ConnectionFailed) as another:
                    not_aborted = another
            _raise_verdict(transactions, error, failure)
            if not_aborted is not None:
                logger.warning("%s", not_aborted)  # the earlier error is raised
            raise

    def abort_at_close(self, timeout: float | None) -> None:
        """Abort; if that fails the brokers abort it, after transaction_timeout_ms."""
        try:
            self.abort(timeout)
        except (KafkaError, ConnectionFailed) as error:
            logger.warning("the brokers abort the transaction after its time-out: %s", error)

    def _end(self, name: str, timeout: float | None) -> None:
        transactions = self._transactional(name)
        with transactions.metrics.transaction_call(name):
            transactions.result(transactions.end(is_commit=name == "commit"), name, timeout)

    def _transactional(self, name: str) -> ProducerTransactions:
        return _required(self._transactions, name)


class AsyncTransactionCalls:
    """Part of an AsyncProducer: async versions of the methods of TransactionCalls.

    transactions: called for each call, as the producer may have been closed meanwhile. A call whose
    coroutine is cancelled continues; repeat it to wait for its end.
    """

    def __init__(self, transactions: Callable[[], ProducerTransactions | None]) -> None:
        self._transactions = transactions

    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        transactions = self._transactional("init_transactions")
        with transactions.metrics.transaction_call("init"):
            await _ended(transactions, transactions.initialize(), "init_transactions", timeout)

    async def begin(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        transactions = self._transactional("begin")
        if transactions.manager.phase in _UNUSED:
            await self.init_transactions(timeout)
        with transactions.metrics.transaction_call("begin"):
            await transactions.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartitionPair, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        transactions = self._transactional("send_offsets")
        with transactions.metrics.transaction_call("send-offsets"):
            sent = transactions.send_offsets(offsets, group)
            await _ended(transactions, sent, "send_offsets", timeout)

    async def commit(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        transactions = self._transactional("commit")
        with transactions.metrics.transaction_call("commit"):
            await _ended(transactions, transactions.end(is_commit=True), "commit", timeout)

    async def abort(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        transactions = self._transactional("abort")
        with transactions.metrics.transaction_call("abort"):
            await _ended(transactions, transactions.end(is_commit=False), "abort", timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        transactions = self._transactional("transaction")
        await self.begin()
        try:
            yield
            if transactions.manager.phase is not Phase.READY:
                await self.commit()
        except BaseException as error:
            failure, not_aborted = transactions.manager.failure, None
            if transactions.may_abort:
                try:
                    await self.abort()
                except (KafkaError, ConnectionFailed) as another:
                    not_aborted = another
            _raise_verdict(transactions, error, failure)
            if not_aborted is not None:
                logger.warning("%s", not_aborted)  # the earlier error is raised
            raise

    def _transactional(self, name: str) -> ProducerTransactions:
        return _required(self._transactions(), name)


def _raise_verdict(
    transactions: ProducerTransactions, error: BaseException, before: KafkaError | None
) -> None:
    """Raise the final error of a refused batch, if the abort has shown another one.

    A broker refuses batches of a transaction that its coordinator has ended, and those of a
    producer that another one has fenced, with the same code; the transaction's abort shows which it
    was. The same applies if nobody waited for the batch, and the commit has failed because of it.
    before: failure of the transaction when the block was left.
    """
    if isinstance(error, TransactionAbortable):
        before = None
    if isinstance(error, TransactionAbortable) or (
        isinstance(error, KafkaError) and error.code in FENCED
    ):
        verdict = transactions.manager.failure or before
        if verdict is not None and type(verdict) is not type(error):
            raise verdict from error


def _required(transactions: ProducerTransactions | None, name: str) -> ProducerTransactions:
    if transactions is None:
        raise InvalidTxnState(f"{name}: this producer has no transactions; give transactional_id=")
    return transactions


async def _ended(
    transactions: ProducerTransactions,
    future: Future[TransactionOperation],
    name: str,
    timeout: float | None,  # noqa: ASYNC109 -- as Producer
) -> None:
    limit_s = transactions.max_block_s if timeout is None else timeout
    began = time.monotonic()
    try:
        operation = await asyncio.wait_for(asyncio.wrap_future(future), limit_s)
    except TimeoutError:
        if time.monotonic() - began < limit_s:
            raise  # another timeout
        raise transactions.timed_out(name, limit_s) from None
    transactions.finish(operation)

"""Transactions as applications use them: the calls of Producer, and of AsyncProducer.

    producer = Producer(transactional_id="delays-0")
    with producer.transaction():
        producer.send("delays", b"{}", key=b"UA1545")
        producer.send_offsets(offsets, consumer.group_metadata())

What always holds:
    When commit() has returned, all that was sent in the transaction, and its offsets, will be seen
    by consumers that read committed records; of one that was aborted they see nothing. The
    coordinator has decided then, and informs the partitions: a reader may wait a moment for that.
    commit() fails if anything that was sent is not in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Self

from ....protocol.errors import ConnectionFailed, InvalidTxnState, KafkaError
from ...group.membership import ConsumerGroupMetadata
from ...wire.record_metadata import TopicPartitionLike
from .producer_transactions import GivenOffset, ProducerTransactions
from .transaction_errors import FENCED
from .transaction_manager import Phase
from .transaction_request import TransactionOperation

logger = logging.getLogger(__name__)

_UNUSED: Final = (Phase.UNINITIALIZED, Phase.INITIALIZING)


class TransactionCalls:
    """Transaction methods of Producer. Times are seconds; None is `max_block_ms`.

    Each of them can time out (RequestTimedOut): the call goes on, and is repeated to see its end.
    """

    _transactions: ProducerTransactions | None

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: its former producer is fenced, its open transaction
        aborted.

        The first begin() does it, too. Early it tells early what is wrong.

        Raises:
            InvalidTxnState: the producer has no transactional_id.
            RequestTimedOut: no coordinator was there in time, or it is still aborting.
            TransactionalIdAuthorizationFailed, InvalidTransactionTimeout: the brokers refuse.
            UnsupportedVersion: they are too old.
        """
        transactions = self._transactional("init_transactions")
        with transactions.metrics.transaction_call("init"):
            transactions.result(transactions.initialize(), "init_transactions", timeout)

    def begin(self, timeout: float | None = None) -> None:
        """Begin a transaction: what is sent from here on is part of it.

        Raises:
            InvalidTxnState: one is open already.
            TransactionAbortable: the one before has failed: abort() it.
            ProducerFenced, ApplicationRecoverable: close() this producer.
            As init_transactions, the first time.
        """
        transactions = self._transactional("begin")
        if transactions.manager.phase in _UNUSED:
            self.init_transactions(timeout)
        with transactions.metrics.transaction_call("begin"):
            transactions.begin().result()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartitionLike, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Have a group's offsets committed with this transaction, and only with it.

        Args:
            offsets: by partition the offset of the next record to be read.
            group: `consumer.group_metadata()`, which fences a member that the group has gone on
                without (KIP-447); or a group's name, for what is no member of it.

        Raises:
            InvalidTxnState: no transaction is open.
            TransactionAbortable: it has failed, or the group has gone on without this member.
            ProducerFenced, ApplicationRecoverable: close() this producer.
            RequestTimedOut: no coordinator answered in time.
        """
        transactions = self._transactional("send_offsets")
        with transactions.metrics.transaction_call("send-offsets"):
            transactions.result(transactions.send_offsets(offsets, group), "send_offsets", timeout)

    def commit(self, timeout: float | None = None) -> None:
        """Send what is collected, wait until all of it is in the log, and have it made visible.

        Raises:
            TransactionAbortable: something is not in the log: abort() the transaction.
            InvalidTxnState: no transaction is open.
            ProducerFenced, ApplicationRecoverable: close() this producer; nothing is committed, or
                all of it was before.
            RequestTimedOut: it has not ended: call commit() again.
        """
        self._end("commit", timeout)

    def abort(self, timeout: float | None = None) -> None:
        """End the transaction without a trace: what is not on its way is dropped.

        Raises:
            InvalidTxnState: no transaction is open.
            ProducerFenced, ApplicationRecoverable: close() this producer; it is aborted for it.
            RequestTimedOut: it has not ended: call abort() again.
        """
        self._end("abort", timeout)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction, commit it at the end of the block, abort it if the block raises.

        A commit that fails is aborted, too, so the block can be repeated after
        TransactionAbortable. One that times out is not: call commit() again. A block that has ended
        its transaction itself is left alone.

        Raises:
            What the block raises, and begin() and commit(). A block that was told of a fenced
            batch (InvalidProducerEpoch) raises ProducerFenced, or TransactionAbortable if the
            producer may go on: which of them is known when the transaction has been aborted.
        """
        transactions = self._transactional("transaction")
        self.begin()
        try:
            yield self
            if transactions.manager.phase is not Phase.READY:
                self.commit()
        except BaseException as error:
            failure = transactions.manager.failure
            if transactions.may_abort:
                try:
                    self.abort()
                except (KafkaError, ConnectionFailed) as another:
                    logger.warning("%s", another)  # what went wrong before is raised
            _raise_verdict(transactions, error, failure)
            raise

    def _end(self, name: str, timeout: float | None) -> None:
        transactions = self._transactional(name)
        with transactions.metrics.transaction_call(name):
            transactions.result(transactions.end(is_commit=name == "commit"), name, timeout)

    def _transactional(self, name: str) -> ProducerTransactions:
        return _required(self._transactions, name)


class AsyncTransactionCalls(ABC):
    """Transaction methods of AsyncProducer: async versions of those of TransactionCalls.

    A call whose coroutine is cancelled goes on, and is repeated to see its end.
    """

    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.init_transactions."""
        transactions = self._transactional("init_transactions")
        with transactions.metrics.transaction_call("init"):
            await _ended(transactions, transactions.initialize(), "init_transactions", timeout)

    async def begin(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.begin."""
        transactions = self._transactional("begin")
        if transactions.manager.phase in _UNUSED:
            await self.init_transactions(timeout)
        with transactions.metrics.transaction_call("begin"):
            await transactions.begin()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartitionLike, GivenOffset],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Async version of Producer.send_offsets."""
        transactions = self._transactional("send_offsets")
        with transactions.metrics.transaction_call("send-offsets"):
            sent = transactions.send_offsets(offsets, group)
            await _ended(transactions, sent, "send_offsets", timeout)

    async def commit(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.commit."""
        transactions = self._transactional("commit")
        with transactions.metrics.transaction_call("commit"):
            await _ended(transactions, transactions.end(is_commit=True), "commit", timeout)

    async def abort(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Async version of Producer.abort."""
        transactions = self._transactional("abort")
        with transactions.metrics.transaction_call("abort"):
            await _ended(transactions, transactions.end(is_commit=False), "abort", timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Async version of Producer.transaction, for `async with`."""
        transactions = self._transactional("transaction")
        await self.begin()
        try:
            yield self
            if transactions.manager.phase is not Phase.READY:
                await self.commit()
        except BaseException as error:
            failure = transactions.manager.failure
            if transactions.may_abort:
                try:
                    await self.abort()
                except (KafkaError, ConnectionFailed) as another:
                    logger.warning("%s", another)  # what went wrong before is raised
            _raise_verdict(transactions, error, failure)
            raise

    @abstractmethod
    def _given_transactions(self) -> ProducerTransactions | None:
        """Transactions of the producer; None if it has no transactional_id."""

    def _transactional(self, name: str) -> ProducerTransactions:
        return _required(self._given_transactions(), name)


def _raise_verdict(
    transactions: ProducerTransactions, error: BaseException, before: KafkaError | None
) -> None:
    """Raise what the refusal of a batch as fenced has turned out to mean, if it was that.

    A broker refuses the batch of a transaction that its coordinator has ended, and that of a
    producer that was followed by another, with the same code; the transaction's abort tells.
    before: why the transaction had failed when the block was left.
    """
    if isinstance(error, KafkaError) and error.code in FENCED:
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
            raise  # not this one
        raise transactions.timed_out(name, limit_s) from None
    transactions.finish(operation)

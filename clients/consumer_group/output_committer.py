"""Commits of a member with exactly_once: output and offsets of finished batches, in transactions.

Invariants:
    After a failed transaction its output is written again only when the brokers have aborted it,
    or the committed offsets show that it was not committed.
    Output that can never be written (a missing topic, a record that is too large) fails only the
    batches it came from: each is tried alone before it fails.

Used by the member's thread, between polls and inside rebalances.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import ray
from ray.exceptions import RayError, RayTaskError

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    FencedInstanceId,
    KafkaError,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from ..consumer.consumer import Consumer, Wakeup
from ..wire.cluster_client import is_retriable
from .group_arguments import connection_options
from .group_output import OutcomeUnknown, Outputs, OutputWriter, outputs_of
from .processing.function import CallOutcome, portable
from .processing.member_config import MemberConfig
from .processing.uncommitted import FinishedBatch, Writable
from .processing.work import MemberWork

logger = logging.getLogger(__name__)

BACKOFF_S: Final = 0.2

_REFUSED_BY_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


_TRANSACTION_ENDED: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Errors of the transaction's state, not of its content: the next transaction may succeed."""


class OutputCommitter:
    """Committer of one member. Its transactional id (group, member) is the same after a restart."""

    def __init__(self, config: MemberConfig, work: MemberWork) -> None:
        options = connection_options(config.consumer_options)
        self._config = config
        self._work = work
        self._writer = OutputWriter(
            f"{config.group}.{config.instance_id}", {**config.producer_options, **options}
        )
        self._doubtful: Writable | None = None
        self._suspects = 0

    def open(self, stopping: threading.Event) -> bool:
        """Fence a former process of this member; return False if `stopping` is set before.

        Raises:
            KafkaError: the brokers refuse.
        """
        while not stopping.is_set():
            try:
                self._writer.open()
                return True
            except (KafkaError, ConnectionFailed) as error:
                if not is_retriable(error):
                    raise
                logger.warning("member %s: %s; trying again", self._config.instance_id, error)
                stopping.wait(BACKOFF_S)
        return False

    def close(self) -> None:
        self._writer.close()

    def commit(self, consumer: Consumer) -> None:
        """Write what can be written now; the rest waits for the next call.

        Raises:
            FencedInstanceId: another process has this member's name.
            KafkaError: the brokers refuse permanently.
        """
        try:
            while self._commit(consumer) and self._suspects:
                pass
        except (KafkaError, ConnectionFailed) as error:
            if isinstance(error, FencedInstanceId) or not is_retriable(error):
                raise
            logger.warning("member %s: %s; trying again", self._config.instance_id, error)

    def _commit(self, consumer: Consumer) -> bool:
        """Write once; return whether anything was written."""
        self._settle(consumer)
        writable = self._work.uncommitted.writable(few=self._suspects > 0)
        if not writable.offsets:
            return False
        outputs: list[Outputs] = []
        for one in writable.batches:
            found = self._outputs(one)
            if found is None:
                return (
                    False  # one of them is processed again, or has failed: choose again next time
                )
            outputs.append(found)
        try:
            self._writer.write(outputs, writable.offsets, consumer.group_metadata())
        except OutcomeUnknown as error:
            logger.warning("member %s: %s", self._config.instance_id, error)
            self._doubtful = writable
            self._settle(consumer)
        except (KafkaError, ConnectionFailed, TypeError, ValueError) as error:
            self._on_error(writable, error)
        else:
            self._on_written(writable)
            return True
        return False

    def _settle(self, consumer: Consumer) -> None:
        """Resolve a transaction with unknown outcome, by whether its offsets are committed."""
        doubtful = self._doubtful
        if doubtful is None:
            return
        self._writer.open()  # completes or aborts it
        stored = _undisturbed_committed(consumer, doubtful)
        self._doubtful = None
        if all((stored[key] or 0) >= offset for key, offset in doubtful.offsets.items()):
            self._on_written(doubtful)

    def _on_written(self, writable: Writable) -> None:
        self._suspects = max(0, self._suspects - len(writable.batches))
        self._work.uncommitted.on_written(writable)
        self._work.on_committed(writable.offsets)

    def _on_error(self, writable: Writable, error: Exception) -> None:
        reason = error.__cause__ if isinstance(error, TransactionAbortable) else error
        if isinstance(reason, FencedInstanceId):
            raise reason
        logger.info("member %s: not committed: %s", self._config.instance_id, error)
        if isinstance(reason, KafkaError) and reason.code in _REFUSED_BY_GROUP:
            return  # the next poll rejoins; the partitions are assigned again, or to another member
        if isinstance(reason, KafkaError) and reason.code in _TRANSACTION_ENDED:
            return
        # A topic that does not exist after the producer's retries is probably misspelt.
        is_unknown = isinstance(reason, UnknownTopicOrPartition)
        if reason is None or (is_retriable(reason) and not is_unknown):
            raise ConnectionFailed(str(error)) from error
        if len(writable.batches) > 1 and not self._suspects:
            # Write the batches one by one, until the batch that cannot be written is found.
            self._suspects = len(writable.batches)
            return
        if not writable.batches:
            raise reason
        self._suspects = 0
        for one in writable.batches:
            self._work.uncommitted.on_refused(one, CallOutcome(portable(reason)))

    def _outputs(self, one: FinishedBatch) -> Outputs | None:
        """Outputs of a batch; None: the result is lost, or cannot be written."""
        try:
            returned = ray.get(one.result) if self._config.workers else one.result
            return outputs_of(returned)
        except TypeError as error:
            self._work.uncommitted.on_refused(one, CallOutcome(error))
        except RayTaskError as error:
            self._work.uncommitted.on_refused(one, CallOutcome(portable(error)))
        except RayError as error:
            logger.warning(
                "the result of a worker is lost, and its batch is processed again: %s", error
            )
            self._work.uncommitted.on_lost_result(one)
        return None


def _undisturbed_committed(consumer: Consumer, doubtful: Writable) -> dict[object, int | None]:
    while True:
        try:
            return dict(consumer.committed(*doubtful.offsets).items())
        except Wakeup:
            continue

"""A member's commits with exactly_once: output and offsets of what is finished, in transactions.

What always holds:
    After a transaction that failed, what was in it is written again only when the brokers have
    aborted it, or what is stored says so.
    What can never be written (a topic that is not there, a record that is too large) fails the
    batches it came from, and those alone: they are written by themselves before they are blamed.

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

_GROUP_WENT_ON: Final = frozenset(
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
"""The transaction's state was to blame, and not what was in it: the next one may succeed."""


class OutputCommitter:
    """transactional id: the group and the member's name, so that it is the same after a restart."""

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
        """Whether it is open, before `stopping`. A former process of this member is fenced then.

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
        """Write what may be written now; what cannot be for now waits for the next call.

        Raises:
            FencedInstanceId: another process has this member's name.
            KafkaError: the brokers refuse for good.
        """
        try:
            while self._commit(consumer) and self._suspects:
                pass
        except (KafkaError, ConnectionFailed) as error:
            if isinstance(error, FencedInstanceId) or not is_retriable(error):
                raise
            logger.warning("member %s: %s; trying again", self._config.instance_id, error)

    def _commit(self, consumer: Consumer) -> bool:
        """Whether something was written."""
        self._settle(consumer)
        writable = self._work.uncommitted.writable(few=self._suspects > 0)
        if not writable.offsets:
            return False
        outputs: list[Outputs] = []
        for one in writable.batches:
            found = self._outputs(one)
            if found is None:
                return (
                    False  # one of them is processed again, or has failed: another choice next time
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
        """Of a transaction in doubt, what is stored says how it ended: its offsets, or none."""
        doubtful = self._doubtful
        if doubtful is None:
            return
        self._writer.open()  # ends it, one way or the other
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
        if isinstance(reason, KafkaError) and reason.code in _GROUP_WENT_ON:
            return  # the next poll joins again; the partitions come back, or are another's
        if isinstance(reason, KafkaError) and reason.code in _TRANSACTION_ENDED:
            return
        # A topic that is still not there when the producer gives up looking is a misspelt one.
        is_unknown = isinstance(reason, UnknownTopicOrPartition)
        if reason is None or (is_retriable(reason) and not is_unknown):
            raise ConnectionFailed(str(error)) from error
        if len(writable.batches) > 1 and not self._suspects:
            # One after another from here on, until the one that cannot be written shows.
            self._suspects = len(writable.batches)
            return
        if not writable.batches:
            raise reason
        self._suspects = 0
        for one in writable.batches:
            self._work.uncommitted.on_refused(one, CallOutcome(portable(reason)))

    def _outputs(self, one: FinishedBatch) -> Outputs | None:
        """What it returned; None: that is lost, or nothing that can be written."""
        try:
            returned = ray.get(one.result) if self._config.workers else one.result
            return outputs_of(returned)
        except TypeError as error:
            self._work.uncommitted.on_refused(one, CallOutcome(error))
        except RayTaskError as error:
            self._work.uncommitted.on_refused(one, CallOutcome(portable(error)))
        except RayError as error:
            logger.warning("the result of a worker is lost, and made again: %s", error)
            self._work.uncommitted.on_lost_result(one)
        return None


def _undisturbed_committed(consumer: Consumer, doubtful: Writable) -> dict[object, int | None]:
    while True:
        try:
            return dict(consumer.committed(*doubtful.offsets).items())
        except Wakeup:
            continue

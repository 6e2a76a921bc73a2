"""Output of a group's function for other topics, written with the offsets it came from.

    {"delays": table, "alarms": [b"late"]}     data for Producer.send_batch, by topic
    [bradbury.ProducerRecord("delays", b"3")]  single records
    None                                       no output: only the offsets are committed

Invariants:
    Output and offsets are one transaction: both are committed, or neither.
    It is fenced twice: by the transactional id, which is the member's name, against a former
    process of this member; and by the group's generation (KIP-447), against a member that the
    group has removed.
    A transaction with an unknown outcome is not repeated until its outcome is known.

Not here: the choice of batches to write (uncommitted).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from ...protocol.errors import (
    ApplicationRecoverable,
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
)
from ...protocol.topic_partition import TopicPartition
from ..group.membership import ConsumerGroupMetadata
from ..producer.producer import Producer
from ..wire.interceptors import ProducerRecord

logger = logging.getLogger(__name__)

Outputs = list[tuple[str, Any]] | list[ProducerRecord]

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Transaction timeout, as in Kafka Streams: the next owner of a hanging member's partitions waits
for it, as their committed offsets are pending. The whole output is available when a transaction
begins, so that it only takes the time to write.
"""

MAX_BLOCK_MS: Final = 10_000


class OutcomeUnknown(Exception):
    """Raised if the producer was fenced in a commit: the committed offsets show the outcome."""


def outputs_of(returned: object) -> Outputs:
    """Convert a function's result to outputs to send.

    Raises:
        TypeError: it is not one of the types that can be sent.
    """
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        for topic in returned:
            if not isinstance(topic, str):
                raise TypeError(f"the function's output has the key {topic!r}: use topic names")
        return list(returned.items())
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes):
        records = list(returned)
        if all(isinstance(record, ProducerRecord) for record in records):
            return records
    raise TypeError(
        f"the function returned {type(returned).__name__}: return {{topic: table or list of "
        "values}, ProducerRecords or None"
    )


class OutputWriter:
    """Writer of outputs, used by the member's thread. Its producer is created on demand.

    A fenced producer is replaced.

    Args:
        transactional_id: that of the member.
        options: arguments of Producer.
    """

    def __init__(self, transactional_id: str, options: Mapping[str, Any]) -> None:
        self._transactional_id = transactional_id
        self._options = {
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "max_block_ms": MAX_BLOCK_MS,
            **options,
        }
        self._producer: Producer | None = None

    def open(self) -> None:
        """Fence a former process of this member, and so abort its open transaction.

        Raises:
            KafkaError, ConnectionFailed: the brokers refuse, or none answers.
        """
        if self._producer is None:
            producer = Producer(transactional_id=self._transactional_id, **self._options)
            try:
                producer.init_transactions()
            except BaseException:
                producer.close(0)
                raise
            self._producer = producer

    def write(
        self,
        outputs: Iterable[Outputs],
        offsets: Mapping[TopicPartition, int],
        group: ConsumerGroupMetadata,
    ) -> None:
        """Write outputs and offsets in one transaction. After an error neither is committed, unless
        it is OutcomeUnknown.

        Raises:
            TransactionAbortable: it was aborted; its cause is the reason.
            OutcomeUnknown: `offsets` are committed if, and only if, the transaction is.
            KafkaError, ConnectionFailed, TypeError, ValueError: an output cannot be sent.
        """
        self.open()
        producer = self._producer
        assert producer is not None
        is_committing = False
        try:
            producer.begin()
            for each in outputs:
                send_outputs(producer, each)
            producer.send_offsets(dict(offsets.items()), group)
            is_committing = True
            _commit(producer)
        except ApplicationRecoverable as error:
            self.close()
            if is_committing:
                raise OutcomeUnknown(str(error)) from error
            raise ConnectionFailed(f"nothing was written: {error}") from error
        except BaseException:
            self._abort(producer)
            raise

    def close(self) -> None:
        """Close the producer; an open transaction is aborted. Idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(MAX_BLOCK_MS / 1000)

    def _abort(self, producer: Producer) -> None:
        """Abort the transaction. If that fails, brokers abort it after its timeout."""
        try:
            producer.abort()
        except (KafkaError, ConnectionFailed) as error:
            logger.info("transactional id %s: not aborted: %s", self._transactional_id, error)
            self.close()


def send_outputs(producer: Producer, outputs: Outputs) -> list[Future[Any]]:
    """Send outputs; the futures are done when all records are acknowledged."""
    sent: list[Future[Any]] = []
    for one in outputs:
        if isinstance(one, ProducerRecord):
            sent.append(
                producer.send(
                    one.topic,
                    one.value,
                    one.key,
                    partition=one.partition,
                    timestamp_ms=one.timestamp_ms,
                    headers=one.headers,
                )
            )
        else:
            topic, data = one
            sent.append(producer.send_batch(topic, data))
    return sent


def _commit(producer: Producer) -> None:
    """Commit without a time limit, as the outcome would be unknown after a timeout."""
    while True:
        try:
            return producer.commit()
        except RequestTimedOut as error:
            logger.warning("%s", error)

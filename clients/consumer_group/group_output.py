"""What a group's function returns for other topics, written together with the offsets it came from.

    {"delays": table, "alarms": [b"late"]}     by topic, what Producer.send_batch takes
    [bradbury.ProducerRecord("delays", b"3")]  single records
    None                                       nothing: only the offsets are stored

What always holds:
    Output and offsets are one transaction: both are there, or neither.
    It is fenced twice: by the transactional id, which is the member's name, so a former process of
    this member can end nothing any more; and by the group's generation (KIP-447), so a member that
    the group has gone on without cannot either.
    A transaction whose outcome is unknown is never repeated before the outcome is known.

Not here: which batches may be written (uncommitted).
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
from ..group.membership import ConsumerGroupMetadata
from ..producer.producer import Producer
from ..wire.interceptors import ProducerRecord
from ..wire.record_metadata import TopicPartition

logger = logging.getLogger(__name__)

Outputs = list[tuple[str, Any]] | list[ProducerRecord]

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""As in Kafka Streams: so long the partitions of a member that hangs wait for their next owner. A
transaction begins when all that it holds is there, so it takes no longer than writing that.
"""

MAX_BLOCK_MS: Final = 10_000


class OutcomeUnknown(Exception):
    """The producer was fenced while it committed: what is stored says whether it did."""


def outputs_of(returned: object) -> Outputs:
    """What the function returned, as it is sent.

    Raises:
        TypeError: it is none of what can be sent.
    """
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        for topic in returned:
            if not isinstance(topic, str):
                raise TypeError(f"a function that writes returns topics, not {topic!r}")
        return list(returned.items())
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes):
        records = list(returned)
        if all(isinstance(record, ProducerRecord) for record in records):
            return records
    raise TypeError(
        "a function that writes returns {topic: table or list of values}, "
        f"ProducerRecords, or None; not {type(returned).__name__}"
    )


class OutputWriter:
    """Used by the member's thread. Its producer is made when it is needed, and again when fenced.

    Args:
        transactional_id: the member's.
        options: Producer's.
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
        """Fence a former process of this member, and have its open transaction aborted.

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
        """One transaction. When this raises anything but OutcomeUnknown, nothing of it is there.

        Raises:
            TransactionAbortable: it was aborted; its cause is the reason.
            OutcomeUnknown: `offsets` are stored, or not; that says it.
            KafkaError, ConnectionFailed, TypeError, ValueError: something cannot be sent.
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
        """Idempotent. What is open is aborted."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(MAX_BLOCK_MS / 1000)

    def _abort(self, producer: Producer) -> None:
        """Nothing was committed. Brokers that cannot be reached abort it when its time is over."""
        try:
            producer.abort()
        except (KafkaError, ConnectionFailed) as error:
            logger.info("%s: not aborted: %s", self._transactional_id, error)
            self.close()


def send_outputs(producer: Producer, outputs: Outputs) -> list[Future[Any]]:
    """What is done when all of it is acknowledged."""
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
    """However long it takes: to stop waiting would be not to know."""
    while True:
        try:
            return producer.commit()
        except RequestTimedOut as error:
            logger.warning("%s", error)

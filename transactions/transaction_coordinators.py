"""Transaction coordinators, as a kind of coordinator for coordinators/."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from ..coordinators.coordinator_context import CoordinatorContext
from ..coordinators.coordinator_rules import CoordinatorKind
from ..protocol.topic_name import TRANSACTIONS_TOPIC
from .transaction_config import TransactionConfig
from .transaction_coordinator import TakeProducerId, TransactionCoordinator
from .transaction_records import encode_transaction_record, transactions_in

APPEND_TIMEOUT_MS = 5_000
"""Timeout of an append. Kafka uses transaction.timeout.ms; here the client is answered
earlier, and retries.
"""

TransactionContext: TypeAlias = CoordinatorContext[TransactionCoordinator]


def transaction_coordinators(
    config: TransactionConfig, take_producer_id: TakeProducerId, version: int
) -> CoordinatorKind[TransactionCoordinator]:
    """Coordinator kind for transactions. `version`: the cluster's transaction.version."""
    return CoordinatorKind(
        topic=TRANSACTIONS_TOPIC,
        contents="transaction metadata",
        new_rules=lambda: TransactionCoordinator(config, take_producer_id, version),
        count=lambda rules: f"{len(rules)} transactional ids",
        encode=partial(encode_transaction_record, transaction_version=version),
        decode=transactions_in,
        load_buffer_size=config.transaction_state_log_load_buffer_size,
        append_timeout_ms=APPEND_TIMEOUT_MS,
    )

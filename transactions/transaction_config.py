"""Settings of the transaction coordinator, under Kafka's own names.

One field per setting; see protocol/config_key for what a field holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Config,
    as_it_is,
    boolean,
    integer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig(Config):
    """Settings of transaction coordinators, and of leaders that ask them. Immutable.

    Defaults are Kafka 4.1's. Units are in the names.
    Source: apache/kafka transaction-coordinator/.../TransactionStateManagerConfig.java,
    TransactionLogConfig.java, AddPartitionsToTxnConfig.java.
    """

    kind: ClassVar[str] = "transaction coordinator"

    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS, 1, "The longest transaction.timeout.ms a producer may ask for."
    )
    transactional_id_expiration_ms: int = integer(
        7 * DAY_MS, 1, "Time after which a transactional id expires that no producer uses."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, 1, "Interval of checks for transactions that are open too long."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, 1, "Interval of checks for expired transactional ids."
    )

    transaction_state_log_num_partitions: int = integer(
        50, 1, "Partitions of __transaction_state; fixed once the topic is there."
    )
    transaction_state_log_replication_factor: int = integer(
        3,
        1,
        "Replicas of __transaction_state, or as many as there are machines if that is less when "
        "the first transactional id is looked for.",
    )
    transaction_state_log_min_isr: int = integer(
        2,
        1,
        "min.insync.replicas of __transaction_state, or its replicas if they are fewer; for a new "
        "topic.",
    )
    transaction_state_log_segment_bytes: int = integer(
        100 * 1024**2,
        14,
        "Segments of __transaction_state, of which closed ones are compacted; for a new topic.",
    )
    transaction_state_log_load_buffer_size: int = integer(
        5 * 1024**2, 1, "Bytes that are read at a time when a coordinator starts."
    )
    transaction_partition_verification_enable: bool = boolean(
        default=True,
        documentation="Whether a leader asks the coordinator before it appends the first batch of "
        "a transaction.",
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = as_it_is(
        default=False,
        documentation="Whether transactions may be prepared for another coordinator to decide.",
        why_only="two-phase commit (KIP-939) is not there yet",
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        1,
        "Pause before a leader asks again while the producer's former transaction is being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100, 0, "Time after which it stops asking, and the producer must retry."
    )

    def may_time_out_after(self, timeout_ms: int) -> bool:
        return 0 < timeout_ms <= self.transaction_max_timeout_ms

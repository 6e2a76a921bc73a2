"""Settings of the transaction coordinator, under Kafka's own names.

One field per setting; see protocol/config_key for what a field holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..protocol.config_key import DAY_MS, HOUR_MS, MINUTE_MS, Config, integer


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig(Config):
    """What every transaction coordinator of a cluster is started with. Immutable.

    Defaults are Kafka 4.1's. Units are in the names.
    Source: apache/kafka transaction-coordinator/.../TransactionStateManagerConfig.java.
    """

    kind: ClassVar[str] = "transaction coordinator"

    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS, 1, "The longest transaction.timeout.ms a producer may ask for."
    )
    transactional_id_expiration_ms: int = integer(
        7 * DAY_MS, 1, "How long a transactional id is kept that no producer uses."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, 1, "How often transactions are looked for that are open for too long."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, 1, "How often transactional ids are looked for that no producer uses."
    )

    transaction_state_log_load_buffer_size: int = integer(
        5 * 1024**2, 1, "How many bytes are read at a time when a coordinator starts."
    )

    def may_time_out_after(self, timeout_ms: int) -> bool:
        return 0 < timeout_ms <= self.transaction_max_timeout_ms

"""Settings of a broker's log cleaner that bound one cleaning, under Kafka's names (log.cleaner.*).

Source: apache/kafka storage/.../internals/log/CleanerConfig.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cleaner_rows import BYTES_PER_ENTRY


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Settings of a cleaning. Values are checked on input (cluster/broker_config). Sizes are for
    all threads together.
    """

    threads: int = 1
    dedupe_buffer_size: int = 128 * 1024**2
    io_buffer_size: int = 512 * 1024
    io_buffer_load_factor: float = 0.9

    @property
    def most_keys(self) -> int:
        """Most keys of one cleaning; the rest is cleaned by the next."""
        slots = self.dedupe_buffer_size // self.threads // BYTES_PER_ENTRY
        return max(1, int(slots * self.io_buffer_load_factor))

    @property
    def read_bytes(self) -> int:
        """Bytes of a log that are read at once: half of a thread's buffers, as in Kafka."""
        return max(4096, self.io_buffer_size // self.threads // 2)

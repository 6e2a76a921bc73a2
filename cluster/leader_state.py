"""One partition's replica as its leader sees it: how far the records are committed.

The high watermark is the least log end offset of the in-sync replicas. For now the ISR is the
leader alone (replication factor 1), so it follows the leader's own log; followers and their fetch
offsets come with replication, in this class.

All of it is soft state: a new leader epoch begins a new LeaderState. What always holds: the high
watermark never decreases within one epoch. Source: apache/kafka core/.../cluster/Partition.scala.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LeaderState:
    leader_epoch: int
    partition_epoch: int
    high_watermark: int

    @property
    def isr_size(self) -> int:
        """In-sync replicas, the leader included: what min.insync.replicas is compared with."""
        return 1

    def on_local_append(self, log_end_offset: int) -> bool:
        """The leader's log (durable as far as the topic asks) now ends at `log_end_offset`.

        Returns whether the high watermark moved.
        """
        if log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = log_end_offset
        return True

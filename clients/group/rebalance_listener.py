"""Callbacks of an application for partitions that are assigned or revoked.

    class Flush(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            sink.flush()
            consumer.commit()

    consumer.subscribe(["flights"], listener=Flush())

The methods are called by poll, `unsubscribe` and `close`, on the thread that calls those, so no
other call runs meanwhile. They may use the consumer: commit, seek, pause.

In an eager group all partitions are revoked before each rebalance and the new ones assigned after
it, both also when there are none. In a cooperative group only partitions that move are reported:
revoked ones, if any, and then new ones.

Source: ConsumerRebalanceListener.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.topic_partition import TopicPartition


class RebalanceListener:
    """Override what you need. An exception is raised by poll, after the rebalance has continued."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when `partitions` are new to this member, before any record of them is read."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before `partitions` are revoked: their offsets can still be committed."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when another member may own `partitions` already: their commits would be refused.

        By default it calls on_partitions_revoked.
        """
        self.on_partitions_revoked(partitions)

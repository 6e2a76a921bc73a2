"""Callbacks of an application for partitions that are assigned or revoked.

    class Flush(RebalanceListener):
        def on_partitions_revoked(self, partitions):
            sink.flush()
            consumer.commit()

    consumer.subscribe(["flights"], listener=Flush())

All of it is called by poll, `unsubscribe` and `close`, on the thread that calls them, so nothing
else happens to the consumer meanwhile. The consumer may be used: committed, sought, paused.

In an eager group all partitions are revoked before each rebalance and the new ones assigned after
it, both also when there are none. In a cooperative one only what moves is reported: what is
revoked, if anything, and then what is new.

Source: ConsumerRebalanceListener.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.topic_partition import TopicPartition


class RebalanceListener:
    """Override what you need. An exception is raised by poll, after the rebalance has gone on."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when `partitions` are new to this member, before any record of them is read."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before `partitions` are given up: their offsets can still be committed."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when `partitions` may be another's already: a commit of theirs would be refused.

        Unless overridden it is as if they were revoked.
        """
        self.on_partitions_revoked(partitions)

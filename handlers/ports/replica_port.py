"""Port of handlers to this node's partitions: replicas, slices of their logs, waiters.

Implemented in actors/replication (hosted_replica, partition_host), the throttle in replication/.
A result that is not awaitable is the state at the time of the call; for how handlers use that see
context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ...cluster.partition.leader_state import FollowerFetch
from ...protocol.errors import KafkaError
from ...protocol.records.fetch_response import FileSlice
from ...protocol.records.record_batch import NO_SEQUENCE
from ...protocol.topic_partition import TopicPartitionPair
from ...replication.partition.delayed_fetches import FetchWaiter
from ...storage.log.partition_log import PartitionLog
from ...storage.producers.verification_guard import VerificationGuard
from .log_dirs_port import LogDirs


class Appended(NamedTuple):
    """Result of an append. `committed` is done when acks=all may be answered; None: at once.

    log_append_time_ms is -1 unless the topic stamps its own times.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    committed: Awaitable[None] | None


class FoundOffset(NamedTuple):
    """Answer to a ListOffsets question; offset -1: there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


class FoundSlice(FileSlice, Protocol):
    """Result of a read: whole batches, from one segment file."""

    @property
    def next_offset(self) -> int:
        """Offset after the slice, where the next read begins; -1 if the slice is empty."""
        ...

    @property
    def is_limited(self) -> bool:
        """Whether max_bytes alone has limited the slice: more could be read now."""
        ...


class LeaderReplica(Protocol):
    """A partition that this node leads. Calls return at once; none blocks."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def log(self) -> PartitionLog:
        """Log of the partition, for reads; writes go through the replica."""
        ...

    def append(self, batch: memoryview, *, guard: VerificationGuard | None = None) -> Appended:
        """Append one batch of the broker's own. Raises KafkaError; then nothing was appended.

        It may be a transaction's: with a producer id and epoch, and without a sequence. `guard`: as
        for produce.
        """
        ...

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """End the producer's transaction in this partition, with a marker even if none is open.

        Raises (and nothing was appended):
            InvalidProducerEpoch: a newer incarnation of the producer has written; from
                transaction_version 2 on also one of the same epoch that has a transaction open.
            TransactionCoordinatorFenced: a coordinator of a later epoch has written a marker.
            NotLeaderOrFollower, NotEnoughReplicas, KafkaStorageError: like a producer's batch.
        """
        ...

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        sequence: int = NO_SEQUENCE,
        supports_epoch_bump: bool = False,
    ) -> VerificationGuard | None:
        """Begin to verify a transaction before its first batch: ask its coordinator now (KIP-890).

        Args:
            producer_id, producer_epoch: the batch's.
            sequence: the batch's first one, if a client sent it.
            supports_epoch_bump: whether the client follows transaction.version 2.

        Returns:
            The guard for append and produce, once the coordinator has confirmed. None: the
            transaction is open in this partition, append without verification.
        """
        ...

    def produce(
        self,
        records: memoryview,
        *,
        is_message_set: bool,
        acks_all: bool,
        guard: VerificationGuard | None = None,
    ) -> Appended | Awaitable[Appended]:
        """Append a client's records. Appends keep the order of the calls, also deferred ones.

        Args:
            records: one batch of magic 2, or a message set. Writable, and appended or copied when
                this returns.
            acks_all: the producer waits for the in-sync replicas.
            guard: the result of begin_verification, or UNVERIFIED.

        Raises (now, or when awaited):
            KafkaError: nothing was appended.
        """
        ...

    def read_message_set(
        self, piece: FoundSlice, *, fetch_offset: int, magic: int, max_bytes: int
    ) -> Awaitable[bytes]:
        """Convert the records of a slice to magic 0 or 1; the result may stop before its end.

        Raises:
            UnsupportedCompressionType, CorruptMessage, InvalidRecord: its first batch.
        """
        ...

    def segment_times(self) -> Awaitable[list[tuple[int, int]]]:
        """Times of all segments, oldest first: (base offset, newest timestamp or -1). Not empty."""
        ...

    def offset_for_timestamp(
        self, timestamp: int, *, up_to: int
    ) -> Awaitable[FoundOffset | None]: ...
    def offset_of_max_timestamp(self, *, up_to: int) -> Awaitable[FoundOffset | None]: ...
    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """Update the fetch offset of a follower.

        Returns None, or (epoch, end offset) where its log diverges from ours: then nothing was
        updated, and the follower must truncate its log to that offset.

        Raises:
            OffsetOutOfRange: its log does not overlap with ours.
            UnknownLeaderEpoch: it is not a replica in this node's current metadata.
        """
        ...

    def in_sync_with(self, offset: int) -> list[int]:
        """In-sync followers that have the records from `offset` on; highest end offset first."""
        ...

    def when_deleted(self, offset: int) -> Awaitable[None] | None:
        """Future: done when the ISR has deleted the records below `offset`; None if it already has.

        Raises NotLeaderOrFollower when another node becomes the leader before that.
        """
        ...

    def park(
        self, waiter: FetchWaiter, *, is_follower: bool = False, is_committed: bool = False
    ) -> None:
        """Park a waiter: a follower is woken when something was appended, a consumer when it is
        committed; one that reads committed transactions (`is_committed`) when the last stable
        offset has moved.
        """
        ...

    def unpark(self, waiter: FetchWaiter) -> None: ...


class Throttle(Protocol):
    """Throttle of the records sent to followers that are out of sync."""

    def should_throttle(self, topic: str, partition: int, follower_id: int) -> bool:
        """Whether this follower is to be sent nothing now; see replication_throttle."""
        ...

    def on_sent(self, topic: str, partition: int, size: int) -> None:
        """Count bytes of records that are sent to a follower."""
        ...


class Partitions(Protocol):
    """Partitions of this node."""

    @property
    def throttle(self) -> Throttle: ...
    @property
    def log_dirs(self) -> LogDirs: ...
    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica:
        """Replica of a partition that this node leads now.

        Raises:
            UnknownTopicOrPartition, NotLeaderOrFollower, KafkaStorageError; FencedLeaderEpoch or
            UnknownLeaderEpoch if the caller's epoch (unless -1) is older or newer than ours.
        """
        ...

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica | None:
        """Replica of a partition that this node follows in that leader epoch, or None.

        Consumers may read from it up to the high watermark that it has received.
        """
        ...

    def on_follower_fetch_from(self, node_id: int, peer: str) -> None:
        """Record that a follower on the node fetches over the connection from `peer`.

        When the connection closes, the process of that node may have ended.
        """
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Stop serving the records below `before_offset` (-1: below the high watermark).

        Returns the log start offset, which a crash may undo until checkpoint_log_start_offsets
        returns.
        Raises OffsetOutOfRange above the high watermark, PolicyViolation on a log that is only
        compacted, and the errors of leader_of.
        """
        ...

    async def checkpoint_log_start_offsets(
        self, partitions: Sequence[TopicPartitionPair]
    ) -> Mapping[TopicPartitionPair, KafkaError]:
        """Make the log start offsets durable. A disk that fails takes its partitions offline.

        Returns the partitions whose disk has failed or is full, with the error.
        """
        ...

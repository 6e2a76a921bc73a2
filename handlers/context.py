"""What a handler may reach: the ports of the node it runs on, and who is asking.

The ports are implemented in actors/. A handler never awaits between reading a replica's state and
acting on it, so between two awaits it sees one consistent node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import UUID

from ..cluster.broker_config import BrokerConfig
from ..cluster.controller_request import ControllerRequest
from ..cluster.leader_state import FollowerFetch
from ..cluster.metadata_image import MetadataImage
from ..cluster.voter_change import VoterChange
from ..groups.group_config import GroupCoordinatorConfig
from ..protocol.fetch_response import FileSlice
from .fetch_session import FetchSessionCache
from .server_config import ServerConfig

if TYPE_CHECKING:
    from .group_port import Groups
    from .request_metrics import RequestMetrics

T = TypeVar("T")


class Appended(NamedTuple):
    """Where a batch went. `committed` is done when acks=all may be answered; None: it is now.

    log_append_time_ms is -1 unless the topic stamps its own times.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    committed: Awaitable[None] | None


class FoundOffset(NamedTuple):
    """Answer of a ListOffsets question; offset -1: there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """An idempotent producer that a partition remembers: its latest batch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int


class FoundSlice(FileSlice, Protocol):
    """What a read found: whole batches, from one segment file."""

    @property
    def next_offset(self) -> int:
        """Where a reader of the whole slice goes on; -1 when it is empty."""
        ...

    @property
    def is_limited(self) -> bool:
        """More could be read now; only max_bytes kept it out."""
        ...


class FetchWaiter(Protocol):
    """A parked fetch. Told how much became readable, or that it should look again at once."""

    def on_readable(self, size: int) -> None: ...
    def on_changed(self) -> None: ...


class LeaderReplica(Protocol):
    """A partition that this node leads. Everything here is immediate; nothing blocks."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def epoch_start_offset(self) -> int:
        """Where the leader epoch begins; below, what is committed may not be known yet."""
        ...

    @property
    def compression_type(self) -> str:
        """The topic's setting."""
        ...

    def append(self, batch: memoryview) -> Appended:
        """Append one batch of the broker's own. Raises KafkaError; then nothing was appended."""
        ...

    def produce(
        self, records: memoryview, *, is_message_set: bool, acks_all: bool
    ) -> Appended | Awaitable[Appended]:
        """Append what a client sent, in the order of the calls, even if it is done later.

        Args:
            records: one batch of magic 2, or a message set. Writable, and used up or copied when
                this returns.
            acks_all: the producer waits for the in-sync replicas.

        Raises (now or later):
            KafkaError: nothing was appended.
        """
        ...

    def read(
        self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> FoundSlice:
        """Raises OffsetOutOfRange."""
        ...

    def read_message_set(
        self, piece: FoundSlice, *, fetch_offset: int, magic: int, max_bytes: int
    ) -> Awaitable[bytes]:
        """The records of a slice in the format of magic 0 or 1; may stop before its end.

        Raises:
            UnsupportedCompressionType, CorruptMessage, InvalidRecord: its first batch.
        """
        ...

    def segment_times(self) -> Awaitable[list[tuple[int, int]]]:
        """(base offset, newest timestamp or -1) of every segment, oldest first; at least one."""
        ...

    def active_producers(self) -> list[ActiveProducer]: ...

    def offset_for_timestamp(
        self, timestamp: int, *, up_to: int
    ) -> Awaitable[FoundOffset | None]: ...
    def offset_of_max_timestamp(self, *, up_to: int) -> Awaitable[FoundOffset | None]: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as in KIP-320; (-1, -1) if unknown."""
        ...

    def leader_epoch_at(self, offset: int) -> int:
        """The epoch the record at `offset` was written in (-1: unknown)."""
        ...

    def on_follower_fetch(self, fetch: FollowerFetch) -> tuple[int, int] | None:
        """Take note of how far a follower is.

        Returns None, or (epoch, end offset) where its log parts from ours: then nothing was noted,
        and it must drop what comes after.

        Raises:
            OffsetOutOfRange: its log does not join ours at all.
            UnknownLeaderEpoch: it is no replica as far as is known here.
        """
        ...

    def in_sync_with(self, offset: int) -> list[int]:
        """Other nodes in sync that have the records from `offset` on; the furthest first."""
        ...

    def when_deleted(self, offset: int) -> Awaitable[None] | None:
        """Done when all replicas in sync have dropped what is below `offset`; None: they have.

        Raises NotLeaderOrFollower when another node leads before that.
        """
        ...

    def park(self, waiter: FetchWaiter, *, is_follower: bool = False) -> None:
        """Followers are woken when something was appended, consumers when it is committed."""
        ...

    def unpark(self, waiter: FetchWaiter) -> None: ...


class Throttle(Protocol):
    """How fast followers that are out of sync are sent records."""

    def holds_back(self, topic: str, partition: int, follower_id: int) -> bool:
        """Whether this follower is to be sent nothing now; see actors/replication_throttle."""
        ...

    def on_sent(self, topic: str, partition: int, size: int) -> None:
        """Bytes of records are on their way to a follower."""
        ...


class Partitions(Protocol):
    """The partitions of this node."""

    @property
    def throttle(self) -> Throttle: ...

    def leader_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica:
        """The replica, if this node leads the partition now.

        Raises:
            UnknownTopicOrPartition, NotLeaderOrFollower, KafkaStorageError; FencedLeaderEpoch or
            UnknownLeaderEpoch if the caller's epoch (unless -1) is older or newer than ours.
        """
        ...

    def follower_of(
        self, topic: str, partition: int, *, current_leader_epoch: int = -1
    ) -> LeaderReplica | None:
        """The replica, if this node follows the partition in that leader epoch: consumers may read
        what it knows to be committed.
        """
        ...

    def follower_asks(self, node_id: int, peer: str) -> None:
        """A replica of that node copies from here, over the connection from `peer`. When the
        connection closes, the node's process may be gone.
        """
        ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """No longer serve the records below `before_offset` (-1: below the high watermark).

        Returns the log start offset, which a crash may take back until keep_log_starts returns.
        Raises OffsetOutOfRange above the high watermark, PolicyViolation on a log that is only
        compacted, and as leader_of.
        """
        ...

    async def keep_log_starts(self) -> None:
        """Make all log start offsets durable. A disk that fails takes its partitions offline."""
        ...


class LogInDir(NamedTuple):
    """A log in a log directory; offset_lag: what it still has to copy."""

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool
    """It is to take the place of the partition's log in another directory."""


class LogDirState(NamedTuple):
    """One log directory of this node. Of an offline one nothing is known: no logs, sizes -1."""

    path: str
    is_online: bool
    logs: tuple[LogInDir, ...]
    total_bytes: int
    usable_bytes: int


class LogDirs(Protocol):
    """The log directories of this node."""

    async def describe(self) -> list[LogDirState]: ...

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Begin to move a replica to the directory `path`; it is served all the time.

        Moving it to where it is ends a move that is under way.

        Raises:
            LogDirNotFound, KafkaStorageError: no such directory; it is offline.
            ReplicaNotAvailable: no such replica here.
            InvalidTopicException: the name is too long for the copy's directory.
        """
        ...


class QuorumState(NamedTuple):
    """Of the metadata log: voters by directory id, nodes by id, each with how far it is."""

    epoch: int
    high_watermark: int
    voters: dict[str, int]
    applied: dict[int, int]


class Controller(Protocol):
    """The cluster's controller, wherever it runs. It answers after commit.

    Each raises KafkaErrors: what it decided, or NotController while it cannot be reached.
    """

    async def change(self, request: ControllerRequest[T], *, timeout_ms: int) -> T:
        """The request's answer, when it is carried out and the nodes concerned act on it.

        It stands also if timeout_ms go by before they do.
        """
        ...

    async def change_voter(self, request: VoterChange, *, timeout_ms: int) -> tuple[str, ...]:
        """Add a voter of the metadata or remove one; the directory ids of those that vote then.

        Raises RequestTimedOut if a new one has not caught up within timeout_ms.
        """
        ...

    async def quorum(self) -> QuorumState:
        """Who holds the metadata log, and how far."""
        ...


class Node(Protocol):
    """The listening process: one Kafka node."""

    @property
    def node_id(self) -> int: ...
    @property
    def server_config(self) -> ServerConfig:
        """All settings of this moment; the next two are parts of it."""
        ...

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def group_config(self) -> GroupCoordinatorConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def fetch_sessions(self) -> FetchSessionCache: ...
    @property
    def log_dirs(self) -> LogDirs: ...
    @property
    def controller(self) -> Controller: ...
    @property
    def groups(self) -> Groups | None:
        """None on a node without the group role."""
        ...

    @property
    def metrics(self) -> RequestMetrics: ...

    async def run_aside(self, call: Callable[[], T]) -> T:
        """Run what takes long and touches nothing shared in a thread, one call after another."""
        ...

    async def next_producer_id(self) -> int:
        """An id no other producer of this cluster ever had."""
        ...

    def now_ms(self) -> int: ...
    def new_id(self) -> UUID:
        """A random one."""
        ...


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request's surroundings."""

    node: Node
    api_version: int
    client_id: str | None
    peer: str
    correlation_id: int

"""Transaction markers: sends the end of a transaction to the leaders of its partitions.

    SendMarkers of a coordinator --send--> WriteTxnMarkers to each leader's node
    answers --on_answer--> MarkersWritten, when all partitions of the transactional id have theirs

One manager for all coordinators of a node. At most one request per node is in flight; markers that
are queued meanwhile go together in the next one. The decision is in the log, so a marker that
failed is sent again, to the partition's leader at that time, until it is written. Markers are
dropped only when their coordinator is no longer here (`on_resigned`, `on_elected`, or a partition
returns that it knows a newer one): the next coordinator reads the decision from the log and sends
the markers itself.

Invariants:
    a partition that has no marker yet is in one of three places: queued for a node, in the request
    to a node, or waiting for a retry or for new metadata;
    MarkersWritten is emitted once, and only when each partition has its marker, or does not exist
    in committed metadata.

The metadata must be at least as new as the image that made this node a coordinator; with an older
one, a topic just created would be taken for deleted. So `on_metadata` is called before `send`.

Not here: how a transaction ends (transaction_coordinator), what a partition does with a marker
(storage), the connections (actors/coordinators).
Source: apache/kafka core/.../transaction/TransactionMarkerChannelManager.scala,
TransactionMarkerRequestCompletionHandler.scala (4.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from ..protocol.error_code import ErrorCode
from ..protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..protocol.topic_partition import TopicPartitionPair
from .transaction_effects import SendMarkers

logger = logging.getLogger(__name__)

RETRY_MS = 50
MOST_PARTITIONS = 5_000
"""Most partitions in one request, which keeps it within the size that a broker reads at once."""

_DONE_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        # The log's format cannot hold transactions: it has no records of this one.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED_ERRORS = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""Errors meaning that the partition knows a newer producer or coordinator: this decision is void.
"""
_RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        # Of a group's partition, which has a coordinator:
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Retriable errors, logged as INFO; all others are logged as ERROR. In both cases the marker is
sent again, as it must be written.
"""


_NAMES: dict[int, str] = {code.value: code.name for code in ErrorCode}


class PartitionLeaders(Protocol):
    """Leaders by the committed metadata."""

    def exists(self, partition: TopicPartitionPair) -> bool: ...
    def leader_of(self, partition: TopicPartitionPair) -> int | None:
        """Node that leads the partition and is in service; None: there is none now."""
        ...


class TransactionKey(NamedTuple):
    """A transactional id under one coordinator. `partition`: partition of __transaction_state."""

    partition: int
    coordinator_epoch: int
    transactional_id: str


class MarkersWritten(NamedTuple):
    """All markers are written. The driver calls on_markers_written of that coordinator, if any."""

    key: TransactionKey
    markers: SendMarkers


class SendWriteTxnMarkers(NamedTuple):
    """Send the request to the node. Then `step.on_answer` or `step.on_failed`, exactly one."""

    step: TransactionMarkerManager
    node_id: int
    request: WriteTxnMarkersRequest


class _Pending:
    """A transaction whose markers are not all written."""

    __slots__ = ("key", "left", "markers")

    def __init__(self, key: TransactionKey, markers: SendMarkers) -> None:
        self.key = key
        self.markers = markers
        self.left: set[TopicPartitionPair] = set(markers.partitions)


_Queue = dict[_Pending, set[TopicPartitionPair]]


class TransactionMarkerManager:
    """A step object. Watch its `next_deadline_ms`: queued markers are sent together at the next
    tick.
    """

    def __init__(self, leaders: PartitionLeaders, effects: list[Any]) -> None:
        self._leaders = leaders
        self._effects = effects
        self._pending: dict[tuple[int, str], _Pending] = {}
        self._queues: dict[int, _Queue] = {}
        """Markers to send to each node with its next request, by node id."""
        self._in_flight: dict[int, _Queue] = {}
        self._waiting: _Queue = {}
        self._retry_at_ms: int | None = None
        """Time at which waiting partitions are queued again even without new metadata; None: only
        new metadata does that.
        """

    def __len__(self) -> int:
        """Number of transactions whose markers are not all written."""
        return len(self._pending)

    @property
    def unknown_leader_count(self) -> int:
        """Number of transactions that wait for a leader of one of their partitions."""
        return sum(
            any(self._leaders.leader_of(partition) is None for partition in partitions)
            for partitions in self._waiting.values()
        )

    # --- of the coordinators ---------------------------------------------------------------------

    def send(self, partition: int, coordinator_epoch: int, markers: SendMarkers) -> None:
        key = TransactionKey(partition, coordinator_epoch, markers.transactional_id)
        before = self._pending.get((partition, markers.transactional_id))
        if before is not None:
            if before.key.coordinator_epoch > coordinator_epoch:
                return  # a coordinator that has ended
            self._drop(before)
        pending = _Pending(key, markers)
        self._pending[partition, markers.transactional_id] = pending
        self._enqueue(pending, list(pending.left))
        self._end_if_done(pending)

    def on_elected(self, partition: int, coordinator_epoch: int) -> None:
        """Called when a coordinator of that partition begins here: those before it have ended.

        An earlier one may have been on this node and been replaced without on_resigned. Its pending
        markers may be of transactions that another node has ended meanwhile.
        """
        for pending in list(self._pending.values()):
            key = pending.key
            if key.partition == partition and key.coordinator_epoch < coordinator_epoch:
                self._drop(pending)

    def on_resigned(self, partition: int) -> None:
        """Called when the node no longer coordinates that partition of __transaction_state."""
        for pending in [each for each in self._pending.values() if each.key.partition == partition]:
            self._drop(pending)

    # --- of the metadata -------------------------------------------------------------------------

    def on_metadata(self) -> None:
        """Called on new metadata: markers go to the current leaders.

        So do markers in flight to a former leader, which may not answer: its answer is ignored for
        those partitions. A marker that is written twice does no harm.
        """
        queues, self._queues = list(self._queues.values()), {}
        self._requeue_waiting()
        for node_id, sent in self._in_flight.items():
            queues.append(self._no_longer_led(node_id, sent))
        for queue in queues:
            for pending, partitions in queue.items():
                if self._is_current(pending):
                    self._enqueue(pending, partitions)
        self._end_what_is_done()

    def _no_longer_led(self, node_id: int, sent: _Queue) -> _Queue:
        """Part of `sent` that the node no longer leads, removed from it."""
        moved: _Queue = {}
        for pending, partitions in sent.items():
            elsewhere = {each for each in partitions if self._leaders.leader_of(each) != node_id}
            if elsewhere:
                partitions -= elsewhere
                moved[pending] = elsewhere
        return moved

    # --- of the nodes ----------------------------------------------------------------------------

    def on_answer(self, node_id: int, answer: WriteTxnMarkersResponse, now_ms: int) -> None:
        codes: dict[tuple[int, str, int], int] = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in answer.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        for pending, partitions in self._in_flight.pop(node_id).items():
            if not self._is_current(pending):
                continue
            again = set()
            for topic, index in partitions:
                code = codes.get((pending.markers.producer_id, topic, index))
                if code in _DONE_ERRORS:
                    pending.left.discard((topic, index))
                elif code in _FENCED_ERRORS:
                    self._drop_fenced(pending, (topic, index), code)
                    break
                else:
                    _log_retry(pending, (topic, index), code)
                    again.add((topic, index))
            else:
                self._wait(pending, again, now_ms)
                self._end_if_done(pending)

    def on_failed(self, node_id: int, error: Exception, now_ms: int) -> None:
        """Called without an answer: the markers may have been written; writing them twice is
        harmless.
        """
        logger.info("sending transaction markers to node %d failed: %s", node_id, error)
        for pending, partitions in self._in_flight.pop(node_id).items():
            if self._is_current(pending):
                self._wait(pending, partitions, now_ms)

    # --- of the clock ----------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """See replication.effects.TickingStep."""
        if any(node_id not in self._in_flight for node_id in self._queues):
            return 0
        return self._retry_at_ms

    def on_tick(self, now_ms: int) -> None:
        """Send the queued markers to each node without a request in flight."""
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            self._requeue_waiting()
            self._end_what_is_done()
        for node_id in list(self._queues):
            if node_id not in self._in_flight:
                sent = self._drain_queue(node_id)
                self._in_flight[node_id] = sent
                request = WriteTxnMarkersRequest(
                    markers=[_marker(pending, sent[pending]) for pending in sent]
                )
                self._effects.append(SendWriteTxnMarkers(self, node_id, request))

    # --- where partitions are --------------------------------------------------------------------

    def _enqueue(self, pending: _Pending, partitions: Iterable[TopicPartitionPair]) -> None:
        """Put each partition into the queue of its leader, or among the waiting ones. Sorted, as a
        set of names iterates differently in each process, and a simulated run must be reproducible.
        """
        for partition in sorted(partitions):
            node_id = self._leaders.leader_of(partition)
            if node_id is not None:
                queue = self._queues.setdefault(node_id, {})
                queue.setdefault(pending, set()).add(partition)
            elif self._leaders.exists(partition):
                self._waiting.setdefault(pending, set()).add(partition)
            else:
                logger.info("%s-%d was deleted: no marker needed", *partition)
                pending.left.discard(partition)

    def _wait(self, pending: _Pending, partitions: set[TopicPartitionPair], now_ms: int) -> None:
        if partitions:
            self._waiting.setdefault(pending, set()).update(partitions)
            if self._retry_at_ms is None:
                self._retry_at_ms = now_ms + RETRY_MS

    def _requeue_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._retry_at_ms = None
        for pending, partitions in waiting.items():
            self._enqueue(pending, partitions)

    def _drain_queue(self, node_id: int) -> _Queue:
        """Remove the markers that fit into one request, the oldest first."""
        queue = self._queues[node_id]
        taken: _Queue = {}
        room = MOST_PARTITIONS
        for pending in list(queue):
            partitions = queue[pending]
            if len(partitions) > room:
                some = sorted(partitions)[:room]
                taken[pending] = set(some)
                partitions.difference_update(some)
                return taken
            taken[pending] = queue.pop(pending)
            room -= len(partitions)
            if not room:
                break
        if not queue:
            del self._queues[node_id]
        return taken

    # --- the end ---------------------------------------------------------------------------------

    def _is_current(self, pending: _Pending) -> bool:
        key = pending.key
        return self._pending.get((key.partition, key.transactional_id)) is pending

    def _end_what_is_done(self) -> None:
        for pending in [each for each in self._pending.values() if not each.left]:
            self._end_if_done(pending)

    def _end_if_done(self, pending: _Pending) -> None:
        if not pending.left:
            del self._pending[pending.key.partition, pending.key.transactional_id]
            self._effects.append(MarkersWritten(pending.key, pending.markers))

    def _drop_fenced(
        self, pending: _Pending, partition: TopicPartitionPair, code: int | None
    ) -> None:
        logger.warning(
            "%s: dropping the markers of coordinator epoch %d: %s-%d returned %s",
            pending.key.transactional_id,
            pending.key.coordinator_epoch,
            *partition,
            _name(code),
        )
        self._drop(pending)

    def _drop(self, pending: _Pending) -> None:
        """Drop a transaction. Its markers in a request stay there until the answer, which is then
        ignored for them.
        """
        del self._pending[pending.key.partition, pending.key.transactional_id]
        self._waiting.pop(pending, None)
        for node_id, queue in list(self._queues.items()):
            queue.pop(pending, None)
            if not queue:
                del self._queues[node_id]

    def pending_partitions(self) -> Iterator[tuple[TransactionKey, TopicPartitionPair]]:
        """Every partition without a marker, once for each place where it is held: for tests."""
        current = [*self._queues.values(), *self._in_flight.values(), self._waiting]
        for queue in current:
            for pending, partitions in queue.items():
                if self._is_current(pending):
                    yield from ((pending.key, partition) for partition in partitions)


def _marker(pending: _Pending, partitions: set[TopicPartitionPair]) -> WritableTxnMarker:
    """Part of a request, with its partitions in order, so that the same markers have the same
    bytes.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=pending.markers.producer_id,
        producer_epoch=pending.markers.producer_epoch,
        transaction_result=pending.markers.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        coordinator_epoch=pending.key.coordinator_epoch,
        transaction_version=pending.markers.transaction_version,
    )


def _log_retry(pending: _Pending, partition: TopicPartitionPair, code: int | None) -> None:
    is_expected = code in _RETRIABLE_ERRORS
    logger.log(
        logging.INFO if is_expected else logging.ERROR,
        "%s: %s-%d returned %s for a marker; sending it again",
        pending.key.transactional_id,
        *partition,
        _name(code),
    )


def _name(code: int | None) -> str:
    return "nothing" if code is None else _NAMES.get(code, str(code))

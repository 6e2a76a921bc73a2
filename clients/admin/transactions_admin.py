"""Transactions of the cluster, described and ended from outside, as steps for Admin.

Coordinators know the transactions of their ids; leaders know which producers have one open in a
partition. A transaction that a leader has and no coordinator knows is hanging: only an abort marker
requested by an administrator ends it (KIP-664).

Source: ListTransactionsHandler, DescribeTransactionsHandler, DescribeProducersHandler,
AbortTransactionHandler, FenceProducersHandler in apache/kafka clients/.../admin/internals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    TransactionalIdNotFound,
    error_for,
)
from ...protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ...protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...protocol.topic_name import TRANSACTIONS_TOPIC
from ...protocol.topic_partition import TopicPartition
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient
from ..wire.connection import Address
from ..wire.coordinator_lookup import TRANSACTION_KEY
from .every_coordinator import ask_every_coordinator
from .group_admin import at_coordinators

PARTITIONS_PER_REQUEST: Final = 500
_MAX_INIT_VERSION: Final = 5


class TransactionListing(NamedTuple):
    """Transactional id in a list. state: Empty, Ongoing, PrepareCommit, CompleteCommit, ...

    coordinator: node id of its coordinator.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """Description of a transactional id. start_time_ms: ms since 1970; None: no open transaction.

    partitions: those it has written to; once commit or abort is decided, those without a marker.
    """

    transactional_id: str
    coordinator: Address
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """Active producer of a partition, in its leader's state. last_timestamp: ms since 1970.

    coordinator_epoch: of its last marker, -1 before the first. transaction_start_offset: None if
    it has no open transaction in the partition.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class FencedProducer(NamedTuple):
    """Producer id and epoch of a transactional id after fencing."""

    producer_id: int
    producer_epoch: int


class HangingTransaction(NamedTuple):
    """Open transaction in a partition that no coordinator will end."""

    partition: TopicPartition
    producer: ActiveProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFilter:
    """Filter of transactions to list. pattern: regular expression for the whole id (RE2)."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    running_longer_than_ms: int | None = None
    pattern: str | None = None

    @property
    def min_version(self) -> int:
        """Lowest API version that has the filter's fields; brokers below it would ignore them."""
        if self.pattern is not None:
            return 2
        return 0 if self.running_longer_than_ms is None else 1


def list_transactions(
    client: ClusterClient, wanted: TransactionFilter, *, timeout_ms: int
) -> Steps[list[TransactionListing]]:
    """Transactional ids of every coordinator, sorted. Waits for coordinators that are loading.

    Raises:
        RequestTimedOut: a coordinator was not ready in time.
        UnsupportedVersion: a broker is too old for the filter.
        ValueError: there is no such state.
        KafkaError: a broker refuses.
    """
    request = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=-1
        if wanted.running_longer_than_ms is None
        else wanted.running_longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    answers = yield from ask_every_coordinator(
        client,
        request,
        ListTransactionsResponse,
        topic=TRANSACTIONS_TOPIC,
        what="list of all transactions",
        timeout_ms=timeout_ms,
        min_version=wanted.min_version,
    )
    found: dict[str, TransactionListing] = {}
    for node_id, answer in answers.items():
        if answer.unknown_state_filters:
            raise ValueError(f"no transaction state is called {answer.unknown_state_filters}")
        for one in answer.transaction_states:
            found[one.transactional_id] = TransactionListing(
                one.transactional_id, node_id, one.producer_id, one.transaction_state
            )
    return [listing for _, listing in sorted(found.items())]


def describe_transactions(
    client: ClusterClient, transactional_ids: Iterable[str], *, timeout_ms: int
) -> Steps[dict[str, TransactionDescription]]:
    """Descriptions of the ids that a coordinator knows; others are left out.

    Raises:
        KafkaError: its coordinator refuses.
    """
    found: dict[str, TransactionDescription] = {}

    def ask(address: Address, part: list[str]) -> Steps[Mapping[str, Exception]]:
        request = DescribeTransactionsRequest(transactional_ids=part)
        response = yield from wait(client.send(address, request, DescribeTransactionsResponse))
        again: dict[str, Exception] = {}
        for one in response.transaction_states:
            if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            if one.error_code:
                again[one.transactional_id] = _retriable(one.error_code, one.transactional_id)
                continue
            start = one.transaction_start_time_ms
            found[one.transactional_id] = TransactionDescription(
                one.transactional_id,
                address,
                one.transaction_state,
                one.producer_id,
                one.producer_epoch,
                one.transaction_timeout_ms,
                None if start < 0 else start,
                tuple(
                    sorted(
                        TopicPartition(topic.topic, partition)
                        for topic in one.topics
                        for partition in topic.partitions
                    )
                ),
            )
        return again

    yield from at_coordinators(
        client, transactional_ids, ask, timeout_ms=timeout_ms, key_type=TRANSACTION_KEY
    )
    return found


def fence_producers(
    client: ClusterClient, transactional_ids: Iterable[str], *, timeout_ms: int
) -> Steps[dict[str, FencedProducer]]:
    """Fence the producers with these ids, and abort their open transactions.

    Raises:
        KafkaError: a coordinator refuses.
    """
    found: dict[str, FencedProducer] = {}

    def ask(address: Address, part: list[str]) -> Steps[Mapping[str, Exception]]:
        again: dict[str, Exception] = {}
        for transactional_id in part:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            response = yield from wait(
                client.send(address, request, InitProducerIdResponse, max_version=_MAX_INIT_VERSION)
            )
            if response.error_code:
                again[transactional_id] = _retriable(response.error_code, transactional_id)
            else:
                found[transactional_id] = FencedProducer(
                    response.producer_id, response.producer_epoch
                )
        return again

    yield from at_coordinators(
        client, transactional_ids, ask, timeout_ms=timeout_ms, key_type=TRANSACTION_KEY
    )
    return found


def describe_producers(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    *,
    broker: int | None = None,
    timeout_ms: int,
) -> Steps[dict[TopicPartition, list[ActiveProducer]]]:
    """Active producers of each partition, from its leader or from the replica on `broker`.

    Raises:
        UnknownTopicOrPartition: there is no such topic.
        RequestTimedOut: a leader did not answer in time.
        KafkaError: a broker refuses.
    """
    found: dict[TopicPartition, list[ActiveProducer]] = {}

    def ask(address: Address, part: list[TopicPartition]) -> Steps[KafkaError | None]:
        topics: dict[str, TopicRequest] = {}
        for topic, partition in part:
            one = topics.setdefault(topic, TopicRequest(name=topic))
            one.partition_indexes.append(partition)
        request = DescribeProducersRequest(topics=list(topics.values()))
        response = yield from wait(client.send(address, request, DescribeProducersResponse))
        reason: KafkaError | None = None
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                key = TopicPartition(topic_answer.name, answer.partition_index)
                if answer.error_code:
                    error = error_for(answer.error_code)
                    reason = error_for(answer.error_code, f"{key}: {answer.error_message or error}")
                    if not error.retriable:
                        raise reason
                    continue
                found[key] = [
                    ActiveProducer(
                        one.producer_id,
                        one.producer_epoch,
                        one.last_sequence,
                        one.last_timestamp,
                        one.coordinator_epoch,
                        None if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
                    )
                    for one in sorted(answer.active_producers, key=lambda one: one.producer_id)
                ]
        return reason

    wanted = sorted(set(partitions))
    yield from _at_leaders(client, wanted, ask, found, broker=broker, timeout_ms=timeout_ms)
    return {key: found[key] for key in wanted}


def abort_transaction(
    client: ClusterClient,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timeout_ms: int,
) -> Steps[None]:
    """Have the leader write an abort marker to a partition, without the transaction coordinator.

    Raises:
        InvalidProducerEpoch, TransactionCoordinatorFenced: the producer, or its coordinator, has a
            newer epoch.
        UnknownTopicOrPartition: there is no such partition.
        KafkaError: the leader refuses.
    """
    done: dict[TopicPartition, bool] = {}
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
        coordinator_epoch=max(0, coordinator_epoch),
    )

    def ask(address: Address, _: list[TopicPartition]) -> Steps[KafkaError | None]:
        request = WriteTxnMarkersRequest(markers=[marker])
        response = yield from wait(client.send(address, request, WriteTxnMarkersResponse))
        for one in response.markers:
            for topic in one.topics:
                for answer in topic.partitions:
                    if answer.error_code:
                        error = error_for(answer.error_code)
                        named = error_for(answer.error_code, f"{partition}: {error}")
                        if not error.retriable:
                            raise named
                        return named
                    done[partition] = True
        return None

    yield from _at_leaders(client, [partition], ask, done, broker=None, timeout_ms=timeout_ms)


def find_hanging_transactions(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    *,
    broker: int | None = None,
    older_than_ms: int,
    now_ms: int,
    timeout_ms: int,
) -> Steps[list[HangingTransaction]]:
    """Find open transactions that no coordinator knows, or that their coordinator has ended
    (KIP-664).

    Args:
        partitions: partitions to search.
        broker: node id of replicas to ask instead of the leaders.
        older_than_ms: time since the last record; use at least the maximum transaction timeout.
        now_ms: current time, ms since 1970.
        timeout_ms: time for all requests.

    Raises:
        As describe_producers, list_transactions, describe_transactions.
    """
    candidates: list[HangingTransaction] = []
    wanted = sorted(set(partitions))
    for start in range(0, len(wanted), PARTITIONS_PER_REQUEST):
        part = wanted[start : start + PARTITIONS_PER_REQUEST]
        producers = yield from describe_producers(
            client, part, broker=broker, timeout_ms=timeout_ms
        )
        candidates += [
            HangingTransaction(partition, one)
            for partition, found in producers.items()
            for one in found
            if one.transaction_start_offset is not None
            and now_ms - one.last_timestamp > older_than_ms
        ]
    if not candidates:
        return []
    ids = tuple(sorted({one.producer.producer_id for one in candidates}))
    listings = yield from list_transactions(
        client, TransactionFilter(producer_ids=ids), timeout_ms=timeout_ms
    )
    described = yield from describe_transactions(
        client, [one.transactional_id for one in listings], timeout_ms=timeout_ms
    )
    # The coordinator will end transactions in partitions that it still lists.
    ended_by_coordinator = {
        (one.producer_id, partition) for one in described.values() for partition in one.partitions
    }
    return [
        one
        for one in candidates
        if (one.producer.producer_id, one.partition) not in ended_by_coordinator
    ]


def _at_leaders(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    ask: Callable[[Address, list[TopicPartition]], Steps[KafkaError | None]],
    answered: Mapping[TopicPartition, object],
    *,
    broker: int | None,
    timeout_ms: int,
) -> Steps[None]:
    """`ask` leaders, or one broker, until every partition is `answered`."""
    partitions = list(partitions)
    waited_ms = 0
    while True:
        reason: Exception | None = None
        by_address: dict[Address, list[TopicPartition]] = defaultdict(list)
        for key in partitions:
            if key in answered:
                continue
            yield from client.topic(key.topic, partition=key.partition)
            node = client.view.leader(*key) if broker is None else client.view.brokers.get(broker)
            if node is not None:
                by_address[node.address].append(key)
        for address, part in by_address.items():
            for start in range(0, len(part), PARTITIONS_PER_REQUEST):
                try:
                    refused = yield from ask(address, part[start : start + PARTITIONS_PER_REQUEST])
                except ConnectionFailed as error:
                    reason = error
                else:
                    reason = refused or reason
        if all(key in answered for key in partitions):
            return
        if waited_ms >= timeout_ms:
            raise RequestTimedOut(f"no answer within {timeout_ms} ms: {reason or 'no leader'}")
        waited_ms += client.config.retry_backoff_ms
        yield client.config.retry_backoff_ms / 1000
        yield from wait(client.refresh())


def _retriable(code: int, transactional_id: str) -> KafkaError:
    """Return a retriable error; raise any other."""
    error = error_for(code, f"transactional id {transactional_id!r}: {error_for(code)}")
    if not error.retriable:
        raise error
    return error


def not_found(transactional_id: str) -> TransactionalIdNotFound:
    return TransactionalIdNotFound(
        f"no coordinator knows the transactional id {transactional_id!r}; "
        "`bradbury transactions list` shows those that are known"
    )

"""Does a leader get to know whether its partitions are in a transaction, whatever happens?"""

from collections.abc import Mapping
from typing import Any

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.steps.replies import Reply
from bradbury.transactions.add_partitions_manager import (
    AddPartitionsManager,
    RetryLimits,
    SendAddPartitionsToTxn,
)

E = ErrorCode
PAID: TopicPartitionPair = ("paid", 0)
SENT: TopicPartitionPair = ("sent", 3)
LIMITS = RetryLimits(20, 100)


class Leader:
    """A node with leaders that ask; coordinators answer when the test says so."""

    def __init__(self) -> None:
        self.coordinators: dict[str, int | None] = {"id": 1, "other": 1, "third": 2}
        self.effects: list[Any] = []
        self.manager = AddPartitionsManager(self, self.effects, LIMITS)
        self.requests: dict[int, AddPartitionsToTxnRequest] = {}
        self.answers: dict[Any, dict[TopicPartitionPair, ErrorCode]] = {}
        self.now_ms = 1_000

    def coordinator_of(self, transactional_id: str) -> int | None:
        return self.coordinators[transactional_id]

    def ask(
        self,
        ticket: str,
        *partitions: TopicPartitionPair,
        name: str = "id",
        producer: tuple[int, int] = (7, 0),
        adds: bool = False,
    ) -> None:
        self.manager.verify(ticket, name, *producer, partitions, adds=adds, now_ms=self.now_ms)
        self.carry_out()

    def tick(self) -> None:
        deadline_ms = self.manager.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.manager.on_tick(self.now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        while self.effects:
            match self.effects.pop(0):
                case SendAddPartitionsToTxn(_, node_id, request):
                    assert node_id not in self.requests, "two requests at once"
                    self.requests[node_id] = request
                case Reply(ticket, answer):
                    assert ticket not in self.answers, "answered twice"
                    self.answers[ticket] = answer

    def answer(
        self,
        node_id: int,
        errors: Mapping[TopicPartitionPair, ErrorCode] | ErrorCode = E.NONE,
        *,
        error: ErrorCode = E.NONE,
        silent: frozenset[TopicPartitionPair] = frozenset(),
    ) -> None:
        request = self.requests.pop(node_id)

        def code(partition: TopicPartitionPair) -> ErrorCode:
            return errors if isinstance(errors, ErrorCode) else errors.get(partition, E.NONE)

        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=code((topic.name, index)),
                            )
                            for index in topic.partitions
                            if (topic.name, index) not in silent
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
        answer = AddPartitionsToTxnResponse(
            error_code=error, results_by_transaction=[] if error else results
        )
        self.manager.on_answer(node_id, answer, self.now_ms)
        self.carry_out()

    def fail(self, node_id: int) -> None:
        del self.requests[node_id]
        self.manager.on_failed(node_id, ConnectionFailed("gone"))
        self.carry_out()

    @property
    def sent(self) -> dict[int, list[tuple[str, bool, set[TopicPartitionPair]]]]:
        """Transactional id, whether it adds, and what, by node."""
        return {
            node_id: [
                (
                    each.transactional_id,
                    not each.verify_only,
                    {(topic.name, index) for topic in each.topics for index in topic.partitions},
                )
                for each in request.transactions
            ]
            for node_id, request in self.requests.items()
        }


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_each_partition_is_answered_as_the_coordinator_says(leader: Leader) -> None:
    leader.ask("a", PAID, SENT)
    leader.tick()
    assert leader.sent == {1: [("id", False, {PAID, SENT})]}
    leader.answer(1, {SENT: E.TRANSACTION_ABORTABLE})
    assert leader.answers == {"a": {PAID: E.NONE, SENT: E.TRANSACTION_ABORTABLE}}
    assert leader.manager.next_deadline_ms is None


def test_the_request_says_whose_transaction_it_is(leader: Leader) -> None:
    leader.ask("a", PAID, producer=(7, 3), adds=True)
    leader.tick()
    (transaction,) = leader.requests[1].transactions
    assert (transaction.producer_id, transaction.producer_epoch) == (7, 3)
    assert not transaction.verify_only


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.OPERATION_NOT_ATTEMPTED, E.NETWORK_EXCEPTION),
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_errors_are_those_that_producers_know(
    leader: Leader, said: ErrorCode, answered: ErrorCode
) -> None:
    leader.ask("a", PAID)
    leader.tick()
    leader.answer(1, said)
    assert leader.answers == {"a": {PAID: answered}}


def test_an_error_of_the_whole_request_is_everybodys(leader: Leader) -> None:
    leader.ask("a", PAID)
    leader.ask("b", SENT, name="other")
    leader.tick()
    leader.answer(1, error=E.UNKNOWN_SERVER_ERROR)
    assert leader.answers == {
        "a": {PAID: E.UNKNOWN_SERVER_ERROR},
        "b": {SENT: E.UNKNOWN_SERVER_ERROR},
    }


def test_nothing_is_verified_that_was_not_answered(leader: Leader) -> None:
    leader.ask("a", PAID, SENT)
    leader.tick()
    leader.answer(1, silent=frozenset({SENT}))
    assert leader.answers == {"a": {PAID: E.NONE, SENT: E.NETWORK_EXCEPTION}}
    leader.ask("b", PAID)
    leader.tick()
    leader.fail(1)
    assert leader.answers["b"] == {PAID: E.NETWORK_EXCEPTION}


def test_without_a_coordinator_the_client_is_to_come_back(leader: Leader) -> None:
    leader.coordinators["id"] = None
    leader.ask("a", PAID)
    assert leader.answers == {"a": {PAID: E.COORDINATOR_NOT_AVAILABLE}}


def test_what_comes_while_a_request_is_on_its_way_goes_together_in_the_next(
    leader: Leader,
) -> None:
    leader.ask("a", PAID)
    leader.tick()
    leader.ask("b", SENT)
    leader.ask("c", PAID, name="other")
    leader.ask("d", PAID, name="third")
    leader.tick()
    assert leader.sent == {1: [("id", False, {PAID})], 2: [("third", False, {PAID})]}
    leader.answer(1)
    leader.tick()
    assert leader.sent[1] == [("id", False, {SENT}), ("other", False, {PAID})]


def test_questions_of_one_producer_are_one_and_each_is_answered_for_its_own(
    leader: Leader,
) -> None:
    leader.ask("a", PAID)
    leader.ask("b", SENT)
    leader.ask("c", PAID, SENT)
    leader.tick()
    assert leader.sent == {1: [("id", False, {PAID, SENT})]}
    leader.answer(1, {SENT: E.TRANSACTION_ABORTABLE})
    assert leader.answers == {
        "a": {PAID: E.NONE},
        "b": {SENT: E.TRANSACTION_ABORTABLE},
        "c": {PAID: E.NONE, SENT: E.TRANSACTION_ABORTABLE},
    }


def test_to_ask_and_to_add_are_two_requests(leader: Leader) -> None:
    leader.ask("a", PAID)
    leader.ask("b", SENT, adds=True)
    leader.tick()
    assert leader.sent == {1: [("id", False, {PAID})]}
    leader.answer(1)
    leader.tick()
    assert leader.sent == {1: [("id", True, {SENT})]}


def test_a_newer_epoch_ends_what_the_former_one_asks(leader: Leader) -> None:
    leader.ask("former", PAID, producer=(7, 1))
    leader.ask("present", PAID, producer=(7, 2))
    leader.ask("late", PAID, producer=(7, 1))
    leader.tick()
    assert leader.answers == {
        "former": {PAID: E.INVALID_PRODUCER_EPOCH},
        "late": {PAID: E.INVALID_PRODUCER_EPOCH},
    }
    assert [each.producer_epoch for each in leader.requests[1].transactions] == [2]


def test_another_producer_id_is_not_compared_by_its_epoch(leader: Leader) -> None:
    leader.ask("former", PAID, producer=(7, 32_000))
    leader.ask("present", PAID, producer=(8, 0))
    assert leader.answers == {}


def test_when_the_coordinator_moves_what_is_queued_goes_to_the_next_one(leader: Leader) -> None:
    leader.ask("a", PAID, name="other")
    leader.tick()
    leader.ask("b", PAID)
    leader.coordinators["id"] = 2
    leader.manager.on_metadata()
    leader.tick()
    assert leader.sent[2] == [("id", False, {PAID})]


def test_a_former_transaction_that_is_ending_is_waited_for_a_while(leader: Leader) -> None:
    leader.ask("a", PAID, adds=True)
    for _ in range(3):
        leader.tick()
        leader.answer(1, E.CONCURRENT_TRANSACTIONS)
        assert not leader.answers
        leader.tick()
        assert not leader.sent
        leader.now_ms += LIMITS.backoff_ms
    leader.tick()
    leader.answer(1)
    assert leader.answers == {"a": {PAID: E.NONE}}


def test_a_former_transaction_that_does_not_end_is_not_waited_for_longer(leader: Leader) -> None:
    leader.ask("a", PAID, adds=True)
    tries = 0
    while not leader.answers:
        leader.tick()
        leader.answer(1, E.CONCURRENT_TRANSACTIONS)
        leader.now_ms += LIMITS.backoff_ms
        tries += 1
    assert leader.answers == {"a": {PAID: E.CONCURRENT_TRANSACTIONS}}
    assert tries == 1 + LIMITS.max_ms // LIMITS.backoff_ms


def test_what_the_producer_asks_meanwhile_is_answered_behind_what_is_asked_again(
    leader: Leader,
) -> None:
    """Else its second batch would be appended first."""
    leader.ask("first", PAID, adds=True)
    leader.tick()
    leader.ask("queued", PAID, adds=True)
    leader.answer(1, E.CONCURRENT_TRANSACTIONS)
    leader.ask("later", PAID, adds=True)
    leader.tick()
    assert not leader.sent
    leader.now_ms += LIMITS.backoff_ms
    leader.tick()
    leader.answer(1)
    assert list(leader.answers) == ["first", "queued", "later"]
    assert leader.manager.next_deadline_ms is None


def test_clients_that_add_themselves_are_told_at_once(leader: Leader) -> None:
    leader.ask("a", PAID)
    leader.tick()
    leader.answer(1, E.CONCURRENT_TRANSACTIONS)
    assert leader.answers == {"a": {PAID: E.CONCURRENT_TRANSACTIONS}}


def test_when_the_node_ends_everybody_is_answered_once(leader: Leader) -> None:
    leader.ask("again", PAID, adds=True)
    leader.tick()
    leader.answer(1, E.CONCURRENT_TRANSACTIONS)
    leader.ask("on its way", PAID)
    leader.tick()
    leader.ask("queued", SENT)
    leader.manager.close()
    leader.carry_out()
    assert leader.answers.keys() == {"again", "on its way", "queued"}

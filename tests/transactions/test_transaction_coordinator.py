"""Does the coordinator of transactions decide as Kafka's does?"""

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.transactions.transaction_world import TIMEOUT_MS, World
from bradbury.transactions.transaction_coordinator import MOST_WAIT_MS
from bradbury.transactions.transaction_effects import InitializedProducer
from bradbury.transactions.transaction_metadata import MAX_EPOCH, TransactionMetadata
from bradbury.transactions.transaction_records import TransactionRecord
from bradbury.transactions.transaction_state import TransactionState

PAID = ("paid", 0)
SENT = ("sent", 3)
BOTH_WAYS = pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
VERSIONS = pytest.mark.parametrize("version", [0, 2])
DAY_MS = 24 * 3_600_000


@VERSIONS
@BOTH_WAYS
def test_a_transaction_from_begin_to_end(version: int, is_commit: bool) -> None:
    world = World(version)
    producer = world.begin_producer()
    added = world.add(producer, PAID)
    assert added not in world.answers, "answered before the record is committed"
    world.commit()
    assert world.answers[added] is ErrorCode.NONE
    world.add(producer, SENT)
    world.commit()
    assert world.metadata().state is TransactionState.ONGOING

    ended = world.end(producer, is_commit=is_commit)
    assert ended not in world.answers, "answered before the decision is committed"
    world.commit()
    assert world.error_of(ended) is ErrorCode.NONE, "answered before the markers are written"
    markers = world.write_markers()
    assert (markers.partitions, markers.is_commit) == ({PAID, SENT}, is_commit)
    world.commit()
    assert world.metadata().state is (
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    )
    assert world.metadata().partitions == frozenset()


def test_with_version_2_each_end_raises_the_epoch_and_the_markers_have_it() -> None:
    world = World(2)
    number, epoch = world.begin_producer()
    world.add((number, epoch), PAID)
    world.commit()
    ended = world.end((number, epoch), is_commit=True)
    world.commit()
    assert world.answers[ended] == InitializedProducer(ErrorCode.NONE, number, epoch + 1)
    assert world.write_markers().producer_epoch == epoch + 1
    world.commit()
    late = world.add((number, epoch), PAID)
    assert world.error_of(late) is ErrorCode.PRODUCER_FENCED


def test_up_to_version_1_the_epoch_stays() -> None:
    world = World(0)
    producer = world.begin_producer()
    for _ in range(2):
        world.add(producer, PAID)
        world.commit()
        ended = world.end(producer, is_commit=True)
        world.settle()
        assert world.error_of(ended) is ErrorCode.NONE


@VERSIONS
def test_while_one_transition_is_under_way_no_other_begins(version: int) -> None:
    world = World(version)
    producer = world.begin_producer()
    world.add(producer, PAID)
    meanwhile = [world.end(producer, is_commit=True), world.init()]
    assert {world.error_of(each) for each in meanwhile} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    world.commit()
    world.end(producer, is_commit=True)
    world.commit()
    meanwhile = [world.end(producer, is_commit=True), world.init()]
    assert {world.error_of(each) for each in meanwhile} == {ErrorCode.CONCURRENT_TRANSACTIONS}


@VERSIONS
def test_clients_wait_until_the_transaction_before_has_ended_and_leaders_ask_again(
    version: int,
) -> None:
    world = World(version)
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    world.end(producer, is_commit=True)
    world.commit()
    number, epoch = producer
    current = (number, world.metadata().producer_epoch)
    world.version = 2
    of_leader = world.add(current, SENT)
    assert world.error_of(of_leader) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.version = 0
    late, next_one = world.add((number, epoch - 1), SENT), world.add(current, SENT)
    same_one = world.add(current, SENT, PAID)
    world.write_markers()
    assert not {late, next_one, same_one} & world.answers.keys()
    world.commit()
    assert world.error_of(late) is ErrorCode.PRODUCER_FENCED, "in their order"
    assert next_one not in world.answers, "answered before the record is committed"
    world.commit()
    assert world.answers[next_one] is ErrorCode.NONE
    world.commit()
    assert world.answers[same_one] is ErrorCode.NONE
    assert world.metadata().partitions == {PAID, SENT}
    world.pass_time(TIMEOUT_MS // 2)
    assert not world.appends, "nobody waits any more"


def test_clients_do_not_wait_for_long() -> None:
    world = World(0)
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    world.end(producer, is_commit=True)
    world.commit()
    first = world.add(producer, SENT)
    world.pass_time(MOST_WAIT_MS // 2)
    second = world.add(producer, SENT)
    world.pass_time(MOST_WAIT_MS // 2)
    assert {world.error_of(first), world.error_of(second)} == {ErrorCode.CONCURRENT_TRANSACTIONS}
    world.settle()
    added = world.add(producer, SENT)
    world.settle()
    assert world.error_of(added) is ErrorCode.NONE


def test_who_waits_for_a_record_that_is_refused_has_its_turn() -> None:
    world = World(0)
    producer = world.begin_producer()
    refused, waiting = world.add(producer, PAID), world.add(producer, SENT)
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.error_of(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.commit()
    assert world.error_of(waiting) is ErrorCode.NONE
    assert world.metadata().partitions == {SENT}


@VERSIONS
def test_another_producer_with_the_id_fences_the_first_and_aborts_its_transaction(
    version: int,
) -> None:
    world = World(version)
    number, epoch = world.begin_producer()
    world.add((number, epoch), PAID)
    world.commit()
    began = world.init()
    world.commit()
    assert world.error_of(began) is ErrorCode.CONCURRENT_TRANSACTIONS
    markers = world.write_markers()
    assert not markers.is_commit
    assert markers.producer_epoch > epoch, "a late batch would be written after the marker"
    world.commit()
    second = world.begin_producer()
    assert second > (number, markers.producer_epoch)
    fenced = [world.add((number, epoch), SENT), world.end((number, epoch), is_commit=True)]
    assert {world.error_of(each) for each in fenced} == {ErrorCode.PRODUCER_FENCED}


@VERSIONS
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    version: int,
) -> None:
    world = World(version)
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    world.pass_time(TIMEOUT_MS - 1)
    assert not world.appends
    world.pass_time(world.config.transaction_abort_timed_out_transaction_cleanup_interval_ms + 2)
    world.commit()
    assert not world.write_markers().is_commit
    world.commit()
    refused = world.error_of(world.end(producer, is_commit=True))
    # From version 2 on an end with the epoch before is a repeated one, as in Kafka 4.1.1.
    assert refused is (ErrorCode.PRODUCER_FENCED if version < 2 else ErrorCode.INVALID_TXN_STATE)


@VERSIONS
@BOTH_WAYS
def test_the_next_coordinator_writes_the_markers_of_what_was_decided(
    version: int, is_commit: bool
) -> None:
    world = World(version)
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    world.end(producer, is_commit=is_commit)
    world.commit()
    world.begin()
    markers = world.write_markers()
    assert (markers.is_commit, markers.partitions) == (is_commit, {PAID})
    world.commit()
    assert not world.metadata().state.is_prepared


@VERSIONS
@BOTH_WAYS
def test_a_repeated_end_has_the_same_answer(version: int, is_commit: bool) -> None:
    world = World(version)
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    first = world.end(producer, is_commit=is_commit)
    world.settle()
    assert world.answers[world.end(producer, is_commit=is_commit)] == world.answers[first]
    other = world.end(producer, is_commit=not is_commit)
    assert world.error_of(other) is ErrorCode.INVALID_TXN_STATE


def test_the_table_of_ends_without_a_transaction_in_version_2() -> None:
    world = World(2)
    number, epoch = world.begin_producer()
    assert world.error_of(world.end((number, epoch), is_commit=True)) is ErrorCode.INVALID_TXN_STATE
    before = world.end((number, epoch - 1), is_commit=False)
    assert world.error_of(before) is ErrorCode.PRODUCER_FENCED
    aborted = world.end((number, epoch), is_commit=False)
    world.settle()
    assert world.answers[aborted] == InitializedProducer(ErrorCode.NONE, number, epoch + 1)
    again = world.end((number, epoch), is_commit=False)
    assert world.answers[again] == world.answers[aborted]
    following = world.end((number, epoch + 1), is_commit=False)
    world.settle()
    assert world.answers[following] == InitializedProducer(ErrorCode.NONE, number, epoch + 2)


@BOTH_WAYS
def test_a_fenced_producer_does_not_get_the_epoch_of_one_that_speaks_version_1(
    is_commit: bool,
) -> None:
    """Its request looks like a repeated one: its epoch is the one before, and has not ended so."""
    world = World(2)
    number, epoch = world.begin_producer()
    newer = world.begin_producer()
    world.add(newer, PAID, client_version=1)
    world.commit()
    world.end(newer, is_commit=is_commit, client_version=1)
    world.settle()
    assert (world.metadata().producer_id, world.metadata().producer_epoch) == newer
    assert newer == (number, epoch + 1)
    late = world.end((number, epoch), is_commit=is_commit)
    assert world.error_of(late) is ErrorCode.PRODUCER_FENCED


def test_up_to_version_1_nothing_ends_without_a_transaction() -> None:
    world = World(0)
    producer = world.begin_producer()
    for is_commit in (True, False):
        ended = world.end(producer, is_commit=is_commit)
        assert world.error_of(ended) is ErrorCode.INVALID_TXN_STATE


# --- producer ids and epochs ----------------------------------------------------------------------


def with_epoch(
    epoch: int, state: TransactionState = TransactionState.EMPTY, *, version: int = 2
) -> World:
    world = World(version, producer_ids=7)
    metadata = TransactionMetadata(
        7,
        TIMEOUT_MS,
        world.now_ms,
        producer_epoch=epoch,
        state=state,
        partitions=frozenset({PAID}) if state is TransactionState.ONGOING else frozenset(),
        start_ms=world.now_ms,
    )
    world.log.append(TransactionRecord("id", metadata))
    world.begin()
    return world


def test_at_the_last_epoch_a_producer_gets_the_next_id() -> None:
    world = with_epoch(MAX_EPOCH - 2)
    assert world.begin_producer() == (7, MAX_EPOCH - 1)
    assert world.begin_producer() == (8, 0)


def test_at_the_last_epoch_an_end_brings_the_next_id_and_a_repeated_one_too() -> None:
    world = with_epoch(MAX_EPOCH - 1, TransactionState.ONGOING)
    ended = world.end((7, MAX_EPOCH - 1), is_commit=True)
    world.commit()
    assert world.answers[ended] == InitializedProducer(ErrorCode.NONE, 8, 0)
    markers = world.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (7, MAX_EPOCH)
    world.commit()
    again = world.end((7, MAX_EPOCH - 1), is_commit=True)
    assert world.answers[again] == InitializedProducer(ErrorCode.NONE, 8, 0)


def test_at_the_last_epoch_a_producer_can_still_be_fenced() -> None:
    world = with_epoch(MAX_EPOCH - 1, TransactionState.ONGOING)
    world.init()
    world.commit()
    markers = world.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (7, MAX_EPOCH)
    world.commit()
    assert (world.metadata().producer_id, world.metadata().producer_epoch) == (8, 0)
    late = world.end((7, MAX_EPOCH - 1), is_commit=False)
    assert world.answers[late] == InitializedProducer(ErrorCode.NONE, 8, 0)
    assert world.begin_producer() == (8, 1)


def test_at_the_last_epoch_a_fenced_producer_that_recovers_is_told_so() -> None:
    world = with_epoch(MAX_EPOCH - 2)
    assert world.begin_producer() == (7, MAX_EPOCH - 1)
    for expected in ((7, MAX_EPOCH - 2), (7, 3)):
        assert world.error_of(world.init(expected=expected)) is ErrorCode.PRODUCER_FENCED


def test_at_the_last_epoch_a_repeated_recovery_has_the_same_answer() -> None:
    world = with_epoch(MAX_EPOCH - 2)
    for _ in range(2):
        recovered = world.init(expected=(7, MAX_EPOCH - 2))
        world.settle()
        assert world.answers[recovered] == InitializedProducer(ErrorCode.NONE, 7, MAX_EPOCH - 1)


def test_up_to_version_1_the_last_epoch_is_there_to_fence_with() -> None:
    world = with_epoch(MAX_EPOCH - 1, TransactionState.ONGOING, version=0)
    world.init()
    world.commit()
    assert world.write_markers().producer_epoch == MAX_EPOCH
    world.commit()
    assert world.begin_producer() == (8, 0)


def test_an_abort_raises_the_epoch_once_and_not_for_the_fencing_as_well() -> None:
    """KAFKA-19367."""
    world = World()
    number, epoch = world.begin_producer()
    world.add((number, epoch), PAID)
    world.commit()
    world.init()
    world.commit()
    assert world.write_markers().producer_epoch == epoch + 1
    world.commit()
    assert world.begin_producer() == (number, epoch + 2)


def test_without_a_producer_id_an_abort_at_the_last_epoch_waits_for_one() -> None:
    world = with_epoch(MAX_EPOCH - 1, TransactionState.ONGOING)
    world.has_producer_ids = False
    assert world.error_of(world.init()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.pass_time(TIMEOUT_MS + DAY_MS)
    assert not world.appends
    world.has_producer_ids = True
    world.pass_time(world.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    world.settle()
    assert world.metadata().state is TransactionState.COMPLETE_ABORT


def test_a_producer_that_has_its_next_id_waits_until_that_counts() -> None:
    """KAFKA-18660."""
    world = with_epoch(MAX_EPOCH - 1, TransactionState.ONGOING)
    world.end((7, MAX_EPOCH - 1), is_commit=True)
    assert world.error_of(world.add((8, 0), PAID)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.commit()
    assert world.error_of(world.add((8, 0), PAID)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.settle()
    added = world.add((8, 0), PAID)
    world.settle()
    assert world.error_of(added) is ErrorCode.NONE


def test_without_a_producer_id_a_client_is_told_to_come_back() -> None:
    world = World(has_producer_ids=False)
    assert world.error_of(world.init()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(world.coordinator) == 0


def test_a_producer_that_recovers_goes_on_unless_another_has_begun() -> None:
    """KIP-360."""
    world = World()
    number, epoch = world.begin_producer()
    recovered = world.init(expected=(number, epoch))
    world.settle()
    assert world.answers[recovered] == InitializedProducer(ErrorCode.NONE, number, epoch + 1)
    repeated = world.init(expected=(number, epoch))
    world.settle()
    assert world.answers[repeated] == world.answers[recovered]
    world.begin_producer()
    fenced = world.init(expected=(number, epoch + 1))
    assert world.error_of(fenced) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_did_not_hear_its_next_id_is_told_again() -> None:
    world = with_epoch(MAX_EPOCH - 1)
    rotated = world.init(expected=(7, MAX_EPOCH - 1))
    world.settle()
    assert world.answers[rotated] == InitializedProducer(ErrorCode.NONE, 8, 0)
    repeated = world.init(expected=(7, MAX_EPOCH - 1))
    world.settle()
    assert world.answers[repeated] == InitializedProducer(ErrorCode.NONE, 8, 0)
    older = world.init(expected=(7, MAX_EPOCH - 2))
    assert world.error_of(older) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_a_timeout_that_is_not_allowed_is_refused(timeout_ms: int) -> None:
    world = World()
    refused = world.init(timeout_ms=timeout_ms)
    assert world.error_of(refused) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


# --- partitions -----------------------------------------------------------------------------------


def test_a_partition_that_is_there_is_not_written_again() -> None:
    world = World()
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    again = world.add(producer, PAID)
    assert world.answers[again] is ErrorCode.NONE
    assert not world.appends


def test_who_is_unknown_adds_nothing() -> None:
    world = World()
    number, epoch = world.begin_producer()
    errors = [
        world.error_of(world.add((number, epoch), PAID, transactional_id="other")),
        world.error_of(world.add((number + 1, epoch), PAID)),
        world.error_of(world.add((number, epoch + 1), PAID)),
    ]
    assert errors == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    ]


def test_verification_says_which_partitions_are_in_the_transaction() -> None:
    world = World()
    number, epoch = world.begin_producer()
    world.add((number, epoch), PAID)
    world.commit()

    def verify(number: int, epoch: int) -> list[ErrorCode]:
        return list(world.coordinator.verify_partitions("id", number, epoch, [PAID, SENT]).values())

    assert verify(number, epoch) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert verify(number, epoch - 1) == [ErrorCode.PRODUCER_FENCED] * 2
    assert verify(number + 1, epoch) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    world.end((number, epoch), is_commit=True)
    world.commit()
    assert verify(number, epoch + 1) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2


# --- records that cannot be written ---------------------------------------------------------------


def test_a_record_that_could_not_be_written_changed_nothing() -> None:
    world = World()
    producer = world.begin_producer()
    before = world.metadata()
    added = world.add(producer, PAID)
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.error_of(added) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.metadata() == before
    world.add(producer, PAID)
    world.commit()
    assert world.metadata().partitions == {PAID}


def test_an_id_whose_first_record_could_not_be_written_is_not_kept() -> None:
    world = World()
    world.init()
    world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(world.coordinator) == 0


def test_the_end_of_a_transaction_is_written_until_it_is_there() -> None:
    world = World()
    producer = world.begin_producer()
    world.add(producer, PAID)
    world.commit()
    world.end(producer, is_commit=True)
    world.commit()
    world.write_markers()
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.metadata().state is TransactionState.PREPARE_COMMIT
    assert world.coordinator.append_retry_count == 1
    world.pass_time(2_000)
    assert world.coordinator.append_retry_count == 0
    world.commit()
    assert world.metadata().state is TransactionState.COMPLETE_COMMIT


def test_who_waits_too_long_is_told_so_and_the_record_counts_when_it_comes() -> None:
    world = World()
    producer = world.begin_producer()
    added = world.add(producer, PAID)
    effects, append = world.coordinator.on_late(world.appends[0], now_ms=world.now_ms)
    world.appends[0] = append
    world.perform(effects)
    assert world.error_of(added) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.commit()
    assert world.metadata().partitions == {PAID}


# --- ids that nobody uses -------------------------------------------------------------------------


def test_an_id_that_nobody_uses_expires_and_one_with_an_open_transaction_does_not() -> None:
    world = World()
    world.begin_producer("idle")
    producer = world.begin_producer("open")
    world.add(producer, PAID, transactional_id="open")
    world.commit()
    world.timers = {key: at for key, at in world.timers.items() if key.kind.name == "EXPIRE"}
    world.pass_time(8 * DAY_MS)
    world.settle()
    assert [name for name, _ in world.coordinator] == ["open"]
    world.begin()
    assert [name for name, _ in world.coordinator] == ["open"]


def test_whoever_waits_for_an_id_that_expires_is_told_that_it_is_gone() -> None:
    world = World(0)
    producer = world.begin_producer("idle")
    world.timers = {key: at for key, at in world.timers.items() if key.kind.name == "EXPIRE"}
    while not world.appends:
        world.pass_time(DAY_MS)
    waiting = world.add(producer, PAID, transactional_id="idle")
    assert waiting not in world.answers
    world.commit()
    assert world.error_of(waiting) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert [name for name, _ in world.coordinator] == []


def test_an_id_whose_tombstone_cannot_be_written_is_there_and_expires_later() -> None:
    world = World()
    world.begin_producer("idle")
    world.timers = {key: at for key, at in world.timers.items() if key.kind.name == "EXPIRE"}
    while not world.appends:
        world.pass_time(DAY_MS)
    assert len(world.timers) == 1, "it looks again"
    world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)  # nobody waits for an answer
    assert [name for name, _ in world.coordinator] == ["idle"]
    world.pass_time(8 * DAY_MS)
    world.settle()
    assert [name for name, _ in world.coordinator] == []

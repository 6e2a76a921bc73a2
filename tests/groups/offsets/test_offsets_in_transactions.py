"""What do offsets mean that are committed in a transaction, and who may commit them? (KIP-98, KIP-447)"""

from collections.abc import Callable

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver

DAY_MS = 24 * 60 * 60 * 1000
P0, P1 = ("t", 0), ("t", 1)


def agree(driver: GroupDriver) -> None:
    """The next coordinator, which has read the log, knows what this one knows."""
    other = driver.failed_over()
    assert other.all_offsets() == driver.all_offsets()
    assert other.state == driver.state
    for partition in range(2):
        assert other.fetch("t", partition, require_stable=True) == driver.fetch(
            "t", partition, require_stable=True
        )


# --- when they count ---------------------------------------------------------------------------------


def test_they_count_when_the_transaction_is_committed() -> None:
    driver = GroupDriver()
    assert driver.committed(driver.commit_in_transaction({P0: 5})) == [0]
    assert driver.all_offsets() == {}
    agree(driver)
    driver.end_transaction()
    found = driver.fetch("t", 0)
    assert (found.committed_offset, found.committed_leader_epoch) == (5, 3)
    agree(driver)


def test_they_vanish_when_it_is_aborted_and_with_them_a_group_that_had_nothing_else() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    assert driver.state == "Empty"
    agree(driver)
    driver.end_transaction(is_commit=False)
    assert (driver.state, driver.all_offsets()) == ("none", {})
    agree(driver)


def test_a_transaction_without_offsets_here_ends_as_well() -> None:
    driver = GroupDriver()
    assert driver.answers[driver.end_transaction()] is None
    assert driver.state == "none"


def test_the_last_offset_of_a_transaction_counts() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.commit_in_transaction({P0: 4, P1: 9})
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 4, P1: 9}
    agree(driver)


def test_offsets_of_several_groups_end_together() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.commit_in_transaction({P0: 6}, group="other")
    driver.end_transaction()
    assert (driver.all_offsets(), driver.all_offsets("other")) == ({P0: 5}, {P0: 6})


def test_a_reader_that_wants_stable_offsets_must_wait_and_others_see_the_former_one() -> None:
    driver = GroupDriver()
    driver.commit({P0: 3})
    driver.commit_in_transaction({P0: 5})
    waits = driver.fetch("t", 0, require_stable=True)
    assert (waits.error_code, waits.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert (waits.committed_leader_epoch, waits.metadata) == (-1, "")
    assert driver.fetch("t", 0).committed_offset == 3
    assert driver.fetch("t", 1, require_stable=True).error_code == 0
    agree(driver)


def test_the_order_in_the_log_decides_between_a_plain_commit_and_one_of_a_transaction() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.commit({P0: 6})
    assert driver.fetch("t", 0, require_stable=True).error_code != 0
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 6}
    agree(driver)
    driver.commit_in_transaction({P0: 7})
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 7}
    agree(driver)


def test_the_order_in_the_log_decides_between_two_transactions_and_not_that_of_their_ends() -> None:
    """Compaction keeps the last one in the log; who reads that log must find the same."""
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5, P1: 5}, producer_id=7)
    driver.commit_in_transaction({P0: 6}, producer_id=8)
    driver.end_transaction(8)
    driver.end_transaction(7)
    assert driver.all_offsets() == {P0: 6, P1: 5}
    agree(driver)


def test_an_aborted_transaction_overtakes_nothing() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5}, producer_id=7)
    driver.commit_in_transaction({P0: 6}, producer_id=8)
    driver.end_transaction(8, is_commit=False)
    driver.end_transaction(7)
    assert driver.all_offsets() == {P0: 5}
    agree(driver)


def test_transactions_of_two_producers_end_on_their_own() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5}, producer_id=7)
    driver.commit_in_transaction({P1: 6}, producer_id=8)
    driver.end_transaction(8)
    assert driver.all_offsets() == {P1: 6}
    assert driver.fetch("t", 0, require_stable=True).error_code != 0
    assert driver.fetch("t", 1, require_stable=True).error_code == 0
    agree(driver)


# --- who may commit ----------------------------------------------------------------------------------


def test_a_member_commits_in_its_generation_even_while_the_group_rebalances() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    assert driver.committed(driver.commit_in_transaction({P0: 1}, leader, 1)) == [0]
    driver.join(leader)
    assert driver.state == "PreparingRebalance"
    assert driver.committed(driver.commit_in_transaction({P0: 2}, follower, 1)) == [0]


def test_also_between_join_and_assignment_for_it_has_to_end_what_it_began() -> None:
    driver = GroupDriver()
    (member,) = driver.enter(1)
    assert driver.state == "CompletingRebalance"
    assert driver.committed(driver.commit_in_transaction({P0: 1}, member, 1)) == [0]


@pytest.mark.parametrize("generation", [0, 2])
def test_a_zombie_of_another_generation_is_refused(generation: int) -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    refused = driver.commit_in_transaction({P0: 1}, member, generation)
    assert driver.committed(refused) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.fetch("t", 0, require_stable=True).error_code == 0


def test_a_member_that_is_not_known_is_refused_with_and_without_a_generation() -> None:
    driver = GroupDriver()
    driver.stable(1)
    for generation in (1, -1):
        refused = driver.commit_in_transaction({P0: 1}, "ghost", generation)
        assert driver.committed(refused) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_whose_place_was_taken_is_fenced() -> None:
    driver = GroupDriver()
    request = driver.join(instance_id="one")
    driver.advance(driver.config.group_initial_rebalance_delay_ms)
    member = driver.joined(request).member_id
    assert driver.committed(
        driver.commit_in_transaction({P0: 1}, member, 1, instance_id="one")
    ) == [0]
    for instance, error in [
        ("one", ErrorCode.FENCED_INSTANCE_ID),
        ("two", ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        refused = driver.commit_in_transaction({P0: 1}, "former", 1, instance_id=instance)
        assert driver.committed(refused) == [error]


def test_an_old_producer_does_not_say_which_member_it_is_and_is_fenced_by_its_id_alone() -> None:
    """Versions 0-2: one producer for each input partition, before KIP-447."""
    driver = GroupDriver()
    driver.stable(1)
    assert driver.committed(driver.commit_in_transaction({P0: 1})) == [0]
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 1}


def test_a_group_that_nobody_knows_is_made_only_by_who_is_no_member_of_it() -> None:
    driver = GroupDriver()
    refused = driver.commit_in_transaction({P0: 1}, "ghost", 1)
    assert driver.committed(refused) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.state == "none"
    assert driver.committed(driver.commit_in_transaction({P0: 1})) == [0]
    assert driver.state == "Empty"


@pytest.mark.parametrize("group", ["", "g" * 40_000])
def test_a_group_needs_a_name_that_a_record_holds(group: str) -> None:
    driver = GroupDriver()
    refused = driver.commit_in_transaction({P0: 1}, group=group)
    assert driver.committed(refused) == [ErrorCode.INVALID_GROUP_ID]


def test_unknown_partitions_and_long_metadata_are_refused_one_by_one() -> None:
    driver = GroupDriver(offset_metadata_max_bytes=4)
    answers = driver.commit_in_transaction({P0: 1, ("gone", 0): 2}, unknown=frozenset({"gone"}))
    assert driver.committed(answers) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    refused = driver.commit_in_transaction({P1: 1}, metadata="12345")
    assert driver.committed(refused) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 1}


def test_it_is_a_sign_of_life() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, session_ms=10_000)
    for _ in range(5):
        driver.advance(9_000)
        driver.commit_in_transaction({P0: 1}, member, 1)
    assert driver.state == "Stable"


# --- the log -----------------------------------------------------------------------------------------


def test_nothing_is_answered_or_shown_before_it_is_in_the_log() -> None:
    driver = GroupDriver()
    driver.hold_commits = True
    commit, end = driver.commit_in_transaction({P0: 2}), driver.end_transaction()
    assert driver.coordinator.offsets.is_committing("orders")
    assert driver.is_parked(commit)
    driver.commit_next()
    assert driver.committed(commit) == [0]
    assert driver.is_parked(end)
    assert driver.all_offsets() == {}
    assert driver.coordinator.offsets.is_committing("orders")
    driver.commit_next()
    assert driver.answers[end] is None
    assert driver.all_offsets() == {P0: 2}
    assert not driver.coordinator.offsets.is_committing("orders")


@pytest.mark.parametrize(
    ("cause", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_commit_that_cannot_be_appended_changes_nothing(
    cause: ErrorCode, answer: ErrorCode
) -> None:
    driver = GroupDriver()
    driver.hold_commits = True
    request = driver.commit_in_transaction({P0: 2})
    driver.fail_next(cause)
    assert driver.committed(request) == [answer]
    assert driver.state == "none"
    assert not driver.coordinator.offsets.is_committing("orders")


def test_an_end_that_cannot_be_appended_leaves_the_transaction_open_and_says_why() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 2})
    driver.hold_commits = True
    request = driver.end_transaction()
    driver.fail_next(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert driver.answers[request].code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert not driver.coordinator.offsets.is_committing("orders")
    assert driver.fetch("t", 0, require_stable=True).error_code != 0


def test_what_takes_too_long_is_answered_and_counts_all_the_same() -> None:
    driver = GroupDriver()
    driver.hold_commits = True
    commit, end = driver.commit_in_transaction({P0: 2}), driver.end_transaction()
    driver.be_late(0)
    driver.be_late(1)
    assert driver.committed(commit) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.answers[end].code == ErrorCode.REQUEST_TIMED_OUT
    driver.commit_next()
    driver.commit_next()
    assert driver.all_offsets() == {P0: 2}


def test_an_end_that_is_written_twice_does_no_harm() -> None:
    """Its coordinator asks again when it got no answer."""
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 2})
    driver.end_transaction()
    driver.commit({P0: 3})
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 3}
    agree(driver)


# --- deletion and expiry -----------------------------------------------------------------------------


def delete_the_group(driver: GroupDriver) -> None:
    driver.delete("orders")


def delete_the_offset(driver: GroupDriver) -> None:
    driver.delete_offsets(P0)


def delete_the_topic(driver: GroupDriver) -> None:
    driver.delete_topics("t")


DELETIONS = [delete_the_group, delete_the_offset, delete_the_topic]
Deletion = Callable[[GroupDriver], None]


@pytest.mark.parametrize("delete", DELETIONS)
@pytest.mark.parametrize("former", [None, 1])
def test_a_deletion_ends_what_is_pending_for_good(delete: Deletion, former: int | None) -> None:
    driver = GroupDriver()
    if former is not None:
        driver.commit({P0: former})
    driver.commit_in_transaction({P0: 5})
    delete(driver)
    assert driver.fetch("t", 0, require_stable=True).error_code == 0
    agree(driver)
    driver.end_transaction()
    assert driver.all_offsets() == {}
    agree(driver)


@pytest.mark.parametrize("delete", DELETIONS)
def test_a_deletion_covers_a_transaction_that_is_on_its_way_to_the_log(delete: Deletion) -> None:
    driver = GroupDriver()
    driver.commit({P1: 1}, group="other")
    driver.commit_in_transaction({P1: 5})
    driver.hold_commits = True
    driver.commit_in_transaction({P0: 5})
    driver.end_transaction()
    delete(driver)
    while driver.uncommitted:
        driver.commit_next()
    assert P0 not in driver.all_offsets()
    agree(driver)
    assert driver.state == ("none" if delete is delete_the_group else "Empty")


def test_a_group_that_was_deleted_begins_again_in_the_same_transaction() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5, P1: 5})
    driver.delete("orders")
    driver.commit_in_transaction({P1: 6})
    driver.end_transaction()
    assert driver.all_offsets() == {P1: 6}
    agree(driver)


def test_a_group_whose_offsets_came_from_a_transaction_stays_when_they_are_deleted() -> None:
    """As one with plain offsets: empty, until it is deleted or looked at for expiry."""
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.end_transaction()
    driver.delete_offsets(P0)
    assert driver.state == "Empty"
    agree(driver)
    driver.advance(DAY_MS)
    assert driver.state == "none"
    agree(driver)


def test_what_is_pending_does_not_expire_and_keeps_its_group() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.commit_in_transaction({P0: 5})
    driver.advance(30 * DAY_MS)
    assert driver.all_offsets() == {P0: 1}
    agree(driver)
    driver.end_transaction(is_commit=False)
    driver.advance(DAY_MS)
    assert driver.state == "none"
    agree(driver)


def test_what_is_on_its_way_does_not_expire_either() -> None:
    """A tombstone behind it in the log would erase it."""
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.advance(7 * DAY_MS - 1)
    driver.hold_commits = True
    driver.commit_in_transaction({P0: 2})
    driver.advance(600_001)
    driver.end_transaction()
    while driver.uncommitted:
        driver.commit_next()
    assert driver.all_offsets() == {P0: 2}
    agree(driver)


def test_a_group_with_nothing_but_pending_offsets_stays_until_the_transaction_ends() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.advance(30 * DAY_MS)
    assert driver.state == "Empty"
    assert driver.records()[1:] == []
    driver.end_transaction()
    assert driver.all_offsets() == {P0: 5}
    agree(driver)


def test_their_retention_begins_with_the_commit_and_not_with_the_marker() -> None:
    """The record has its time of the commit, as in Kafka; the marker has none for offsets."""
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 5})
    driver.advance(6 * DAY_MS)
    driver.end_transaction()
    driver.advance(DAY_MS + 600_000)
    assert driver.state == "none"
    agree(driver)


def test_commits_in_transactions_are_counted() -> None:
    driver = GroupDriver()
    driver.commit_in_transaction({P0: 1, P1: 2})
    assert (driver.counters.offset_commits, driver.coordinator.offsets.count) == (2, 0)
    driver.end_transaction()
    assert driver.coordinator.offsets.count == 2

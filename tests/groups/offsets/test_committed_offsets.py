"""Who may commit offsets, when does a commit count, and how long does it last?"""

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver

DAY_MS = 24 * 60 * 60 * 1000
P0, P1 = ("t", 0), ("t", 1)


def test_a_member_commits_and_reads_back_offset_epoch_and_metadata() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    assert driver.committed(driver.commit({P0: 42}, member, 1, metadata="héllo")) == [0]
    found = driver.fetch("t", 0)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (
        42,
        3,
        "héllo",
    )


def test_what_was_never_committed_is_minus_one_without_an_error() -> None:
    driver = GroupDriver()
    found = driver.fetch("t", 0)
    assert (found.committed_offset, found.committed_leader_epoch) == (-1, -1)
    assert (found.metadata, found.error_code) == ("", 0)
    driver.commit({P0: 1})
    assert driver.fetch("t", 1).committed_offset == -1


def test_the_last_commit_counts_even_when_it_goes_back() -> None:
    driver = GroupDriver()
    for offset in (5, 9, 7):
        driver.commit({P0: offset})
    assert driver.all_offsets() == {P0: 7}


def test_null_metadata_becomes_empty() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1}, metadata=None)
    assert driver.fetch("t", 0).metadata == ""


def test_a_consumer_without_a_group_membership_makes_a_group_by_committing() -> None:
    driver = GroupDriver()
    assert driver.committed(driver.commit({P0: 1, P1: 2})) == [0, 0]
    assert (driver.state, driver.describe().protocol_type) == ("Empty", "")
    assert driver.all_offsets() == {P0: 1, P1: 2}


def test_a_member_of_a_group_that_nobody_knows_is_refused() -> None:
    driver = GroupDriver()
    for version, error in [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]:
        assert driver.committed(driver.commit({P0: 1}, "ghost", 1, version=version)) == [error]
    assert driver.all_offsets() == {}


def test_while_a_group_has_members_a_stranger_cannot_commit() -> None:
    driver = GroupDriver()
    driver.stable(1)
    assert driver.committed(driver.commit({P0: 1})) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_administrator_may_commit_to_an_empty_group() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.leave((member, None))
    assert driver.committed(driver.commit({P0: 1})) == [0]


@pytest.mark.parametrize("generation", [0, 2])
def test_a_commit_of_another_generation_is_refused(generation: int) -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    refused = driver.commit({P0: 1}, member, generation)
    assert driver.committed(refused) == [ErrorCode.ILLEGAL_GENERATION]


def test_members_commit_what_they_have_done_while_the_group_prepares_to_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    assert driver.state == "PreparingRebalance"
    assert driver.committed(driver.commit({P0: 1}, follower, 1)) == [0]


def test_between_join_and_assignment_nobody_commits() -> None:
    driver = GroupDriver()
    (member,) = driver.enter(1)
    refused = driver.commit({P0: 1}, member, 1)
    assert driver.committed(refused) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_unknown_partitions_and_long_metadata_are_refused_one_by_one() -> None:
    driver = GroupDriver(offset_metadata_max_bytes=4)
    answers = driver.commit({P0: 1, ("gone", 0): 2}, unknown=frozenset({"gone"}))
    assert driver.committed(answers) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert driver.committed(driver.commit({P1: 1}, metadata="12345")) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert driver.committed(driver.commit({P1: 1}, metadata="1234")) == [0]
    assert driver.all_offsets() == {P0: 1, P1: 1}


def test_a_commit_is_neither_answered_nor_shown_before_it_is_in_the_log() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.hold_commits = True
    request = driver.commit({P0: 2})
    assert driver.is_parked(request)
    assert driver.all_offsets() == {P0: 1}
    driver.commit_next()
    assert driver.committed(request) == [0]
    assert driver.all_offsets() == {P0: 2}


@pytest.mark.parametrize(
    ("cause", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_cannot_be_appended_changes_nothing(
    cause: ErrorCode, answer: ErrorCode
) -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.hold_commits = True
    request = driver.commit({P0: 2})
    driver.fail_next(cause)
    assert driver.committed(request) == [answer]
    assert driver.all_offsets() == {P0: 1}


def test_a_group_that_only_a_failed_commit_would_have_made_is_not_there() -> None:
    driver = GroupDriver()
    driver.hold_commits = True
    driver.commit({P0: 2})
    driver.fail_next()
    assert driver.state == "none"


def test_offsets_of_a_group_expire_a_week_after_its_last_member_left() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, session_ms=1_800_000)
    driver.commit({P0: 1}, member, 1)
    for _ in range(8 * 72):
        driver.advance(DAY_MS // 72)
        driver.heartbeat(member, 1)
    assert driver.all_offsets() == {P0: 1}
    driver.leave((member, None))
    driver.advance(7 * DAY_MS - 1)
    assert driver.all_offsets() == {P0: 1}
    driver.advance(600_001)
    assert driver.all_offsets() == {}
    assert driver.state == "none"


def test_offsets_of_a_consumer_without_membership_expire_a_week_after_each_commit() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.advance(DAY_MS)
    driver.commit({P1: 1})
    driver.advance(6 * DAY_MS + 600_000)
    assert driver.all_offsets() == {P1: 1}
    driver.advance(DAY_MS)
    assert driver.state == "none"


def test_an_old_client_may_choose_its_own_retention() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1}, retention_ms=DAY_MS, version=4)
    driver.commit({P1: 1}, retention_ms=2**63 - 1, version=4)
    driver.advance(DAY_MS + 600_000)
    assert driver.all_offsets() == {P1: 1}
    driver.advance(30 * DAY_MS)
    assert driver.failed_over().all_offsets() == {P1: 1}


def test_a_commit_on_its_way_to_the_log_does_not_expire() -> None:
    """Its tombstone would come behind it in the log and erase it."""
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.advance(7 * DAY_MS - 1)
    driver.hold_commits = True
    driver.commit({P0: 2})
    driver.advance(600_001)
    while driver.uncommitted:
        driver.commit_next()
    assert driver.all_offsets() == {P0: 2}
    assert driver.failed_over().all_offsets() == {P0: 2}


def test_deleting_a_group_erases_its_offsets_for_good() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.commit({P0: 1, P1: 2}, member, 1)
    assert driver.deleted(driver.delete("orders")) == [ErrorCode.NON_EMPTY_GROUP]
    driver.leave((member, None))
    assert driver.deleted(driver.delete("orders", "ghost")) == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    for some in (driver, driver.failed_over()):
        assert some.all_offsets() == {}
        assert some.state == "none"


def test_deleting_covers_a_commit_on_its_way_to_the_log() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.hold_commits = True
    driver.commit({P1: 2})
    request = driver.delete("orders")
    driver.commit_next()
    assert driver.is_parked(request)
    driver.commit_next()
    assert driver.deleted(request) == [0]
    for some in (driver, driver.failed_over()):
        assert some.all_offsets() == {}
        assert some.state == "none"


def test_a_group_that_is_joined_while_it_is_being_deleted_starts_again() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.commit({P0: 1}, member, 1)
    driver.leave((member, None))
    driver.hold_commits = True
    driver.delete("orders")
    (again,) = driver.enter(1)
    driver.commit_next()
    driver.hold_commits = False
    driver.stabilise([again], 1)
    assert driver.state == "Stable"
    assert driver.all_offsets() == {}
    assert driver.failed_over().heartbeat(again, 1) == ErrorCode.NONE


def test_a_deletion_that_cannot_be_stored_leaves_the_group_as_it_was() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.commit({P0: 1}, member, 1)
    driver.leave((member, None))
    driver.hold_commits = True
    request = driver.delete("orders")
    driver.fail_next()
    assert driver.deleted(request) == [ErrorCode.NOT_COORDINATOR]
    assert (driver.state, driver.all_offsets()) == ("Empty", {P0: 1})
    (again,) = driver.enter(1)
    assert driver.heartbeat(again, 3) == ErrorCode.NONE

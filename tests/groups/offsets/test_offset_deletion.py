"""Which committed offsets can be deleted one by one (KIP-496), and which go with their topic?"""

import pytest

from bradbury.groups.group_records import encode_group_record
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver, subscription

P0, P1, U0 = ("t", 0), ("t", 1), ("u", 0)


def test_of_an_empty_group_any() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, protocols=(("range", subscription("t")),))
    driver.commit({P0: 1, P1: 2, U0: 3}, member, 1)
    driver.leave((member, None))
    assert driver.offsets_deleted(driver.delete_offsets(P0, U0)) == [0, 0]
    for some in (driver, driver.failed_over()):
        assert some.all_offsets() == {P1: 2}


def test_of_a_group_with_members_what_nobody_subscribes_to() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, protocols=(("range", subscription("t")),))
    driver.commit({P0: 1, U0: 3}, member, 1)
    assert driver.offsets_deleted(driver.delete_offsets(P0, U0)) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert driver.all_offsets() == {P0: 1}


def test_a_member_that_does_not_say_what_it_subscribes_to_may_subscribe_to_anything() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, protocols=(("range", b"\xff"),))
    driver.commit({P0: 1}, member, 1)
    assert driver.offsets_deleted(driver.delete_offsets(P0)) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    ]


def test_the_topics_of_other_kinds_of_members_are_not_known_so_they_must_leave_first() -> None:
    driver = GroupDriver()
    driver.stable(1, protocol_type="connect")
    refused = driver.delete_offsets(P0)
    assert driver.offsets_deleted(refused) == [ErrorCode.NON_EMPTY_GROUP]


@pytest.mark.parametrize(
    ("group", "error"),
    [("ghost", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)],
)
def test_there_must_be_such_a_group(group: str, error: ErrorCode) -> None:
    driver = GroupDriver()
    assert driver.offsets_deleted(driver.delete_offsets(P0, group=group)) == [error]


def test_what_is_not_there_is_deleted_already_and_an_unknown_topic_is_an_error() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    answer = driver.delete_offsets(P1, ("gone", 0), unknown=frozenset({"gone"}))
    assert driver.offsets_deleted(answer) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert driver.all_offsets() == {P0: 1}


def test_it_is_answered_when_it_is_in_the_log_and_covers_a_commit_before_it() -> None:
    driver = GroupDriver()
    driver.commit({P1: 1})
    driver.hold_commits = True
    driver.commit({P0: 1})
    request = driver.delete_offsets(P0)
    driver.commit_next()
    assert driver.all_offsets() == {P0: 1, P1: 1}
    assert driver.is_parked(request)
    driver.commit_next()
    assert driver.offsets_deleted(request) == [0]
    assert driver.all_offsets() == {P1: 1}


def test_a_deletion_that_cannot_be_stored_changes_nothing() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.hold_commits = True
    request = driver.delete_offsets(P0)
    driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.offsets_deleted(request) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert driver.all_offsets() == {P0: 1}


def test_a_group_whose_deletion_could_not_be_stored_can_be_deleted_for_good() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.hold_commits = True
    driver.delete("orders")
    driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    driver.hold_commits = False
    assert driver.deleted(driver.delete("orders")) == [0]
    assert driver.failed_over().state == "none"


def test_a_group_whose_last_offset_is_deleted_and_that_never_had_members_is_empty() -> None:
    driver = GroupDriver()
    driver.commit({P0: 1})
    driver.delete_offsets(P0)
    for some in (driver, driver.failed_over()):
        assert some.state == "Empty"
        assert some.deleted(some.delete("orders")) == [0]
        assert some.failed_over().state == "none"
    # Left alone it goes with the next look for offsets that are too old.
    driver.commit({P0: 1})
    driver.delete_offsets(P0)
    driver.advance(600_000)
    assert driver.state == "none"
    assert driver.failed_over().state == "none"


def test_the_offsets_of_a_deleted_topic_go_in_every_group_also_those_on_their_way() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, protocols=(("range", subscription("t")),))
    driver.commit({P0: 1, U0: 2}, member, 1)
    driver.commit({P1: 5}, group="other")
    driver.hold_commits = True
    driver.commit({P1: 3}, member, 1)
    driver.delete_topics("t")
    while driver.uncommitted:
        driver.commit_next()
    for some in (driver, driver.failed_over()):
        assert some.all_offsets() == {U0: 2}
        assert some.all_offsets("other") == {}
    assert driver.state == "Stable"


def sizes(driver: GroupDriver) -> list[int]:
    """Bytes of the keys of each batch that is on its way."""
    return [
        sum(len(encode_group_record(record)[0]) for record in append.records)
        for append in driver.uncommitted
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["topic", "group", "offsets", "retention"])
@pytest.mark.parametrize("group", ["g", "g" * 30_000])
def test_very_many_tombstones_go_in_batches_that_a_log_takes(way: str, group: str) -> None:
    driver = GroupDriver(offsets_retention_minutes=1)
    count = 20_000 if group == "g" else 40
    for partition in range(count):
        driver.commit({("t", partition): 1}, group=group)
    driver.hold_commits = True
    request = None
    match way:
        case "topic":
            driver.delete_topics("t")
        case "group":
            request = driver.delete(group)
        case "offsets":
            request = driver.delete_offsets(*(("t", n) for n in range(count)), group=group)
        case "retention":
            driver.advance(600_000)
    assert len(driver.uncommitted) > 3
    assert max(sizes(driver)) < 300_000
    while driver.uncommitted:
        assert request is None or driver.is_parked(request)
        driver.commit_next()
    assert request is None or not driver.is_parked(request)
    for some in (driver, driver.failed_over()):
        assert some.all_offsets(group) == {}
        assert (group in some.coordinator.groups) == (way in ("topic", "offsets"))


def test_of_a_deletion_in_batches_only_groups_of_those_that_failed_are_there_again() -> None:
    """Here they expire together."""
    driver = GroupDriver(offsets_retention_minutes=1)
    names = [letter * 30_000 for letter in "abcdefghijkl"]
    for name in names:
        driver.commit({P0: 1}, group=name)
    driver.hold_commits = True
    driver.advance(600_000)
    while len(driver.uncommitted) > 1:
        driver.commit_next()
    (last,) = driver.uncommitted
    failed = {record.key.group for record in last.records}
    driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert failed
    assert failed != set(names)
    for some in (driver, driver.failed_over()):
        assert set(some.coordinator.groups) == failed


def test_a_group_of_pending_offsets_whose_deletion_failed_goes_with_them() -> None:
    """None of its records outlives the transaction, or the topic."""
    driver = GroupDriver()
    driver.hold_commits = True
    driver.commit_in_transaction({P0: 1}, group="orders", producer_id=7)
    driver.commit_next()
    driver.delete("orders")
    driver.fail_next(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    driver.hold_commits = False
    assert driver.state == "Empty"
    driver.delete_topics("t")
    for some in (driver, driver.failed_over()):
        assert some.state == "none"

"""What does the next coordinator know?"""

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver


def test_a_stable_generation_goes_on_without_a_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    after = driver.failed_over()
    assert after.state == "Stable"
    for member in (leader, follower):
        assert after.heartbeat(member, 1) == ErrorCode.NONE
        assert after.synced(after.sync(member, 1)).assignment == member.encode()
    assert after.describe() == driver.describe()


def test_everyone_gets_a_full_session_first() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, session_ms=10_000)
    driver.advance(9_999)
    after = driver.failed_over()
    after.advance(9_999)
    assert after.heartbeat(member, 1) == ErrorCode.NONE
    after.advance(10_000)
    assert after.state == "Empty"


def test_a_generation_that_never_got_its_assignment_is_as_if_it_had_not_been() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    requests = [driver.join(leader), driver.join(follower)]
    assert [driver.joined(request).generation_id for request in requests] == [2, 2]
    after = driver.failed_over()
    assert after.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION
    assert after.is_parked(after.join(leader))


def test_offsets_and_the_generation_of_an_empty_group_are_kept() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    driver.commit({("t", 0): 7}, member, 1)
    driver.leave((member, None))
    after = driver.failed_over()
    assert (after.state, after.all_offsets()) == ("Empty", {("t", 0): 7})
    (again,) = after.enter(1)
    assert after.heartbeat(again, 3) == ErrorCode.NONE


def test_a_group_that_has_become_too_large_rebalances() -> None:
    driver = GroupDriver()
    members = driver.stable(3)
    driver.config = type(driver.config)(group_max_size=2)
    after = driver.failed_over()
    assert after.state == "PreparingRebalance"
    answers = [after.join(member) for member in members]
    assert after.error(answers[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [after.error(answer) for answer in answers[:2]] == [ErrorCode.NONE] * 2

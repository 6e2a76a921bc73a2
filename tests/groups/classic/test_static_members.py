"""What does a group.instance.id change? (KIP-345, KIP-814)"""

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.join_group import JoinGroupResponse
from bradbury.tests.support.groups.group_driver import G, GroupDriver


def static_group(driver: GroupDriver, *instance_ids: str) -> list[str]:
    """A stable group of static members in generation 1; the first one leads."""
    requests = [driver.join(instance_id=instance_id) for instance_id in instance_ids]
    driver.advance(6_000)
    members = [driver.joined(request).member_id for request in requests]
    driver.stabilise(members, 1)
    assert driver.state == "Stable"
    return members


def test_a_static_member_is_admitted_without_the_extra_round_trip() -> None:
    driver = GroupDriver()
    request = driver.join(instance_id="worker-1", version=9)
    driver.advance(3_000)
    answer = driver.joined(request)
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id.startswith("worker-1-")
    assert answer.members[0].group_instance_id == "worker-1"


def test_a_restarted_static_follower_gets_its_place_back_without_a_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = static_group(driver, "one", "two")
    answer = driver.joined(driver.join(instance_id="two"))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader)
    assert answer.member_id != follower
    assert not answer.skip_assignment
    assert driver.state == "Stable"
    assert driver.synced(driver.sync(answer.member_id, 1)).assignment == follower.encode()


def test_the_former_member_id_is_fenced() -> None:
    driver = GroupDriver()
    _, old = static_group(driver, "one", "two")
    driver.join(instance_id="two")
    assert driver.heartbeat(old, 1, instance_id="two") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.error(driver.sync(old, 1, instance_id="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert driver.error(driver.join(old, instance_id="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert driver.committed(driver.commit({("t", 0): 1}, old, 1, instance_id="two")) == [
        ErrorCode.FENCED_INSTANCE_ID
    ]
    answers = driver.leave((old, "two")).members
    assert answers[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    driver = GroupDriver()
    (member,) = static_group(driver, "one")
    assert driver.heartbeat(member, 1, instance_id="two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.error(driver.join(member, instance_id="two")) == ErrorCode.UNKNOWN_MEMBER_ID


def restarted_leader(version: int) -> tuple[JoinGroupResponse, str]:
    driver = GroupDriver()
    leader, _ = static_group(driver, "one", "two")
    answer = driver.joined(driver.join(instance_id="one", version=version))
    assert driver.state == "Stable"
    assert driver.coordinator.groups[G].metadata.members.leader_id == answer.member_id
    return answer, leader


def test_a_restarted_leader_is_answered_to_keep_the_assignment() -> None:
    answer, _ = restarted_leader(version=9)
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2


def test_a_restarted_leader_with_an_old_version_must_believe_that_it_follows() -> None:
    answer, old_leader = restarted_leader(version=8)
    assert not answer.skip_assignment
    assert answer.leader == old_leader != answer.member_id
    assert answer.members == []


def test_a_restarted_static_member_with_another_protocol_makes_all_rebalance() -> None:
    driver = GroupDriver()
    both = (("range", b""), ("sticky", b""))
    requests = [driver.join(instance_id=name, protocols=both) for name in ("one", "two")]
    driver.advance(6_000)
    driver.stabilise([driver.joined(request).member_id for request in requests], 1)
    parked = driver.join(instance_id="two", protocols=(("sticky", b""),))
    assert driver.is_parked(parked)
    assert driver.state == "PreparingRebalance"


def test_the_new_member_id_is_answered_only_when_it_is_committed() -> None:
    driver = GroupDriver()
    static_group(driver, "one", "two")
    driver.hold_commits = True
    request = driver.join(instance_id="two")
    assert driver.is_parked(request)
    driver.commit_next()
    answer = driver.joined(request)
    after = driver.failed_over()
    assert after.heartbeat(answer.member_id, 1, instance_id="two") == ErrorCode.NONE


def test_when_the_new_member_id_cannot_be_stored_the_old_one_stays() -> None:
    driver = GroupDriver()
    _, old = static_group(driver, "one", "two")
    driver.hold_commits = True
    request = driver.join(instance_id="two", protocols=(("range", b"new"),))
    driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.error(request) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(old, 1, instance_id="two") == ErrorCode.NONE
    assert [m.member_metadata for m in driver.describe().members] == [b"topics", b"topics"]
    driver.advance(9_999)
    assert driver.heartbeat(old, 1, instance_id="two") == ErrorCode.NONE


def test_a_rebalance_that_overtakes_the_restart_takes_the_member_along() -> None:
    driver = GroupDriver()
    leader, _ = static_group(driver, "one", "two")
    driver.hold_commits = True
    request = driver.join(instance_id="two")
    rejoined = driver.join(leader, instance_id="one")
    assert driver.joined(request).generation_id == driver.joined(rejoined).generation_id == 2
    driver.commit_next()
    assert driver.state == "CompletingRebalance"


def test_a_restart_while_the_group_waits_for_syncs_makes_all_rebalance() -> None:
    driver = GroupDriver()
    requests = [driver.join(instance_id=name) for name in ("one", "two")]
    driver.advance(6_000)
    _, follower = (driver.joined(request).member_id for request in requests)
    waiting = driver.sync(follower, 1)
    restarted = driver.join(instance_id="two")
    assert driver.error(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert driver.is_parked(restarted)
    assert driver.state == "PreparingRebalance"


def test_what_the_former_one_waits_for_is_fenced() -> None:
    driver = GroupDriver()
    leader, follower = static_group(driver, "one", "two")
    parked = driver.join(leader, instance_id="one")
    driver.join(instance_id="one")
    assert driver.error(parked) == ErrorCode.FENCED_INSTANCE_ID
    rejoined = driver.join(follower, instance_id="two")
    assert driver.error(rejoined) == ErrorCode.NONE


def test_a_static_member_that_does_not_rejoin_stays_in_until_its_session_ends() -> None:
    driver = GroupDriver()
    options = {"session_ms": 100_000, "rebalance_ms": 20_000}
    requests = [driver.join(instance_id=name, **options) for name in ("one", "two")]
    driver.advance(6_000)
    leader, silent = (driver.joined(request).member_id for request in requests)
    driver.stabilise([leader, silent], 1)
    rejoined = driver.join(leader, instance_id="one", **options)
    driver.advance(20_000)
    assert [member.member_id for member in driver.joined(rejoined).members] == [leader, silent]


def test_while_only_silent_static_members_are_left_the_rebalance_goes_on() -> None:
    driver = GroupDriver()
    options = {"session_ms": 100_000, "rebalance_ms": 20_000}
    dynamic = driver.join(version=3, session_ms=6_000, rebalance_ms=20_000)
    request = driver.join(instance_id="one", **options)
    driver.advance(6_000)
    leader, static = driver.joined(dynamic).member_id, driver.joined(request).member_id
    driver.stabilise([leader, static], 1)
    driver.advance(6_000)
    assert driver.state == "PreparingRebalance"
    driver.advance(50_000)
    assert driver.state == "PreparingRebalance"
    driver.join(static, instance_id="one", **options)
    assert driver.state == "CompletingRebalance"


def test_a_static_member_expires_like_any_other() -> None:
    driver = GroupDriver()
    static_group(driver, "one")
    driver.advance(10_000)
    assert driver.state == "Empty"


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    driver = GroupDriver()
    leader, follower = static_group(driver, "one", "two")
    answers = driver.leave(("", "two"), ("", "three")).members
    assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS

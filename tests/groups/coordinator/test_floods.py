"""Is there anything a hostile or broken client can do to a coordinator but wait for its own timeouts?

Memory stays bounded, everyone is answered, and afterwards the coordinator is as before.
"""

import pytest

from bradbury.groups.group_counters import MemberMemory
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver

FLOOD = 10_000


def test_a_client_that_joins_ten_thousand_times_and_never_uses_its_ids() -> None:
    driver = GroupDriver(bradbury_group_max_pending_members=100)
    answers = [driver.error(driver.join()) for _ in range(FLOOD)]
    assert answers.count(ErrorCode.MEMBER_ID_REQUIRED) == 100
    assert answers.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == FLOOD - 100
    assert driver.coordinator.memory.used <= 100 * MemberMemory.PENDING_BYTES
    driver.advance(10_000)
    assert (driver.state, driver.coordinator.memory.used) == ("none", 0)
    assert len(driver.timers) == 1


def test_a_client_that_joins_ten_thousand_times_and_never_syncs() -> None:
    """Before version 4 of JoinGroup a member needs no second round trip."""
    driver = GroupDriver()
    requests = [driver.join(version=3) for _ in range(FLOOD)]
    driver.advance(60_000)
    assert {driver.error(request) for request in requests} == {ErrorCode.NONE}
    driver.advance(120_000)
    assert (driver.state, driver.coordinator.memory.used) == ("Empty", 0)
    assert len(driver.timers) == 1
    (member,) = driver.enter(1)
    assert driver.heartbeat(member, driver.coordinator.groups["orders"].metadata.generation) == 0


def test_ten_thousand_groups_of_one_member_with_much_metadata() -> None:
    """Ten thousand megabytes, if they were taken."""
    limit = 20_000_000
    driver = GroupDriver(bradbury_group_members_max_bytes=limit)
    big = (("range", bytes(1_000_000)),)
    answers: list[int] = []
    for number in range(FLOOD):
        answers.append(driver.join(version=3, protocols=big, group=f"group-{number}"))
        assert driver.coordinator.memory.used <= limit
    refused = [request for request in answers if not driver.is_parked(request)]
    assert len(answers) - len(refused) == 19
    assert {driver.error(request) for request in refused} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert len(driver.coordinator.groups) == 19
    driver.advance(600_000)
    assert driver.coordinator.memory.used == 0
    assert driver.is_parked(driver.join(version=3, protocols=big))


def test_a_member_that_comes_back_with_ever_more_metadata() -> None:
    driver = GroupDriver(bradbury_group_members_max_bytes=10_000)
    (member,) = driver.stable(1)
    more = driver.join(member, protocols=(("range", bytes(20_000)),))
    assert driver.error(more) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(member, 1) == ErrorCode.NONE


def test_names_of_protocols_count_though_they_are_short() -> None:
    driver = GroupDriver(bradbury_member_metadata_max_bytes=100_000)
    names = tuple((f"{number}", b"") for number in range(1_000))
    assert driver.error(driver.join(version=3, protocols=names)) == ErrorCode.INVALID_REQUEST


def test_an_instance_that_starts_ten_thousand_times_is_one_member() -> None:
    driver = GroupDriver()
    requests = [driver.join(instance_id="one") for _ in range(1_000)]
    driver.advance(6_000)
    assert [driver.error(request) for request in requests[:-1]] == (
        [ErrorCode.FENCED_INSTANCE_ID] * 999
    )
    assert len(driver.describe().members) == 1
    driver.sync(driver.joined(requests[-1]).member_id, 1)
    requests = [driver.join(instance_id="one") for _ in range(1_000)]
    assert {driver.error(request) for request in requests} == {ErrorCode.NONE}
    assert len(driver.describe().members) == 1


def test_a_member_that_asked_for_weeks_to_rejoin_and_is_gone_is_out_after_its_session() -> None:
    driver = GroupDriver()
    (gone,) = driver.stable(1, rebalance_ms=2**31 - 1)
    newcomer = driver.joined(driver.join()).member_id
    waiting = driver.join(newcomer)
    driver.advance(10_001)
    assert driver.joined(waiting).generation_id == 2
    assert driver.heartbeat(gone, 2) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0])
def test_a_member_that_gives_itself_no_time_to_sync_is_out_and_the_group_goes_on(
    rebalance_ms: int,
) -> None:
    driver = GroupDriver()
    hasty = driver.join(version=3, rebalance_ms=rebalance_ms)
    driver.advance(6_000)
    assert driver.error(hasty) == ErrorCode.NONE
    assert driver.state == "Empty"
    (member,) = driver.enter(1)
    assert driver.heartbeat(member, driver.coordinator.groups["orders"].metadata.generation) == 0


def test_a_member_that_lives_and_never_rejoins_holds_a_newcomer_for_five_minutes_at_most() -> None:
    driver = GroupDriver()
    (stubborn,) = driver.stable(1, rebalance_ms=2**31 - 1)
    newcomer = driver.joined(driver.join()).member_id
    waiting = driver.join(newcomer)
    for _ in range(60):
        assert driver.is_parked(waiting)
        driver.advance(5_000)
        driver.heartbeat(stubborn, 1)
    assert driver.error(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_of_an_offset_that_no_record_can_hold_is_refused_whatever_the_bound() -> None:
    driver = GroupDriver(offset_metadata_max_bytes=100_000)
    long = "ü" * 20_000
    assert driver.committed(driver.commit({("t", 0): 1}, metadata=long)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert driver.committed(driver.commit({("t", 0): 1}, metadata=long[:16_000])) == [0]
    assert driver.failed_over().fetch("t", 0).metadata == long[:16_000]

"""What happens to a JoinGroup?"""

import pytest

from bradbury.groups.coordinator.coordinator import list_groups
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import G, GroupDriver

TWO = (("sticky", b"s"), ("range", b"r"))


def test_a_new_dynamic_member_gets_its_id_first_and_is_not_in_yet() -> None:
    driver = GroupDriver()
    answer = driver.joined(driver.join(client_id="app", version=4))
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-")
    assert driver.describe().members == []


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_clients_before_member_ids_were_required_are_admitted_at_once(version: int) -> None:
    driver = GroupDriver()
    request = driver.join(version=version)
    driver.advance(3_000)
    assert driver.error(request) == ErrorCode.NONE
    assert driver.joined(request).member_id.startswith("client-")


def test_version_0_has_no_rebalance_timeout_so_its_session_timeout_is_used() -> None:
    driver = GroupDriver()
    driver.join(version=0, session_ms=20_000, rebalance_ms=-1)
    (member,) = driver.coordinator.groups[G].metadata.members
    assert member.rebalance_timeout_ms == 20_000


def test_the_first_generation_is_1_and_its_first_member_leads() -> None:
    driver = GroupDriver()
    first, second = (driver.joined(driver.join()).member_id for _ in range(2))
    requests = [driver.join(first), driver.join(second)]
    driver.advance(6_000)
    leader, follower = (driver.joined(request) for request in requests)
    assert leader.generation_id == follower.generation_id == 1
    assert leader.leader == follower.leader == leader.member_id == first
    assert [member.member_id for member in leader.members] == [first, second]
    assert [member.metadata for member in leader.members] == [b"topics", b"topics"]
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_the_first_join_waits_for_others_for_the_initial_delay() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=3_000)
    request = driver.join(version=3)
    driver.advance(2_999)
    assert driver.is_parked(request)
    driver.advance(1)
    assert driver.error(request) == ErrorCode.NONE


def test_each_arrival_during_the_delay_prolongs_it_by_one_delay() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join(version=3)
    driver.advance(2_000)
    driver.join(version=3)
    driver.advance(3_999)
    assert driver.is_parked(first)
    driver.advance(1)
    assert len(driver.joined(first).members) == 2


def test_the_delay_is_never_longer_than_the_rebalance_timeout() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=3_000)
    first = driver.join(version=3, rebalance_ms=7_000, session_ms=6_000)
    for _ in range(7):
        driver.advance(999)
        driver.join(version=3, rebalance_ms=7_000, session_ms=6_000)
    assert driver.is_parked(first)
    driver.advance(7)
    assert driver.error(first) == ErrorCode.NONE


def test_no_delay_when_it_is_configured_away() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=0)
    request = driver.join(version=3)
    driver.advance(0)
    assert driver.error(request) == ErrorCode.NONE


def test_a_newcomer_makes_a_stable_group_rebalance_until_all_have_rejoined() -> None:
    driver = GroupDriver()
    old = driver.stable(2)
    newcomer = driver.join(driver.joined(driver.join()).member_id)
    assert driver.state == "PreparingRebalance"
    assert driver.heartbeat(old[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = [driver.join(member_id) for member_id in old[:1]]
    assert driver.is_parked(newcomer)
    rejoined += [driver.join(member_id) for member_id in old[1:]]
    assert {driver.joined(request).generation_id for request in [newcomer, *rejoined]} == {2}


def test_an_id_that_was_given_out_holds_the_rebalance_open_until_it_is_used() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1)
    newcomer = driver.joined(driver.join()).member_id
    rejoined = driver.join(member)
    assert driver.is_parked(rejoined)
    driver.join(newcomer)
    assert len(driver.joined(rejoined).members) == 2


def test_an_id_that_was_given_out_expires_with_the_session_timeout() -> None:
    driver = GroupDriver()
    (member,) = driver.stable(1, session_ms=30_000)
    newcomer = driver.joined(driver.join(session_ms=6_000)).member_id
    rejoined = driver.join(member, session_ms=30_000)
    driver.advance(6_000)
    assert driver.error(rejoined) == ErrorCode.NONE
    assert driver.error(driver.join(newcomer)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_in_the_rebalance_timeout_are_dropped() -> None:
    driver = GroupDriver()
    stays, goes = driver.stable(2, rebalance_ms=20_000, session_ms=60_000)
    request = driver.join(stays, rebalance_ms=20_000, session_ms=60_000)
    driver.advance(19_999)
    assert driver.is_parked(request)
    driver.advance(1)
    assert [member.member_id for member in driver.joined(request).members] == [stays]
    assert driver.heartbeat(goes, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_does_not_rejoin() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2, session_ms=120_000)
    request = driver.join(follower, protocols=(("range", b"other"),), session_ms=120_000)
    driver.advance(60_000)
    assert driver.joined(request).leader == follower != leader


def test_a_newcomer_that_waits_too_long_is_answered_to_join_again() -> None:
    driver = GroupDriver(group_max_session_timeout_ms=30 * 60_000)
    driver.stable(1, session_ms=20 * 60_000, rebalance_ms=20 * 60_000)
    newcomer = driver.join(driver.joined(driver.join()).member_id)
    driver.advance(5 * 60_000 - 1)
    assert driver.is_parked(newcomer)
    driver.advance(1)
    assert driver.error(newcomer) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stable_leader_that_rejoins_always_begins_a_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    assert driver.is_parked(driver.join(leader))
    assert driver.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_stable_follower_with_the_same_metadata_gets_the_current_generation() -> None:
    driver = GroupDriver()
    leader, follower = driver.stable(2)
    answer = driver.joined(driver.join(follower))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader)
    assert answer.members == []
    assert driver.state == "Stable"


def test_a_stable_follower_with_other_metadata_begins_a_rebalance() -> None:
    driver = GroupDriver()
    _, follower = driver.stable(2)
    assert driver.is_parked(driver.join(follower, protocols=(("range", b"more topics"),)))
    assert driver.state == "PreparingRebalance"


def test_a_member_that_missed_the_answer_gets_it_again_while_the_group_waits_for_syncs() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    assert len(driver.joined(driver.join(leader)).members) == 2
    assert driver.joined(driver.join(follower)).members == []
    assert driver.state == "CompletingRebalance"


def test_other_metadata_while_the_group_waits_for_syncs_begins_a_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = driver.enter(2)
    parked = driver.sync(follower, 1)
    driver.join(leader, protocols=(("range", b"more topics"),))
    assert driver.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_asks_again_has_its_former_request_answered() -> None:
    """A connection answers in order: what is never answered blocks all that follows."""
    driver = GroupDriver()
    leader, _ = driver.stable(2)
    older, newer = driver.join(leader), driver.join(leader)
    assert driver.error(older) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.is_parked(newer)


def test_each_member_votes_for_its_first_protocol_that_all_know() -> None:
    driver = GroupDriver()
    requests = [
        driver.join(version=3, protocols=(("new", b""), ("sticky", b""), ("range", b""))),
        driver.join(version=3, protocols=(("range", b""), ("sticky", b""))),
        driver.join(version=3, protocols=(("sticky", b""), ("range", b""))),
    ]
    driver.advance(6_000)
    assert {driver.joined(request).protocol_name for request in requests} == {"sticky"}


def test_the_leader_sees_the_metadata_of_the_chosen_protocol() -> None:
    driver = GroupDriver()
    request = driver.join(version=3, protocols=TWO)
    driver.join(version=3, protocols=(("range", b"R"),))
    driver.advance(6_000)
    assert [member.metadata for member in driver.joined(request).members] == [b"r", b"R"]


def test_a_member_without_a_protocol_that_all_know_is_refused() -> None:
    driver = GroupDriver()
    driver.stable(1)
    refused = driver.join(protocols=(("sticky", b""),))
    assert driver.error(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state == "Stable"


def test_a_member_of_another_protocol_type_is_refused() -> None:
    driver = GroupDriver()
    driver.stable(1)
    refused = driver.join(protocol_type="connect")
    assert driver.error(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("missing", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_bring_a_type_and_a_protocol(missing: dict[str, str]) -> None:
    driver = GroupDriver()
    assert driver.error(driver.join(**missing)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state == "none"


def test_an_empty_group_id_is_refused() -> None:
    driver = GroupDriver()
    assert driver.error(driver.join(group="")) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    driver = GroupDriver()
    refused = driver.join(session_ms=session_ms)
    assert driver.error(refused) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_member_id_of_a_group_that_nobody_knows_is_unknown() -> None:
    driver = GroupDriver()
    assert driver.error(driver.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.state == "none"


def test_a_member_id_that_the_group_does_not_know_is_unknown() -> None:
    driver = GroupDriver()
    driver.stable(1)
    assert driver.error(driver.join("ghost")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    driver = GroupDriver(group_max_size=2)
    leader, follower = driver.stable(2)
    refused = driver.joined(driver.join())
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    requests = [driver.join(leader), driver.join(follower)]
    assert [driver.joined(request).generation_id for request in requests] == [2, 2]


def test_of_too_many_in_a_rebalance_the_first_ones_stay() -> None:
    driver = GroupDriver(group_max_size=2)
    ids = [driver.joined(driver.join()).member_id for _ in range(3)]
    requests = [driver.join(member_id) for member_id in ids]
    driver.advance(60_000)
    assert [driver.error(request) for request in requests] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_a_member_with_a_place_in_a_full_rebalance_may_ask_again() -> None:
    driver = GroupDriver(group_max_size=2)
    ids = [driver.joined(driver.join()).member_id for _ in range(2)]
    first, other = [driver.join(member_id) for member_id in ids]
    again = driver.join(ids[0])
    assert driver.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(60_000)
    assert [driver.error(request) for request in (again, other)] == [ErrorCode.NONE] * 2


def test_ids_are_not_given_out_without_bound() -> None:
    driver = GroupDriver(bradbury_group_max_pending_members=3)
    answers = [driver.error(driver.join()) for _ in range(4)]
    assert answers == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_metadata_beyond_the_bound_is_refused() -> None:
    driver = GroupDriver(bradbury_member_metadata_max_bytes=100)
    refused = driver.join(protocols=(("range", bytes(96)),))
    assert driver.error(refused) == ErrorCode.INVALID_REQUEST
    assert driver.state == "none"


def test_texts_that_no_record_can_hold_are_refused() -> None:
    driver = GroupDriver()
    long = "x" * 2**15
    assert driver.error(driver.join(group=long)) == ErrorCode.INVALID_GROUP_ID
    assert driver.error(driver.join(instance_id=long)) == ErrorCode.INVALID_REQUEST
    assert driver.error(driver.join(protocols=((long, b""),))) == ErrorCode.INVALID_REQUEST


def test_a_group_that_nobody_entered_leaves_nothing_behind() -> None:
    driver = GroupDriver()
    for _ in range(10):
        driver.join()
    driver.advance(10_000)
    assert driver.state == "none"
    assert list_groups(driver.coordinator.groups) == []
    assert driver.log == []

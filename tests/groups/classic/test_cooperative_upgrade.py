"""How does a group change its assignor while it works, and what are two quick rebalances? (KIP-429)

The coordinator only votes; but the votes must come out so that a rolling upgrade never has members
that follow different protocols. The steps are those of KIP-429: first every member offers both
assignors, then every member offers the new one alone.
"""

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import GroupDriver, subscription

T = subscription("t")
OLD = (("range", T),)
BOTH = (("cooperative-sticky", T), ("range", T))
NEW = (("cooperative-sticky", T),)


def restart(driver: GroupDriver, old: str, others: list[str], protocols, offers) -> str:
    """A dynamic member leaves and comes back with other protocols; `offers` are the others'."""
    driver.leave((old, None))
    requests = [driver.join(member, protocols=offers[member]) for member in others]
    first = driver.join(protocols=protocols)
    member = driver.joined(first).member_id
    requests.append(driver.join(member, protocols=protocols))
    if any(driver.is_parked(request) for request in requests):
        again = [
            driver.join(other, protocols=offers[other])
            for other, request in zip(others, requests[:-1], strict=True)
            if not driver.is_parked(request)
        ]
        requests = [*again, requests[-1]]
    assert {driver.error(request) for request in requests} == {ErrorCode.NONE}
    generations = {driver.joined(request).generation_id for request in requests}
    assert len(generations) == 1
    assert len({driver.joined(request).protocol_name for request in requests}) == 1
    leader = driver.joined(requests[-1]).leader
    shares = {name: name.encode() for name in (*others, member)}
    for name in (leader, *sorted({*others, member} - {leader})):
        driver.sync(name, generations.copy().pop(), shares if name == leader else None)
    return member


def test_a_rolling_upgrade_changes_the_assignor_once_the_last_old_member_is_gone() -> None:
    driver = GroupDriver()
    members = driver.stable(3, protocols=OLD)
    offers = dict.fromkeys(members, OLD)
    seen = []
    for step in (BOTH, NEW):
        for index, old in enumerate(members):
            others = [member for member in members if member != old]
            members[index] = restart(driver, old, others, step, offers)
            offers[members[index]] = step
            assert driver.state == "Stable"
            seen.append(driver.describe().protocol_data)
    assert seen == ["range", "range", "cooperative-sticky"] + ["cooperative-sticky"] * 3


def test_a_member_that_skips_the_first_step_is_refused_while_old_ones_are_in() -> None:
    driver = GroupDriver()
    driver.stable(2, protocols=OLD)
    refused = driver.join(protocols=NEW)
    assert driver.error(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state == "Stable"


def test_members_of_both_kinds_follow_the_protocol_that_all_of_them_know() -> None:
    driver = GroupDriver()
    requests = []
    for protocols in (BOTH, OLD, BOTH):
        member = driver.joined(driver.join(protocols=protocols)).member_id
        requests.append(driver.join(member, protocols=protocols))
    driver.advance(6_000)
    assert {driver.joined(request).protocol_name for request in requests} == {"range"}


def test_two_quick_rebalances_hand_over_what_the_first_one_revoked() -> None:
    """The members rejoin at once after the first one, with what they still own."""
    driver = GroupDriver()
    (first,) = driver.stable(1, protocols=NEW)
    newcomer = driver.joined(driver.join(protocols=NEW)).member_id
    waiting = driver.join(newcomer, protocols=NEW)
    assert driver.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(first, protocols=NEW)
    assert driver.joined(waiting).generation_id == 2
    driver.sync(first, 2, {first: b"0", newcomer: b""})
    driver.sync(newcomer, 2)
    less = (("cooperative-sticky", subscription("t") + b"owns 0"),)
    again = [driver.join(first, protocols=less), driver.join(newcomer, protocols=NEW)]
    assert [driver.joined(request).generation_id for request in again] == [3, 3]
    assert driver.joined(again[0]).members[0].metadata == less[0][1]
    driver.sync(first, 3, {first: b"0", newcomer: b"1"})
    assert driver.synced(driver.sync(newcomer, 3)).assignment == b"1"


def test_a_follower_whose_owned_partitions_changed_makes_all_rebalance_and_a_repeated_one_not() -> (
    None
):
    driver = GroupDriver()
    _, follower = driver.stable(2, protocols=NEW)
    same = driver.join(follower, protocols=NEW)
    assert driver.joined(same).generation_id == 1
    less = driver.join(follower, protocols=(("cooperative-sticky", T + b"owns nothing now"),))
    assert driver.is_parked(less)
    assert driver.state == "PreparingRebalance"

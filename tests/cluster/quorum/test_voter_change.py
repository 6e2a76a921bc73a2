"""Who may be added to the voters of the metadata, and who removed?"""

from dataclasses import replace

import pytest

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    FenceNodeRecord,
    MetadataRecord,
    RegisterNodeRecord,
)
from bradbury.cluster.quorum.voter_change import VoterChange, successor
from bradbury.protocol.errors import (
    DuplicateVoter,
    InvalidRequest,
    RequestTimedOut,
    VoterNotFound,
)


def image(*voters: str, fenced: int = 0) -> MetadataImage:
    """Brokers 1 to 4 with the directories a to d."""
    records: list[MetadataRecord] = [ClusterRecord(cluster_id="c", voters=voters)]
    records += [
        RegisterNodeRecord(
            node_id=node_id,
            directory_id=f"data-{name}",
            incarnation="i",
            roles=("broker",),
            host="h",
            port=1,
            rack=None,
            epoch=node_id,
            metadata_directory_id=name,
        )
        for node_id, name in enumerate("abcd", 1)
    ]
    if fenced:
        records.append(FenceNodeRecord(node_id=fenced, epoch=fenced, fenced=True))
    return MetadataImage().apply(records, offset=50)


def add(node_id: int, directory_id: str = "", *, is_repeated: bool = False) -> VoterChange:
    return VoterChange(
        is_addition=True, node_id=node_id, directory_id=directory_id, is_repeated=is_repeated
    )


def remove(node_id: int, directory_id: str = "", *, is_repeated: bool = False) -> VoterChange:
    return VoterChange(
        is_addition=False, node_id=node_id, directory_id=directory_id, is_repeated=is_repeated
    )


ALL = dict.fromkeys("abcd", 50)


def test_one_that_has_everything_is_added() -> None:
    assert add(4).voters(image("a", "b", "c"), ALL, 50) == ("a", "b", "c", "d")
    assert add(4, "d").voters(image("a", "b", "c"), ALL, 50) == ("a", "b", "c", "d")


def test_one_that_has_not_everything_does_not_count_yet() -> None:
    with pytest.raises(RequestTimedOut):
        add(4).voters(image("a", "b", "c"), {**ALL, "d": 49}, 50)
    with pytest.raises(RequestTimedOut):
        add(4).voters(image("a", "b", "c"), {}, 50)


def test_only_a_broker_in_service_with_the_directory_that_it_has_is_added() -> None:
    now = image("a", "b", "c", fenced=4)
    for request in (add(4), add(9), add(3, "other")):
        with pytest.raises(InvalidRequest):
            request.directory(now)


def test_one_that_votes_already_is_not_added_but_a_repeated_request_has_been_carried_out() -> None:
    now = image("a", "b", "c")
    with pytest.raises(DuplicateVoter):
        add(3).directory(now)
    assert add(3, is_repeated=True).voters(now, ALL, 50) == now.voters


def test_one_is_removed_by_its_broker_or_its_directory() -> None:
    now = image("a", "b", "c")
    assert remove(2).voters(now, ALL, 50) == ("a", "c")
    assert remove(2, "b").voters(now, ALL, 50) == ("a", "c")


def test_a_directory_that_is_nobodys_any_more_is_removed_by_its_name() -> None:
    now = image("a", "b", "lost")
    assert remove(-1, "lost").voters(now, ALL, 50) == ("a", "b")
    assert remove(3, "lost").voters(now, ALL, 50) == ("a", "b")


def test_one_that_does_not_vote_is_not_removed() -> None:
    now = image("a", "b", "c")
    for request in (remove(4), remove(9), remove(1, "b"), remove(-1, ""), remove(-1, "x")):
        with pytest.raises(VoterNotFound):
            request.directory(now)
    assert remove(4, is_repeated=True).voters(now, ALL, 50) == now.voters


def test_the_last_one_stays() -> None:
    with pytest.raises(InvalidRequest, match="the only voter"):
        remove(1).voters(image("a"), ALL, 50)


def test_nobody_is_removed_if_the_others_could_commit_nothing_then() -> None:
    now = image("a", "b", "c")
    has = {**ALL, "c": 20}
    assert remove(3).voters(now, has, 50) == ("a", "b")
    with pytest.raises(InvalidRequest, match="only 1 of the 2 voters that stay"):
        remove(2).voters(now, has, 50)


def test_a_machine_that_goes_for_good_has_its_vote_passed_on_if_somebody_can_take_it() -> None:
    assert successor(image("a", "b", "c"), "1") == (4, 1)
    assert successor(image("a", "b", "c"), "4") is None, "it does not vote"
    assert successor(image("a", "b", "c", fenced=4), "1") is None, "nobody in service is left"
    assert successor(image("a", "b", "c", "d"), "1") is None
    drained = replace(image("a", "b"), draining=frozenset({"3"}))
    assert successor(drained, "1") == (4, 1)

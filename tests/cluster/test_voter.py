"""Which controller may write to a voter's log?"""

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.voter import Promise, on_append, on_prepare
from bradbury.protocol.errors import FencedLeaderEpoch, InvalidRequest


def test_the_first_to_ask_gets_the_promise_and_may_ask_again() -> None:
    mine = Promise(epoch=0, owner="a")
    assert on_prepare(Promise(), mine) == mine
    assert on_prepare(mine, mine) == mine


def test_a_newer_epoch_takes_over_and_the_older_is_refused_for_ever() -> None:
    older, newer = Promise(epoch=3, owner="a"), Promise(epoch=4, owner="b")
    assert on_prepare(older, newer) == newer
    with pytest.raises(FencedLeaderEpoch):
        on_prepare(newer, older)
    with pytest.raises(FencedLeaderEpoch):
        on_append(newer, older, log_end_offset=5, previous_end_offset=5)


def test_two_owners_of_one_epoch_are_one_too_many() -> None:
    with pytest.raises(FencedLeaderEpoch):
        on_prepare(Promise(epoch=3, owner="a"), Promise(epoch=3, owner="b"))


def test_an_append_must_join_on() -> None:
    mine = Promise(epoch=1, owner="a")
    assert on_append(mine, mine, log_end_offset=7, previous_end_offset=7) == mine
    with pytest.raises(InvalidRequest):
        on_append(mine, mine, log_end_offset=7, previous_end_offset=6)


@given(
    asks=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from("abc")), max_size=30)
)
def test_a_promise_never_falls_and_an_epoch_has_one_owner(asks) -> None:
    promise = Promise()
    owners: dict[int, str] = {}
    for is_append, epoch, owner in asks:
        asked = Promise(epoch=epoch, owner=owner)
        try:
            if is_append:
                accepted = on_append(promise, asked, log_end_offset=0, previous_end_offset=0)
            else:
                accepted = on_prepare(promise, asked)
        except FencedLeaderEpoch:
            continue
        assert accepted.epoch >= promise.epoch
        assert owners.setdefault(accepted.epoch, accepted.owner) == accepted.owner
        promise = accepted

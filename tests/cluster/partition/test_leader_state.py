"""How far is a partition committed, and who is in sync, as its leader sees it?"""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bradbury.cluster.partition.leader_state import (
    FollowerFetch,
    FollowerFetchResult,
    LeaderState,
)
from bradbury.protocol.errors import NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch

LAG_MS = 10_000


def leader(*, isr: tuple[int, ...] = (1, 2, 3), minimum: int = 1, end: int = 0) -> LeaderState:
    state = LeaderState(5, 7, 0, node_id=1, replicas=(1, 2, 3), isr=isr, start_offset=end, now_ms=0)
    state.min_insync_replicas = minimum
    return state


def fetch(state: LeaderState, node: int, offset: int, *, end: int, now_ms: int = 0) -> bool:
    return state.on_fetch(node, offset, broker_epoch=9, leader_end=end, now_ms=now_ms)


def propose(state: LeaderState, now_ms: int = 0) -> tuple[int, ...] | None:
    asked = state.propose(
        now_ms=now_ms, lag_time_max_ms=LAG_MS, is_eligible=lambda node, epoch: True
    )
    return None if asked is None else tuple(node for node, _ in asked)


def test_a_replica_alone_commits_what_it_appends() -> None:
    state = LeaderState(0, 0, 3)
    assert state.isr_size == 1
    assert state.on_local_append(5)
    assert not state.on_local_append(5)
    assert state.high_watermark == 5


def test_a_record_is_committed_when_all_in_sync_have_it() -> None:
    state = leader()
    assert not state.on_local_append(10)
    assert not fetch(state, 2, 10, end=10)
    assert fetch(state, 3, 4, end=10)
    assert state.high_watermark == 4
    assert fetch(state, 3, 10, end=10)
    assert state.high_watermark == 10


def test_a_replica_out_of_sync_delays_no_commit() -> None:
    state = leader(isr=(1, 2))
    state.on_local_append(10)
    assert fetch(state, 2, 10, end=10)
    assert not fetch(state, 3, 2, end=10)
    assert state.high_watermark == 10


@dataclass
class Log:
    """`epochs`: (epoch, where it ended)."""

    log_end_offset: int
    log_start_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return max((each for each in self.epochs if each[0] <= leader_epoch), default=(-1, -1))


def test_a_followers_fetch_counts_when_its_log_agrees() -> None:
    state = leader(isr=(1, 2), end=4)
    log = Log(10, epochs=[(4, 4), (5, 10)])
    state.on_local_append(10)
    assert state.on_follower_fetch(
        FollowerFetch(2, 9, 10, 5), log, now_ms=0
    ) == FollowerFetchResult(has_moved=True)
    assert (
        state.on_follower_fetch(FollowerFetch(3, 9, 7, 5), log, now_ms=0) == FollowerFetchResult()
    )
    assert state.on_follower_fetch(
        FollowerFetch(3, 9, 10, 5), log, now_ms=0
    ) == FollowerFetchResult(may_join=True)


def test_a_follower_whose_log_diverges_is_answered_where_and_nothing_is_recorded() -> None:
    state = leader(isr=(1, 2), end=4)
    log = Log(10, epochs=[(3, 4), (5, 10)])
    state.on_local_append(10)
    too_far = state.on_follower_fetch(FollowerFetch(2, 9, 8, 3), log, now_ms=0)
    assert too_far == FollowerFetchResult(diverging=(3, 4))
    unknown_epoch = state.on_follower_fetch(FollowerFetch(2, 9, 4, 4), log, now_ms=0)
    assert unknown_epoch == FollowerFetchResult(diverging=(3, 4))
    assert state.followers[2].log_end_offset == -1
    assert state.high_watermark == 0


def test_a_log_may_diverge_from_its_first_epoch_on() -> None:
    """Which is 0, as that of every new partition."""
    state = leader(isr=(1, 2), end=4)
    log = Log(10, epochs=[(0, 4), (5, 10)])
    too_far = state.on_follower_fetch(FollowerFetch(2, 9, 8, 0), log, now_ms=0)
    assert too_far == FollowerFetchResult(diverging=(0, 4))


def test_a_followers_fetch_outside_of_the_log_does_not_count() -> None:
    state = leader(isr=(1, 2))
    log = Log(10, log_start_offset=5, epochs=[(4, 7), (5, 10)])
    for fetch_of in (
        FollowerFetch(2, 9, 11, -1),
        FollowerFetch(2, 9, 4, -1),
        FollowerFetch(2, 9, 5, 3),  # of its last epoch nothing is left
    ):
        with pytest.raises(OffsetOutOfRange):
            state.on_follower_fetch(fetch_of, log, now_ms=0)
    with pytest.raises(UnknownLeaderEpoch):
        state.on_follower_fetch(FollowerFetch(4, 9, 10, 5), log, now_ms=0)
    assert state.followers[2].log_end_offset == -1


def test_what_a_follower_asked_in_its_former_life_and_comes_late_does_not_count() -> None:
    state = leader(isr=(1, 2), end=4)
    log = Log(10, epochs=[(4, 4), (5, 10)])
    state.on_local_append(10)
    state.on_follower_fetch(FollowerFetch(3, 12, 10, 5), log, now_ms=0)
    with pytest.raises(NotLeaderOrFollower):
        state.on_follower_fetch(FollowerFetch(3, 9, 7, 5), log, now_ms=1)
    assert (state.followers[3].log_end_offset, state.followers[3].broker_epoch) == (10, 12)
    state.on_follower_fetch(FollowerFetch(3, -1, 10, 5), log, now_ms=2)  # of before KIP-903


def test_with_too_few_in_sync_the_high_watermark_stands_still() -> None:
    state = leader(isr=(1,), minimum=2)
    assert not state.on_local_append(10)
    fetch(state, 2, 10, end=10)
    assert propose(state) == (1, 2)
    assert state.high_watermark == 0
    assert state.on_isr((1, 2), 8)
    assert state.high_watermark == 10


def test_a_follower_joins_when_it_has_what_is_committed_and_all_of_former_epochs() -> None:
    state = leader(isr=(1,), end=10)
    assert state.on_local_append(12)
    fetch(state, 2, 11, end=12)
    assert propose(state) is None
    fetch(state, 2, 12, end=12)
    assert propose(state) == (1, 2)
    assert state.is_waiting
    assert propose(state) is None, "one question at a time"


def test_a_replica_proposed_for_the_isr_counts_already_and_one_proposed_away_counts_still() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 3, 0, end=0)
    assert propose(state) == (1, 2, 3)
    state.on_local_append(10)
    fetch(state, 2, 10, end=10)
    assert state.high_watermark == 0, "3 may be in the ISR already"
    assert state.on_refused()
    assert state.high_watermark == 10
    state.on_local_append(20)
    assert propose(state, now_ms=LAG_MS + 1) == (1,)
    assert state.high_watermark == 10, "2 may be in the ISR still"
    assert state.on_isr((1,), 8)
    assert state.high_watermark == 20


def test_a_follower_that_is_always_a_little_behind_stays() -> None:
    state = leader(isr=(1, 2))
    for number in range(1, 50):
        state.on_local_append(10 * number)
        fetch(state, 2, 10 * (number - 1), end=10 * number, now_ms=number * 1_000)
        assert propose(state, now_ms=number * 1_000) is None


def test_a_follower_that_does_not_fetch_leaves_after_the_lag_time_unless_nothing_is_missing() -> (
    None
):
    state = leader(isr=(1, 2, 3))
    state.on_local_append(10)
    fetch(state, 2, 10, end=10)
    fetch(state, 3, 9, end=10)
    assert state.next_to_leave_ms(LAG_MS) == LAG_MS + 1
    assert propose(state, now_ms=LAG_MS) is None
    assert propose(state, now_ms=LAG_MS + 1) == (1, 2)
    fetch(state, 3, 10, end=10, now_ms=LAG_MS + 1)
    assert state.next_to_leave_ms(LAG_MS) is None


def test_a_replica_that_is_added_may_fetch_and_join_and_one_that_is_removed_is_forgotten() -> None:
    state = leader(end=10)
    state.on_local_append(10)
    for node in (2, 3):
        fetch(state, node, 10, end=10)
    with pytest.raises(KeyError):
        fetch(state, 4, 10, end=10)

    state.on_replicas((1, 2, 4))
    assert state.followers.keys() == {2, 4}
    assert state.followers[2].log_end_offset == 10  # what is known of those that stay is kept
    fetch(state, 4, 10, end=10)
    asked = propose(state)
    assert asked is not None
    assert 4 in asked
    state.on_replicas((1,))
    assert state.followers == {}


def test_old_news_of_the_isr_is_passed_over() -> None:
    state = leader(isr=(1, 2))
    assert not state.on_isr((1,), 7)
    assert state.isr == {1, 2}


class Replicas(RuleBasedStateMachine):
    """A leader, two followers, and a controller whose answers come late or never."""

    @initialize(minimum=st.integers(1, 3), end=st.integers(0, 5))
    def begin(self, minimum: int, end: int) -> None:
        self.state = LeaderState(
            5, 0, 0, node_id=1, replicas=(1, 2, 3), isr=(1, 2, 3), start_offset=end, now_ms=0
        )
        self.state.min_insync_replicas = minimum
        self.minimum = minimum
        self.now = 0
        self.ends = {1: end, 2: end, 3: end}  # in sync: they have what is committed
        self.reported = {1: end, 2: 0, 3: 0}
        self.decided = {1, 2, 3}
        self.epoch = 0
        self.asked: set[int] | None = None
        self.before = 0

    @rule(count=st.integers(1, 5))
    def appends(self, count: int) -> None:
        self.ends[1] += count
        self.state.on_local_append(self.ends[1])

    @rule(node=st.sampled_from((2, 3)), data=st.data())
    def copies(self, node: int, data) -> None:
        self.ends[node] = data.draw(st.integers(self.ends[node], max(self.ends.values())))

    @rule(node=st.sampled_from((2, 3)), milliseconds=st.integers(0, 8_000))
    def fetches(self, node: int, milliseconds: int) -> None:
        self.now += milliseconds
        self.state.on_fetch(
            node, self.ends[node], broker_epoch=1, leader_end=self.ends[1], now_ms=self.now
        )

    @rule(node=st.sampled_from((2, 3)))
    def loses_what_it_never_acknowledged(self, node: int) -> None:
        acknowledged = max(self.state.followers[node].log_end_offset, 0)
        if node not in self.decided and self.asked is None:
            self.ends[node] = min(self.ends[node], acknowledged)

    @rule()
    def looks_at_the_isr(self) -> None:
        asked = self.state.propose(
            now_ms=self.now, lag_time_max_ms=LAG_MS, is_eligible=lambda node, epoch: True
        )
        if asked is not None:
            self.asked = {node for node, _ in asked}

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_controller_decides(self) -> None:
        """The leader does not hear of it yet."""
        self.decided = set(self.asked)
        self.epoch += 1
        self.asked = None

    @precondition(lambda self: self.epoch > self.state.partition_epoch)
    @rule()
    def the_leader_learns_of_it(self) -> None:
        self.state.on_isr(sorted(self.decided), self.epoch)

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_controller_refuses(self) -> None:
        self.asked = None
        self.state.on_refused()

    @invariant()
    def everybody_in_sync_has_what_is_committed(self) -> None:
        if not hasattr(self, "state"):
            return
        committed = self.state.high_watermark
        assert committed >= self.before, "it never decreases"
        if committed > self.before:
            for node in self.decided:
                assert self.ends[node] >= committed, f"{node} lacks what is committed"
        self.before = committed


TestReplicas = Replicas.TestCase


def test_who_reaches_the_end_is_caught_up_now_and_not_since_its_fetch_before() -> None:
    state = leader()
    for node in (2, 3):
        fetch(state, node, 0, end=0, now_ms=0)
    state.on_local_append(10)
    for node in (2, 3):
        fetch(state, node, 10, end=10, now_ms=LAG_MS // 2)
    state.on_local_append(20)
    assert propose(state, now_ms=LAG_MS // 2 + LAG_MS) is None
    assert propose(state, now_ms=LAG_MS // 2 + LAG_MS + 1) == (1,)

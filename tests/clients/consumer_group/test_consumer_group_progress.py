"""What may be committed, while batches end in any order and partitions come and go?"""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury import TopicPartition
from bradbury.clients.consumer_group.processing.batch import Span
from bradbury.clients.consumer_group.processing.group_progress import Progress

KEY = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)


def span(first: int, last: int, number: int, key: TopicPartition = KEY) -> Span:
    return Span(key, first, last, number)


def reading(committed: int | None = 0) -> Progress:
    progress = Progress()
    assert progress.on_assigned(KEY, committed) is None
    return progress


def test_nothing_until_the_first_batch_is_finished() -> None:
    progress = reading()
    progress.on_read([span(0, 9, 1), span(10, 19, 2)])
    progress.on_finished([span(10, 19, 2)])
    assert progress.to_commit() == {}


def test_up_to_the_lowest_unfinished_offset() -> None:
    progress = reading()
    progress.on_read([span(0, 9, 1), span(10, 19, 2), span(20, 29, 3)])
    progress.on_finished([span(0, 9, 1)])
    progress.on_finished([span(20, 29, 3)])
    assert progress.to_commit() == {KEY: 10}


def test_all_that_was_read_when_nothing_is_unfinished() -> None:
    progress = reading()
    progress.on_read([span(0, 9, 1)])
    progress.on_finished([span(0, 9, 1)])
    progress.on_position({KEY: 12})  # two markers of transactions
    assert progress.to_commit() == {KEY: 12}


def test_rows_that_were_spread_by_key_hold_back_from_the_first_of_each() -> None:
    progress = reading()
    progress.on_read([span(0, 18, 1), span(3, 19, 2)])
    progress.on_finished([span(0, 18, 1)])
    assert progress.to_commit() == {KEY: 3}


def test_below_what_was_committed_when_the_consumer_was_reset() -> None:
    """As it is when a topic is recreated, or cut: what is left of the former log counts no more."""
    progress = reading()
    progress.on_read([span(0, 99, 1), span(100, 199, 2)])
    progress.on_finished([span(0, 99, 1)])
    progress.on_committed(progress.to_commit())
    progress.on_read([span(0, 9, 3)])
    assert progress.to_commit() == {KEY: 0}, "the group is to begin there, too"
    progress.on_committed({KEY: 0})
    assert not progress.is_current([span(100, 199, 2)])
    progress.on_finished([span(100, 199, 2)])
    assert progress.to_commit() == {}
    progress.on_finished([span(0, 9, 3)])
    assert progress.to_commit() == {KEY: 10}


def test_not_twice() -> None:
    progress = reading()
    progress.on_read([span(0, 9, 1)])
    progress.on_finished([span(0, 9, 1)])
    progress.on_committed({KEY: 10})
    assert progress.to_commit() == {}


def test_nothing_of_a_partition_that_is_being_given_up() -> None:
    progress = reading()
    progress.on_read([span(0, 9, 1)])
    progress.suspend([KEY])
    progress.on_finished([span(0, 9, 1)])
    assert progress.to_commit() == {}


def test_a_partition_that_comes_straight_back_goes_on_behind_what_is_being_processed() -> None:
    progress = reading(committed=5)
    progress.on_read([span(5, 9, 1), span(10, 19, 2)])
    progress.suspend([KEY])
    progress.on_finished([span(5, 9, 1)])
    assert progress.on_assigned(KEY, 5) == 20
    assert progress.to_commit() == {KEY: 10}
    assert progress.is_current([span(10, 19, 2)])


def test_what_was_finished_during_the_rebalance_is_not_done_again() -> None:
    progress = reading(committed=5)
    progress.on_read([span(5, 9, 1)])
    progress.suspend([KEY])
    progress.on_finished([span(5, 9, 1)])
    assert progress.on_assigned(KEY, 5) == 10
    assert progress.to_commit() == {KEY: 10}


def test_a_partition_that_another_member_has_committed_starts_again() -> None:
    progress = reading(committed=5)
    progress.on_read([span(5, 9, 1)])
    progress.suspend([KEY])
    assert progress.on_assigned(KEY, 8) is None
    assert not progress.is_current([span(5, 9, 1)])
    progress.on_finished([span(5, 9, 1)])  # its function returns, which says nothing any more
    assert progress.to_commit() == {}


def test_what_does_not_come_back_is_forgotten() -> None:
    progress = reading()
    progress.on_assigned(OTHER, 0)
    progress.on_read([span(0, 9, 1), span(0, 9, 2, OTHER)])
    progress.suspend([KEY, OTHER])
    progress.on_assigned(OTHER, 0)
    assert progress.drop_suspended() == {KEY}
    progress.on_finished([span(0, 9, 1), span(0, 9, 2, OTHER)])
    assert progress.to_commit() == {OTHER: 10}


class AnyOrder(RuleBasedStateMachine):
    """Batches are read in order and finished in any, with rebalances between."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = reading()
        self.position = 0
        self.open: list[Span] = []
        self.stored = 0
        self.numbers = iter(range(10**9))

    @rule(count=st.integers(1, 6), ways=st.integers(1, 3))
    def read(self, count: int, ways: int) -> None:
        offsets = range(self.position, self.position + count)
        for way in range(ways):
            mine = offsets[way::ways]
            if mine:
                one = span(mine[0], mine[-1], next(self.numbers))
                self.open.append(one)
                self.progress.on_read([one])
        self.position += count

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.open))
        self.open.remove(one)
        self.progress.on_finished([one])

    @rule()
    def commit(self) -> None:
        point = self.progress.to_commit().get(KEY)
        if point is not None:
            assert point > self.stored
            self.progress.on_committed({KEY: point})
            self.stored = point

    @rule()
    def rebalance_and_back(self) -> None:
        self.progress.suspend([KEY])
        position = self.progress.on_assigned(KEY, self.stored)
        assert position == (None if self.position == self.stored else self.position)
        assert self.progress.drop_suspended() == set()

    @invariant()
    def nothing_unfinished_lies_below_what_may_be_committed(self) -> None:
        point = self.progress.to_commit().get(KEY, self.stored)
        assert all(one.first >= point for one in self.open)
        if not self.open:
            assert point == self.position


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase

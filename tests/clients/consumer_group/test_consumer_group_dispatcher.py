"""Which worker gets which batch, while workers come, go and die?"""

import pyarrow as pa
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury import TopicPartition
from bradbury.clients.consumer_group.processing.batch import Batch, BatchMaker, Span
from bradbury.clients.consumer_group.processing.dispatcher import Dispatcher

KEY = TopicPartition("flights", 0)
LANES = 6


def batch(number: int, lane: int | None = None, rows: int = 1) -> Batch:
    table = pa.table({"n": pa.chunked_array([pa.repeat(number, rows)])})
    return Batch(number, table, (Span(KEY, number, number, number),), lane)


def dispatcher(*workers: str, max_in_flight: int = 2, batch_records: int = 1) -> Dispatcher:
    made = Dispatcher(
        lanes=LANES,
        max_in_flight=max_in_flight,
        batch_records=batch_records,
        # Other numbers than those of `batch`.
        merge=BatchMaker("key", LANES, _numbers=iter(range(1000, 2**62))).merge,
    )
    for worker in workers:
        made.add_worker(worker)
    return made


def numbers(starts: list[tuple[str, Batch]]) -> list[tuple[str, int]]:
    return [(worker, one.number) for worker, one in starts]


def test_every_worker_gets_one_before_any_gets_two() -> None:
    rules = dispatcher("a", "b")
    for number in range(5):
        rules.add(batch(number))
    assert numbers(rules.starts()) == [("a", 0), ("b", 1), ("a", 2), ("b", 3)]
    assert rules.waiting() == 1


def test_a_dead_workers_batches_go_first_and_only_the_one_at_work_is_suspect() -> None:
    rules = dispatcher("a")
    for number in range(4):
        rules.add(batch(number))
    rules.starts()
    lost = rules.remove_worker("a")
    assert [(one.number, one.attempts) for one in lost] == [(0, 1), (1, 0)]
    rules.add_worker("b")
    assert numbers(rules.starts()) == [("b", 0)]
    assert rules.on_finished("b", lost[0])
    assert numbers(rules.starts()) == [("b", 1), ("b", 2)]


def test_who_finished_beside_a_deadly_one_is_not_blamed_twice() -> None:
    """The outcome of the first is lost each time the second kills its worker."""
    rules = dispatcher("a")
    innocent, deadly = batch(0), batch(1)
    rules.add(innocent)
    rules.add(deadly)
    rules.starts()
    rules.remove_worker("a")
    rules.add_worker("b")
    assert numbers(rules.starts()) == [("b", 0)]
    rules.on_finished("b", innocent)
    assert numbers(rules.starts()) == [("b", 1)]
    rules.remove_worker("b")
    assert (innocent.attempts, deadly.attempts) == (1, 1)


def test_lanes_of_a_worker_wait_while_one_of_them_is_to_be_tried_alone() -> None:
    rules = dispatcher("a")
    suspect = batch(0, lane=1)
    rules.add(suspect)
    rules.starts()
    rules.add(batch(1, lane=2))
    rules.add(batch(2, lane=3))
    rules.remove_worker("a")
    rules.add_worker("b")
    assert numbers(rules.starts()) == [("b", 0)]
    rules.add(suspect_too := batch(3, lane=4))
    suspect_too.attempts = 1
    rules.on_finished("b", suspect)
    assert numbers(rules.starts()) == [("b", 3)]
    rules.on_finished("b", suspect_too)
    assert numbers(rules.starts()) == [("b", 1), ("b", 2)]


def test_one_of_a_lane_at_a_time() -> None:
    rules = dispatcher("a", "b")
    for number in range(3):
        rules.add(batch(number, lane=1))
    [(worker, first)] = rules.starts()
    assert first.number == 0
    assert rules.on_finished(worker, first)
    assert numbers(rules.starts()) == [(worker, 1)]


def test_a_lane_keeps_its_worker_when_another_comes_unless_it_is_that_ones_share() -> None:
    rules = dispatcher("a", "b")
    homes = {}
    for lane in range(LANES):
        rules.add(batch(lane, lane=lane))
    while rules.waiting() or rules.in_flight():
        for worker, one in rules.starts():
            homes[one.lane] = worker
            rules.on_finished(worker, one)
    rules.add_worker("c")
    moved = {}
    for lane in range(LANES):
        rules.add(batch(100 + lane, lane=lane))
    while rules.waiting():
        for worker, one in rules.starts():
            if worker != homes[one.lane]:
                moved[one.lane] = worker
            rules.on_finished(worker, one)
    assert list(moved.values()) == ["c", "c"]


def test_small_batches_of_a_lane_are_merged_while_they_wait() -> None:
    rules = dispatcher("a", batch_records=10)
    rules.add(batch(0, lane=1, rows=4))
    [(_, first)] = rules.starts()
    for number in (1, 2, 3):
        rules.add(batch(number, lane=1, rows=4))
    rules.on_finished("a", first)
    [(_, merged)] = rules.starts()
    assert [span.number for span in merged.spans] == [1, 2]
    assert merged.rows == 8


def test_what_was_tried_before_is_tried_alone() -> None:
    rules = dispatcher("a", batch_records=10)
    rules.add(batch(0, lane=1))
    rules.starts()
    rules.add(batch(1, lane=1))
    rules.remove_worker("a")
    rules.add_worker("b")
    [(_, again)] = rules.starts()
    assert [span.number for span in again.spans] == [0]


def test_a_retiring_worker_gets_nothing_more() -> None:
    rules = dispatcher("a", "b")
    rules.add(batch(0))
    [(worker, first)] = rules.starts()
    assert not rules.retire_worker(worker)
    rules.add(batch(1))
    assert all(other != worker for other, _ in rules.starts())
    assert rules.on_finished(worker, first)
    assert rules.is_idle(worker)


def test_what_is_held_waits() -> None:
    rules = dispatcher("a")
    rules.hold([KEY])
    rules.add(batch(0))
    rules.add(batch(1, lane=1))
    assert rules.starts() == []
    rules.release()
    assert len(rules.starts()) == 2


def test_an_answer_of_a_worker_that_was_given_up_is_not_counted() -> None:
    rules = dispatcher("a", "b", max_in_flight=1)
    rules.add(batch(0))
    [(worker, first)] = rules.starts()
    rules.remove_worker(worker)
    [(other, _)] = rules.starts()
    assert other != worker
    assert not rules.on_finished(worker, first)
    assert rules.on_finished(other, first)


class ComeAndGo(RuleBasedStateMachine):
    """Any order of adding, finishing, dying and retiring, against what must hold throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = dispatcher(max_in_flight=2, batch_records=3)
        self.count = 0
        self.running: list[tuple[str, Batch]] = []
        self.finished: list[int] = []
        self.lane_of: dict[int, int | None] = {}
        self.worker_count = 0

    @rule(lane=st.one_of(st.none(), st.integers(0, LANES - 1)))
    def add(self, lane: int | None) -> None:
        self.lane_of[self.count] = lane
        self.rules.add(batch(self.count, lane))
        self.count += 1

    @rule()
    def add_worker(self) -> None:
        self.rules.add_worker(f"w{self.worker_count}")
        self.worker_count += 1

    @rule()
    def start(self) -> None:
        self.running += self.rules.starts()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        worker, one = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        assert self.rules.on_finished(worker, one)
        self.finished += [span.number for span in one.spans]
        if worker not in self.rules.workers and self.rules.is_idle(worker):
            self.rules.remove_worker(worker)

    @precondition(lambda self: self.rules.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.rules.workers))
        self.rules.remove_worker(worker)
        self.running = [(other, one) for other, one in self.running if other != worker]

    @precondition(lambda self: self.rules.workers)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.rules.workers))
        if self.rules.retire_worker(worker):
            self.rules.remove_worker(worker)

    @invariant()
    def no_lane_is_with_two_workers(self) -> None:
        lanes = [one.lane for _, one in self.running if one.lane is not None]
        assert len(lanes) == len(set(lanes))

    @invariant()
    def no_worker_has_too_many(self) -> None:
        for worker in {worker for worker, _ in self.running}:
            assert sum(other == worker for other, _ in self.running) <= 2

    @invariant()
    def what_was_tried_before_is_alone_with_its_worker(self) -> None:
        for worker, one in self.running:
            if one.attempts:
                assert [other for other, _ in self.running].count(worker) == 1

    @invariant()
    def each_lane_is_finished_in_order_and_nothing_twice(self) -> None:
        assert len(set(self.finished)) == len(self.finished)
        for lane in range(LANES):
            mine = [number for number in self.finished if self.lane_of[number] == lane]
            assert mine == sorted(mine)

    def teardown(self) -> None:
        """Everything is done in the end by a worker that lives."""
        self.rules.add_worker("last")
        self.running += self.rules.starts()
        while self.running:
            worker, one = self.running.pop()
            self.rules.on_finished(worker, one)
            self.finished += [span.number for span in one.spans]
            self.running += self.rules.starts()
        assert sorted(self.finished) == list(range(self.count))


ComeAndGo.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestComeAndGo = ComeAndGo.TestCase

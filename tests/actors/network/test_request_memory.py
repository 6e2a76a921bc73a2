"""Is memory for requests bounded without anybody waiting forever?"""

from hypothesis import given, settings, strategies as st

from bradbury.actors.network.request_memory import RequestMemory

LIMIT = 100


class Request:
    """A long request: `left` units to come, each of which is kept until it is whole."""

    def __init__(self, memory: RequestMemory, size: int) -> None:
        self.memory = memory
        self.left = size
        self.held = 0
        self.is_waiting = False

    def resume(self) -> None:
        self.is_waiting = False

    def receive(self, count: int) -> None:
        if not self.memory.may_grow(self):
            self.is_waiting = True
            return
        count = min(count, self.left)
        self.left -= count
        self.held += count
        self.memory.change(count)
        if self.left == 0:
            self.memory.leave(self)
            held, self.held = self.held, 0
            self.memory.change(-held)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=12),
    data=st.data(),
)
def test_every_request_is_whole_in_the_end_and_memory_stays_near_its_limit(
    sizes: list[int], data: st.DataObject
) -> None:
    memory = RequestMemory(lambda: LIMIT)
    requests = [Request(memory, size) for size in sizes]
    for _ in range(3000):
        able = [each for each in requests if each.left and not each.is_waiting]
        if not able:
            break
        data.draw(st.sampled_from(able)).receive(data.draw(st.integers(1, 20)))
        assert memory.used == sum(each.held for each in requests)
        assert memory.used < LIMIT + 20 + max(sizes)
    assert [each.left for each in requests] == [0] * len(sizes)
    assert memory.used == 0
    assert memory.waiting == 0


def test_who_leaves_the_head_of_the_line_lets_the_next_go_on() -> None:
    memory = RequestMemory(lambda: LIMIT)
    memory.change(LIMIT)
    first, second, third = (Request(memory, 10) for _ in range(3))
    assert memory.may_grow(first)
    assert not memory.may_grow(second)
    assert not memory.may_grow(third)
    second.is_waiting = third.is_waiting = True
    memory.leave(first)
    assert not second.is_waiting
    assert third.is_waiting
    memory.change(-1)
    assert not third.is_waiting
    assert memory.waiting == 0


def test_half_full_is_tight_and_full_is_short() -> None:
    memory = RequestMemory(lambda: LIMIT)
    assert not memory.is_tight
    memory.change(50)
    assert memory.is_tight
    assert not memory.is_short
    memory.change(50)
    assert memory.is_short

"""Is who keeps asking for what is not served slowed down, and nobody else?"""

from bradbury.actors.network.refusal_delay import (
    AT_ONCE,
    FORGOTTEN_SECONDS,
    LONGEST_SECONDS,
    MOST_ADDRESSES,
    RefusalDelay,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_ones_are_closed_at_once_and_the_next_ones_later_and_later() -> None:
    delay = RefusalDelay(Clock())
    assert [delay.seconds("a") for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
    later = [delay.seconds("a") for _ in range(3 * AT_ONCE)]
    assert later == sorted(later)
    assert later[0] > 0
    assert later[-1] == LONGEST_SECONDS
    assert delay.seconds("b") == 0.0


def test_an_address_is_forgotten_after_a_minute_of_rest() -> None:
    clock = Clock()
    delay = RefusalDelay(clock)
    for _ in range(5 * AT_ONCE):
        clock.now += FORGOTTEN_SECONDS
        last = delay.seconds("a")
    assert last == LONGEST_SECONDS
    clock.now += FORGOTTEN_SECONDS + 1
    assert delay.seconds("a") == 0.0


def test_many_addresses_cost_no_more_memory() -> None:
    delay = RefusalDelay(Clock())
    for _ in range(2 * AT_ONCE):
        delay.seconds("first")
    for number in range(MOST_ADDRESSES):
        delay.seconds(str(number))
    assert len(delay._counts) == MOST_ADDRESSES
    assert delay.seconds("first") == 0.0

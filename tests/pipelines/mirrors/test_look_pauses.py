"""Does a continuous mirror look at once where records come, and seldom where none do?"""

from bradbury.pipelines.mirrors.look_pauses import LEAST_SECONDS, MOST_SECONDS, LookPauses


def test_it_looks_soon_while_there_is_something_and_ever_later_while_there_is_not() -> None:
    pauses = LookPauses()
    assert pauses.next_s(0, 0.0) == MOST_SECONDS
    assert pauses.next_s(1, 0.0) == pauses.next_s(2, 0.001) == LEAST_SECONDS
    later = [pauses.next_s(2, 0.001) for _ in range(20)]
    assert later == sorted(later)
    assert later[0] == 2 * LEAST_SECONDS
    assert later[-1] == MOST_SECONDS
    assert pauses.next_s(3, 0.0) == LEAST_SECONDS


def test_looks_that_take_long_take_half_of_the_time_at_most() -> None:
    pauses = LookPauses()
    assert pauses.next_s(1, 0.05) == 0.05
    assert pauses.next_s(2, 30.0) == MOST_SECONDS

"""Does a continuous mirror look at once where records come, and seldom where none do?"""

from bradbury.pipelines.mirrors.look_pauses import LEAST_SECONDS, MOST_SECONDS, LookPauses


def test_it_looks_at_once_while_there_is_something_and_ever_later_while_there_is_not() -> None:
    pauses = LookPauses()
    assert pauses.next_s(0) == MOST_SECONDS
    assert pauses.next_s(1) == pauses.next_s(2) == LEAST_SECONDS
    later = [pauses.next_s(2) for _ in range(20)]
    assert later == sorted(later)
    assert later[0] == 2 * LEAST_SECONDS
    assert later[-1] == MOST_SECONDS
    assert pauses.next_s(3) == LEAST_SECONDS

"""Do the figures of a run say what its history says?"""

from bradbury.tests.crash.checker import Fault as Wrong
from bradbury.tests.crash.figures import consume_gaps, measure, produce_gaps
from bradbury.tests.crash.harness import Outcome
from bradbury.tests.crash.history import SECOND, EndState, Fault, History, Poll, Send, State
from bradbury.tests.crash.replicas import Comparison


def history() -> History:
    """Two partitions; partition 1 stands still from 2 s to 7 s, its first fault being at 3 s."""
    found = History(partitions=2)
    times = {0: [1, 2, 3, 4, 5, 6, 7, 8], 1: [1, 2, 7, 8]}
    for partition, ends in times.items():
        for index, end in enumerate(ends):
            value = 2 * index + partition
            begin = end * SECOND - 1
            name = "writer-1-confluent/0" if partition == 0 else "writer-2-aiokafka/0"
            found.sends.append(Send(name, partition, value, begin, end * SECOND, "ok", index))
    found.sends.append(Send("writer-1-confluent/0", 0, 900, 9 * SECOND))
    for time in (1, 4, 5):
        found.polls.append(Poll("reader", 0, 0, time * SECOND, ((time, time),)))
    found.polls.append(Poll("final", 0, 0, 60 * SECOND, ((0, 0),), final=True))
    found.faults = [Fault("kill -9", 3 * SECOND), Fault("kill -9", int(7.5 * SECOND))]
    found.states = [
        State(1 * SECOND, (1, 2), (3, 3)),
        State(3 * SECOND, (1, -1), (3, 2)),
        State(4 * SECOND, (1, 3), (3, 2)),
        State(8 * SECOND, (1, 3), (3, 3)),
    ]
    found.end = EndState(3, {0: 3, 1: 3})
    return found


def test_the_longest_gap_is_that_of_the_worst_partition() -> None:
    longest = max(end - begin for begin, end in produce_gaps(history()))
    assert longest == 5 * SECOND
    of_librdkafka = max(end - begin for begin, end in produce_gaps(history(), "confluent"))
    assert of_librdkafka == SECOND


def test_readers_of_the_end_are_no_measure_of_how_readers_waited() -> None:
    assert max(end - begin for begin, end in consume_gaps(history())) == 3 * SECOND


def test_everything_that_is_wrong_is_counted_once() -> None:
    faults = [
        Wrong(kind, "")
        for kind in ("lost", "unseen", "duplicate", "real-time", "poll-skip", "phantom")
    ]
    comparison = Comparison(replicas=6, offsets=12, divergent=["x"], misplaced=["y", "z"])
    found = measure("B1", 10, history(), faults, 4, comparison, Outcome(faults=2, elections=1))
    assert (found.lost, found.duplicated, found.reordered) == (2, 1, 2)
    assert (found.divergent, found.other, found.group_faults) == (3, 1, 4)
    assert (found.sent, found.acknowledged, found.unknown) == (13, 12, 1)
    assert found.produce_gap == 5
    assert found.gap_per_fault == 3  # 5 s around the first, 1 s around the second
    assert found.under_replicated == 5
    assert not found.is_good


def test_without_faults_there_is_none_to_blame() -> None:
    quiet = history()
    quiet.faults = []
    assert measure("B0", 10, quiet, [], 0, Comparison(), Outcome()).gap_per_fault == 0


def test_a_run_is_good_only_if_nothing_is_wrong_and_it_came_to_its_end() -> None:
    good = measure("B0", 10, history(), [], 0, Comparison(), Outcome())
    assert good.is_good
    assert good.to_json()["good"]
    broken = Outcome(problems=["a writer ended"])
    assert not measure("B0", 10, history(), [], 0, Comparison(), broken).is_good

"""Broken histories of transactions, each of which is found as what it is; and a whole one."""

from collections.abc import Callable

import pytest

from .chain_checker import check_chain
from .chain_history import (
    Asked,
    ChainHistory,
    Part,
    Reading,
    Source,
    Transaction,
    write_part,
)

TOPICS = ["one", "two", "three"]
PARTITIONS = 2
SECOND = 10**9


def value(number: int, index: int, verdict: str = "c", process: str = "s-1") -> str:
    amount = number if index else -number
    return write_part(Part(process, number, index, PARTITIONS, verdict, amount))


def whole() -> ChainHistory:
    """Three transactions, the second of which was aborted; all went through; a marker after each."""
    history = ChainHistory(TOPICS, PARTITIONS)
    source = Source("s-1", "id", ready=1)
    for number, outcome in ((1, "committed"), (2, "aborted"), (3, "committed")):
        begin = number * 100
        source.transactions[number] = Transaction("s-1", number, begin, begin + 50, outcome)  # type: ignore[arg-type]
    history.sources = [source]
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            records = [(0, value(1, partition)), (4, value(3, partition))]
            history.final.records[topic, partition] = records
            history.committed[topic, partition] = 5
    reading = Reading("r", {place: list(all_) for place, all_ in history.final.records.items()})
    history.readings = [reading]
    history.asked = [
        Asked(1, 2, {("one", 0): 0}, {("one", 0): 1}),
        Asked(3, 4, {("one", 0): 6}, {("one", 0): 6}),
    ]
    return history


def kinds(history: ChainHistory) -> set[str]:
    return {fault.kind for fault in check_chain(history, most_open=10)}


def test_nothing_is_wrong_with_a_whole_history() -> None:
    assert check_chain(whole()) == []


def an_aborted_record_is_read(history: ChainHistory) -> None:
    history.readings[0].records["one", 0].insert(1, (2, value(2, 0, "a")))


def an_aborted_record_of_a_copier_is_read(history: ChainHistory) -> None:
    history.readings[0].records["two", 0].insert(1, (2, value(1, 0) + "!"))


def a_transaction_was_aborted_against_its_will_and_is_there(history: ChainHistory) -> None:
    history.sources[0].transactions[3].outcome = "aborted"


def a_committed_transaction_is_nowhere(history: ChainHistory) -> None:
    history.sources[0].transactions[4] = Transaction("s-1", 4, 400, 450, "committed")


def half_a_transaction_is_there(history: ChainHistory) -> None:
    for topic in TOPICS:
        del history.final.records[topic, 1][1]
        history.committed[topic, 1] = 1
    del history.readings[0]


def a_record_is_there_twice(history: ChainHistory) -> None:
    history.final.records["two", 0].append((5, value(3, 0)))


def a_record_comes_from_nobody(history: ChainHistory) -> None:
    history.final.records["one", 0][0] = (0, value(1, 0, process="nobody"))


def records_are_in_another_order(history: ChainHistory) -> None:
    for topic in TOPICS:
        history.final.records[topic, 0] = [(0, value(3, 0)), (4, value(1, 0))]


def a_topic_lacks_what_the_one_before_has(history: ChainHistory) -> None:
    history.final.records["two", 0] = [(4, value(3, 0))]


def offsets_were_committed_without_their_output(history: ChainHistory) -> None:
    history.final.records["three", 0] = [(0, value(1, 0))]


def output_was_committed_without_its_offsets(history: ChainHistory) -> None:
    history.committed["two", 0] = 1


def the_amounts_do_not_sum_up(history: ChainHistory) -> None:
    del history.final.records["three", 1][1]


def a_zombie_writes(history: ChainHistory) -> None:
    history.sources.append(Source("s-2", "id", ready=250))


def what_was_read_is_not_there_in_the_end(history: ChainHistory) -> None:
    history.readings[0].records["one", 0].append((9, value(1, 0)))


def a_reader_skips(history: ChainHistory) -> None:
    del history.readings[0].records["one", 0][0]


def a_reader_goes_back(history: ChainHistory) -> None:
    history.readings[0].records["one", 0].append((0, value(1, 0)))


def a_stable_offset_goes_back(history: ChainHistory) -> None:
    history.asked.append(Asked(5, 6, {("one", 0): 3}, {("one", 0): 6}))


def a_stable_offset_is_above_the_end(history: ChainHistory) -> None:
    history.asked.append(Asked(5, 6, {("one", 0): 8}, {("one", 0): 7}))


def a_stable_offset_stands_still(history: ChainHistory) -> None:
    history.asked.append(Asked(5, 6, {("one", 0): 6}, {("one", 0): 8}))
    late = 20 * SECOND
    history.asked.append(Asked(late, late + 1, {("one", 0): 6}, {("one", 0): 9}))


def the_chain_did_not_come_to_its_end(history: ChainHistory) -> None:
    history.final.records["three", 0] = [(0, value(1, 0))]
    history.committed["two", 0] = 4


def nobody_committed_anything(history: ChainHistory) -> None:
    for transaction in history.sources[0].transactions.values():
        transaction.outcome = "info"


BROKEN: list[tuple[Callable[[ChainHistory], None], str]] = [
    (an_aborted_record_is_read, "aborted-read"),
    (an_aborted_record_of_a_copier_is_read, "aborted-read"),
    (a_transaction_was_aborted_against_its_will_and_is_there, "aborted-read"),
    (a_committed_transaction_is_nowhere, "lost"),
    (half_a_transaction_is_there, "torn"),
    (a_record_is_there_twice, "duplicate"),
    (a_record_comes_from_nobody, "phantom"),
    (records_are_in_another_order, "order"),
    (a_topic_lacks_what_the_one_before_has, "chain"),
    (offsets_were_committed_without_their_output, "offsets"),
    (output_was_committed_without_its_offsets, "offsets"),
    (the_amounts_do_not_sum_up, "sum"),
    (a_zombie_writes, "fenced-wrote"),
    (what_was_read_is_not_there_in_the_end, "unstable-read"),
    (a_reader_skips, "poll-skip"),
    (a_reader_goes_back, "nonmonotonic"),
    (a_stable_offset_goes_back, "stable-back"),
    (a_stable_offset_is_above_the_end, "stable-above"),
    (a_stable_offset_stands_still, "stable-hangs"),
    (the_chain_did_not_come_to_its_end, "unfinished"),
    (nobody_committed_anything, "nothing-happened"),
]


@pytest.mark.parametrize(
    ("break_it", "kind"), BROKEN, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_broken_history_is_found(break_it: Callable[[ChainHistory], None], kind: str) -> None:
    history = whole()
    break_it(history)
    assert kind in kinds(history)


def test_what_a_process_begins_before_its_successor_is_ready_may_be_there() -> None:
    history = whole()
    history.sources.append(Source("s-2", "id", ready=320))
    assert check_chain(history) == []

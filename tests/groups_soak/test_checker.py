"""Does the checker find what is wrong, each thing by its name, and nothing where all is well?"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.tests.groups_soak import checker
from bradbury.tests.groups_soak.checker import Fault, check, report
from bradbury.tests.groups_soak.history import (
    Acknowledged,
    Assigned,
    Commit,
    Generation,
    History,
    Lines,
    Seen,
    read_history,
    write_log,
    write_plan,
)

RECORDS = 10


def sound() -> History:
    """Two partitions of ten records. Two members share them, one dies, the other goes on.

    "b" processed the last two records that "a" had not committed once more.
    """
    records = [
        Acknowledged(partition, offset, partition * 100 + offset)
        for partition in range(2)
        for offset in range(RECORDS)
    ]

    def seen(process: str, partition: int, offsets: range) -> list[Seen]:
        return [Seen("g", process, partition, one, partition * 100 + one) for one in offsets]

    return History(
        2,
        ("g",),
        acknowledged=records,
        seen=[*seen("a", 0, range(6)), *seen("b", 1, range(10)), *seen("b", 0, range(4, 10))],
        assigned=[
            Assigned("g", "a", "a-1", 1, frozenset({0})),
            Assigned("g", "b", "b-1", 1, frozenset({1})),
            Assigned("g", "c", "c-1", None, frozenset()),
            Assigned("g", "b", "b-1", 2, frozenset({0, 1})),
        ],
        log=[
            Generation("g", 1, {"a-1": frozenset({0}), "b-1": frozenset({1})}),
            Commit("g", 0, 2),
            Commit("g", 1, 5),
            Commit("g", 0, 4),
            Generation("g", 2, {"b-1": frozenset({0, 1})}),
            Commit("g", 0, 10),
            Commit("g", 1, 10),
            Commit("g", 1, 10),
            Generation("g", 3, {}),
        ],
    )


def kinds(history: History) -> set[str]:
    return {one.kind for one in check(history)}


def test_a_sound_history_has_no_faults() -> None:
    assert check(sound()) == []


# --- planted faults ------------------------------------------------------------------------------


def lose_uncommitted(history: History) -> None:
    history.seen = [one for one in history.seen if (one.partition, one.offset) != (1, 9)]
    history.log = [one for one in history.log if one != Commit("g", 1, 10)]


def skip_one(history: History) -> None:
    history.seen = [one for one in history.seen if (one.partition, one.offset) != (0, 3)]


def see_another_value(history: History) -> None:
    history.seen.append(Seen("g", "b", 0, 3, 999))


def regress_a_commit(history: History) -> None:
    history.log.append(Commit("g", 0, 9))


def commit_past_the_end(history: History) -> None:
    history.log.append(Commit("g", 0, 11))


def own_twice_in_one_record(history: History) -> None:
    history.log[4] = Generation("g", 2, {"b-1": frozenset({0, 1}), "c-1": frozenset({1})})


def own_twice_in_two_records(history: History) -> None:
    history.log.insert(5, Generation("g", 2, {"c-1": frozenset({1})}))


def give_two_members_the_same_partition(history: History) -> None:
    history.log.insert(5, Generation("g", 2, {"c-1": frozenset({1})}))
    history.assigned.append(Assigned("g", "c", "c-1", 2, frozenset({1})))


def assign_what_is_not_there(history: History) -> None:
    history.log.append(Generation("g", 4, {"b-1": frozenset({2})}))


def go_back_a_generation(history: History) -> None:
    history.log.append(Generation("g", 2, {}))


def report_more_than_the_log_has(history: History) -> None:
    history.assigned.append(Assigned("g", "a", "a-1", 1, frozenset({0, 1})))


def report_a_generation_that_was_not_written(history: History) -> None:
    history.assigned.append(Assigned("g", "a", "a-1", 7, frozenset({0})))


def leave_a_group_alone(history: History) -> None:
    history.groups = ("g", "idle")
    history.acknowledged = []


PLANTED: dict[Callable[[History], None], set[str]] = {
    lose_uncommitted: {"lost"},
    skip_one: {"skipped"},
    see_another_value: {"phantom"},
    regress_a_commit: {"commit-regressed"},
    commit_past_the_end: {"commit-past-end"},
    own_twice_in_one_record: {"two-owners"},
    own_twice_in_two_records: {"two-owners"},
    give_two_members_the_same_partition: {"two-owners"},
    assign_what_is_not_there: {"unknown-partition"},
    go_back_a_generation: {"generation-regressed"},
    report_more_than_the_log_has: {"assignment-differs", "two-owners"},
    report_a_generation_that_was_not_written: {"unlogged-generation"},
    leave_a_group_alone: {"nothing-happened"},
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_its_name(plant: Callable[[History], None]) -> None:
    history = sound()
    plant(history)
    assert kinds(history) == PLANTED[plant]


def test_every_kind_that_the_checker_knows_was_planted() -> None:
    named = set(re.findall(r"^    ([a-z-]+)  ", checker.__doc__ or "", re.MULTILINE))
    assert named == set().union(*PLANTED.values())


@given(victim=st.sampled_from(sound().acknowledged))
@settings(max_examples=30, deadline=None)
def test_no_record_can_vanish_unnoticed(victim: Acknowledged) -> None:
    history = sound()
    where = (victim.partition, victim.offset)
    history.seen = [one for one in history.seen if (one.partition, one.offset) != where]
    (found,) = check(history)
    assert found.kind == "skipped"
    assert f"{victim.partition}/{victim.offset}" in found.where


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_no_two_commits_of_a_partition_can_change_places_unnoticed(data: st.DataObject) -> None:
    history = sound()
    numbers = [number for number, one in enumerate(history.log) if isinstance(one, Commit)]
    first, second = sorted(data.draw(st.permutations(numbers))[:2])
    one, other = history.log[first], history.log[second]
    history.log[first], history.log[second] = other, one
    of_one_partition: dict[int, list[int]] = {}
    for commit in history.log:
        if isinstance(commit, Commit):
            of_one_partition.setdefault(commit.partition, []).append(commit.offset)
    is_monotonic = all(offsets == sorted(offsets) for offsets in of_one_partition.values())
    assert kinds(history) == (set() if is_monotonic else {"commit-regressed"})


# --- what is no fault ----------------------------------------------------------------------------


def test_a_static_member_may_come_back_under_another_id_in_one_generation() -> None:
    history = sound()
    instance = {"b-1": "bee"}
    owned = {"bee": frozenset({0, 1})}
    history.log[4:5] = [
        Generation("g", 2, owned, instance),
        Generation("g", 2, owned, {"b-2": "bee"}),
    ]
    history.assigned.append(Assigned("g", "b2", "b-2", 2, frozenset({0, 1})))
    history.assigned[3] = replace(history.assigned[3], member_id="b-1")
    assert check(history) == []


def test_a_record_whose_acknowledgement_was_lost_may_be_seen() -> None:
    history = sound()
    history.seen.append(Seen("g", "b", 0, 10, 777))
    history.log.append(Commit("g", 0, 11))
    assert check(history) == []


def test_a_member_may_report_a_part_of_what_it_owns() -> None:
    """A cooperative member hears of what is new; what it shall give up first comes later."""
    history = sound()
    history.assigned.append(Assigned("g", "b", "b-1", 2, frozenset({0})))
    assert check(history) == []


# --- files ---------------------------------------------------------------------------------------


def test_a_history_is_read_from_the_files_of_a_run(tmp_path: Path) -> None:
    write_plan(tmp_path, 1, {"python-1": "g", "java-1": "g", "never-started": "g"})
    produced = Lines(tmp_path / "produced.jsonl")
    produced.write(partition=0, offset=0, value=5)
    lines = Lines(tmp_path / "python-1.jsonl")
    lines.event("assigned", member_id="m", generation=None, partitions=[0])
    lines.event("records", records={"0": [[0, 5]]})
    (tmp_path / "java-1.out").write_text(
        "noise\nPartition:0\tOffset:0\t5\nPartition:0\tOffset:1\t6"
    )
    log = [Generation("g", 1, {"m": frozenset({0})}, {"m": "one"}), Commit("g", 0, 1)]
    write_log(tmp_path, log)
    history = read_history(tmp_path)
    assert history == History(
        1,
        ("g",),
        [Acknowledged(0, 0, 5)],
        [Seen("g", "python-1", 0, 0, 5), Seen("g", "java-1", 0, 0, 5)],
        [Assigned("g", "python-1", "m", None, frozenset({0}))],
        log,
    )


def test_a_line_that_a_kill_cut_off_is_no_line(tmp_path: Path) -> None:
    write_plan(tmp_path, 1, {"p": "g"})
    Lines(tmp_path / "produced.jsonl").write(partition=0, offset=0, value=5)
    write_log(tmp_path, [])
    whole = json.dumps({"event": "records", "time": 1, "records": {"0": [[0, 5]]}})
    (tmp_path / "p.jsonl").write_text(f"{whole}\n{whole[:-9]}")
    assert len(read_history(tmp_path).seen) == 1


def test_a_report_counts_and_gives_examples() -> None:
    faults = [Fault("lost", "g", f"value {number}") for number in range(9)]
    lines = report([*faults, Fault("two-owners", "h", "generation 3")])
    assert lines[0] == "lost, group 'g': 9"
    assert lines[1:6] == [f"    value {number}" for number in range(5)]
    assert lines[6:] == ["two-owners, group 'h': 1", "    generation 3"]

"""What do kill -9 and SIGSTOP of a real cluster's processes cost? Time, never a record.

Some by `make test-long`; all, for longer, by `make crash`. Each run has tests/ray/nodes/test_crash.py, on one node.
"""

from pathlib import Path

import pytest

from bradbury.tests.crash.faults.nemesis import CUT_OFF, NEMESES
from bradbury.tests.crash.figures import Figures
from bradbury.tests.crash.run import run_one
from bradbury.tests.support.ray.ray_nodes import RayNode

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FAULT_SECONDS = 8
"""Goes on until there were as many faults as a test wants."""
GAP_SECONDS = 120
"""A bound for a machine many times slower; figures: docs/reliability.md."""


def run(nodes: list[RayNode], folder: Path, name: str, least_faults: int) -> Figures:
    """A run in which nothing is wrong, of so many faults or more; its figures."""
    figures, wrong = run_one(
        nodes,
        folder,
        NEMESES[name],
        FAULT_SECONDS,
        seed=6,
        most_seconds=8,
        least_faults=least_faults,
    )
    assert wrong == []
    assert figures.is_good
    assert figures.faults >= least_faults
    assert figures.acknowledged > 1000
    assert figures.unknown == 0
    assert figures.offsets_compared >= figures.acknowledged
    return figures


# tests/ray/nodes/test_crash.py kills each of one node in each run, tests/crash/chains all at once
@pytest.mark.long
def test_partition_actors_are_killed_one_after_the_other(
    nodes: list[RayNode], tmp_path: Path
) -> None:
    figures = run(nodes, tmp_path, "B1", 3)
    assert figures.elections >= 1
    assert figures.produce_gap < GAP_SECONDS


@pytest.mark.deep  # tests/ray/nodes/test_many_nodes.py stops one, in a cluster of one node
def test_partition_actors_are_stopped_and_go_on(nodes: list[RayNode], tmp_path: Path) -> None:
    figures = run(nodes, tmp_path, "B2", 2)
    assert figures.produce_gap < GAP_SECONDS


@pytest.mark.deep  # tests/ray/nodes/test_crash.py kills it under a producer, and between changes of topics
def test_producers_do_not_notice_that_the_controller_is_killed(
    nodes: list[RayNode], tmp_path: Path
) -> None:
    figures = run(nodes, tmp_path, "B6", 3)
    assert figures.elections == 0
    assert figures.produce_gap < GAP_SECONDS


@pytest.mark.long  # tests/ray/nodes/test_crash.py kills each of one node
def test_all_actors_are_killed_at_once(nodes: list[RayNode], tmp_path: Path) -> None:
    figures = run(nodes, tmp_path, "B8", 1)
    assert figures.produce_gap < GAP_SECONDS


# test_checker.py: a history that lacks records is found, whatever made it.
@pytest.mark.deep
def test_records_that_only_a_leader_had_are_missed_when_they_are_gone(
    nodes: list[RayNode], tmp_path: Path
) -> None:
    """acks=1 promises no more than that: what the other runs would find, if it were there."""
    figures, wrong = run_one(
        nodes,
        tmp_path,
        CUT_OFF,
        5,
        config={"broker.session.timeout.ms": 3000},
        acks="1",
        min_insync=1,
        least_faults=1,
        patience=8,  # what is gone does not come
        seed=1,
    )
    assert figures.faults >= 1
    assert figures.lost > 0
    assert any("inconsistent-offset" in line for line in wrong)

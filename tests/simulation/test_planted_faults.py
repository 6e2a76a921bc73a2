"""Are mistakes found? Each planted one must be, and the same seeds without it must be clean."""

from functools import cache

import pytest

from bradbury.tests.simulation.planted.found_by import FOUND_BY
from bradbury.tests.simulation.planted.planted_faults import (
    FAULTS,
    KNOWN_HISTORIES,
    MASKED,
    planted,
    swarm_for,
)
from bradbury.tests.simulation.world.simulated_runs import Outcome, run_seed
from bradbury.tests.simulation.world.simulated_swarm import Swarm

MOST_SEEDS = 400
LONG = {
    "anybody may commit",
    "sessions end with the coordinator",
    "a deleted group keeps its offsets",
    "pending offsets are forgotten by the next coordinator",
    "a removed replica leads on",
    "a former coordinator goes on",
    "replicas go before others are in sync",
    "a marker is written without its coordinator",
    "an epoch without records stays",
    "batches are not verified",
    "a silent node stays in service",
    "shrinks before the controller agrees",
    "the former log goes before the new one is on the disk",
    "a deletion is answered before it is replicated",
    "added partitions are answered before they are replicated",
    "a new voter counts before it has the log",
    "nothing expires",
    "the loss is reported by one process only",
    "a partition without a leader is taken for deleted",
    "an added replica stays in sync",
    "silent members stay",
    "who does not lead is taken to have the marker",
}
"""Those that take four seconds or more to be found: many seeds, or long ones."""
DEEP = {
    "the recovery point stays above a truncation",
    "the own end of an epoch is not looked at",
    "a follower claims what its former life has left",
    "the token goes before the clean mark is there",
}
"""Those that take fifteen or more."""
MARKS = dict.fromkeys(LONG, pytest.mark.long) | dict.fromkeys(DEEP, pytest.mark.deep)


@cache
def without_faults(seed: int, swarm: Swarm) -> Outcome:
    """Many faults are found by the same run, which is without them once and for all."""
    return run_seed(seed, swarm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=MARKS.get(name, ()))
        for name in FAULTS
        if name not in KNOWN_HISTORIES | MASKED
    ],
)
def test_a_planted_fault_is_found(name: str) -> None:
    for seed in (FOUND_BY.get(name, 0), *range(MOST_SEEDS)):
        with planted(name):
            failure = run_seed(seed, swarm_for(name, seed)).failure
        if failure is not None:
            clean = without_faults(seed, swarm_for(name, seed))
            assert clean.failure is None, "\n".join(clean.transcript)
            return
    pytest.fail(f"{MOST_SEEDS} seeds have not found it")


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_fault_changes_is_there(name: str) -> None:
    with planted(name):
        pass


def test_nine_in_ten_are_found_and_the_others_explained() -> None:
    assert len(FAULTS) >= 30
    assert set(MASKED | KNOWN_HISTORIES) <= set(FAULTS)
    assert set(FOUND_BY) <= set(FAULTS)
    assert set(DEEP) <= set(FAULTS)
    assert len(MASKED) <= len(FAULTS) / 10
    assert all(len(reason) > 40 for reason in (MASKED | KNOWN_HISTORIES).values())

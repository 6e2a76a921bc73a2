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


@cache
def without_faults(seed: int, swarm: Swarm) -> Outcome:
    """Many faults are found by the same run, which is without them once and for all."""
    return run_seed(seed, swarm)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in KNOWN_HISTORIES | MASKED])
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
    assert len(MASKED) <= len(FAULTS) / 10
    assert all(len(reason) > 40 for reason in (MASKED | KNOWN_HISTORIES).values())

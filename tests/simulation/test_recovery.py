"""Damaged voters: who starts has what it promised, and what is made again is what was committed."""

import logging
from collections.abc import Iterator

import pytest

from bradbury.tests.simulation.planted.fault_registry import planted
from bradbury.tests.simulation.planted.faults.planted_in_recovery import RECOVERY_FAULTS
from bradbury.tests.simulation.recovery_world import RecoveryWorld

SEEDS = {1: 25, 3: 12}
"""By the number of voters."""
MOST_SEEDS = 60
ROUNDS = 8


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Each damaged file is an error to who finds it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("voters", [1, 3])
def test_a_recovery_makes_what_was_committed(voters: int) -> None:
    worlds = [RecoveryWorld(seed, voters=voters) for seed in range(SEEDS[voters])]
    for world in worlds:
        world.run(ROUNDS)
    assert sum(world.recoveries for world in worlds) > len(worlds)
    assert sum(world.refused for world in worlds) > 0
    if voters == 3:
        assert sum(world.whole for world in worlds) > len(worlds) / 2
        assert sum(world.healed for world in worlds) > len(worlds)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECOVERY_FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first = RECOVERY_FAULTS[name].seen_by.get("first_seed", 0)
    for seed in range(first, first + MOST_SEEDS):
        for voters in (1, 3):
            try:
                with planted(name, RECOVERY_FAULTS):
                    RecoveryWorld(seed, voters=voters).run(ROUNDS)
            except Exception:
                RecoveryWorld(seed, voters=voters).run(ROUNDS)
                return
    pytest.fail(f"{2 * MOST_SEEDS} seeds have not found it")

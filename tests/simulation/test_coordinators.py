"""A transaction coordinator through years: epochs and ids that run out, appends in doubt, successors."""

import logging
from collections.abc import Iterator

import pytest

from bradbury.tests.simulation.coordinator_world import CoordinatorWorld
from bradbury.tests.simulation.planted.fault_registry import planted
from bradbury.tests.simulation.planted.faults.planted_in_coordinators import COORDINATOR_FAULTS

SEEDS = 60
MOST_SEEDS = 600
STEPS = 1_000


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Each log that cannot be read is an error to the coordinator."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_transactions_end_once_and_as_their_producers_are_told(version: int) -> None:
    worlds = [CoordinatorWorld(seed, version=version) for seed in range(SEEDS)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.ends for world in worlds) > 5 * SEEDS
    assert sum(world.rotations for world in worlds) > 0, "no epochs have run out"
    assert sum(world.failovers for world in worlds) > SEEDS
    assert sum(world.expired for world in worlds) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", COORDINATOR_FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    for seed in range(MOST_SEEDS):
        try:
            with planted(name, COORDINATOR_FAULTS):
                CoordinatorWorld(seed, version=2).run(STEPS)
        except Exception:
            CoordinatorWorld(seed, version=2).run(STEPS)
            return
    pytest.fail(f"{MOST_SEEDS} seeds have not found it")

"""One log through many lives: what is read is what was appended, and what is lost is said."""

import logging
from collections.abc import Iterator

import pytest

from bradbury.tests.simulation.logs.log_world import LogWorld
from bradbury.tests.simulation.logs.planted_in_logs import LOG_FAULTS
from bradbury.tests.simulation.planted.fault_registry import planted

SEEDS = 100
MORE_SEEDS = 900
MOST_SEEDS = 120
ROUNDS = 8


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Each damaged file is an error to who finds it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seeds: range, *, compacts: bool) -> None:
    worlds = [LogWorld(seed, compacts=compacts) for seed in seeds]
    for world in worlds:
        world.run(ROUNDS)
    assert sum(world.deaths for world in worlds) > len(worlds)
    if not compacts:
        assert sum(world.damaged for world in worlds) > len(worlds)
        assert sum(world.healed for world in worlds) > len(worlds) / 4


@pytest.mark.slow
@pytest.mark.parametrize("compacts", [False, True])
def test_a_log_has_what_it_was_given(compacts: bool) -> None:
    run(range(SEEDS), compacts=compacts)


@pytest.mark.long
@pytest.mark.parametrize("compacts", [False, True])
def test_a_log_has_what_it_was_given_through_more_lives(compacts: bool) -> None:
    run(range(SEEDS, SEEDS + MORE_SEEDS), compacts=compacts)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOG_FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first = LOG_FAULTS[name].seen_by.get("first_seed", 0)
    for seed in range(first, first + MOST_SEEDS):
        for compacts in (False, True):
            try:
                with planted(name, LOG_FAULTS):
                    LogWorld(seed, compacts=compacts).run(ROUNDS)
            except Exception:
                LogWorld(seed, compacts=compacts).run(ROUNDS)
                return
    pytest.fail(f"{2 * MOST_SEEDS} seeds have not found it")

"""Thousands of requests to the controller: what it decides holds together."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from bradbury.tests.simulation.control.control_world import ControlWorld
from bradbury.tests.simulation.control.planted_in_control import CONTROL_FAULTS
from bradbury.tests.simulation.planted.fault_registry import planted

SEEDS = 100
MORE_SEEDS = 1_900
MOST_SEEDS = 60
STEPS = 150


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seeds: range) -> tuple[Counter[str], Counter[str]]:
    done: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for seed in seeds:
        world = ControlWorld(seed)
        world.run(STEPS)
        done += world.done
        refused += world.refused
    return done, refused


@pytest.mark.slow
def test_what_the_controller_decides_holds_together() -> None:
    done, refused = run(range(SEEDS))
    assert len(done) > 15 and min(done.values()) > 5
    assert len(refused) > 30


@pytest.mark.long
def test_what_the_controller_decides_holds_together_in_more_seeds() -> None:
    run(range(SEEDS, SEEDS + MORE_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROL_FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    for seed in range(MOST_SEEDS):
        try:
            with planted(name, CONTROL_FAULTS):
                ControlWorld(seed).run(STEPS)
        except Exception:
            ControlWorld(seed).run(STEPS)
            return
    pytest.fail(f"{MOST_SEEDS} seeds have not found it")

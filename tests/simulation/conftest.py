"""What every test of the simulation leaves: nothing that waits."""

from collections.abc import Iterator

import pytest

from bradbury.tests.simulation.world.virtual_loop import end_all


@pytest.fixture(autouse=True)
def nothing_waits_behind_it() -> Iterator[None]:
    yield
    end_all()

"""A replicated cluster under faults: is what was promised kept? 25 seeds, in
`make test-long` 75 more, in `make test-deep` 500; `make simulate` for more. Of those that are mostly
about disks, and about damage, 25, 25 and 250 each; `make simulate ARGS=--disks` (`--damage`) for
more.

A failing seed is shown again by: python -m bradbury.tests.simulation.run --seed N
"""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from bradbury.tests.simulation.world.simulated_cluster import SimulatedCluster
from bradbury.tests.simulation.world.simulated_runs import Totals, run_seed
from bradbury.tests.simulation.world.simulated_swarm import damage_seed, disk_seed

SEEDS = 600
LONG = 100
AT_A_TIME = 25
OF_EACH = 300
"""Seeds of disks, and of damage."""
WITH_SETS = ((21,), (74, 105))
"""With transactions and their offsets; the first one has a group with members beside them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        0,
        *(
            pytest.param(first, marks=pytest.mark.long)
            for first in range(AT_A_TIME, LONG, AT_A_TIME)
        ),
        *(pytest.param(first, marks=pytest.mark.deep) for first in range(LONG, SEEDS, AT_A_TIME)),
    ],
)
def test_what_was_promised_is_kept_whatever_fails(first: int) -> None:
    totals = Totals()
    for seed in range(first, first + AT_A_TIME):
        outcome = run_seed(seed)
        if outcome.failure is not None:
            pytest.fail("\n".join(outcome.transcript))
        if seed % 5 == 0:
            again = run_seed(seed)
            assert (again.digest, again.steps) == (outcome.digest, outcome.steps), "another run"
        totals.add(outcome)
    assert totals.acknowledged > 50 * AT_A_TIME, "too little was written to have tried anything"
    assert totals.elections > AT_A_TIME
    assert totals.truncations > 0
    assert totals.reassignments > 0
    assert totals.generations > 2
    assert totals.cleanings > 10
    assert totals.offset_commits > 4 * AT_A_TIME
    assert totals.transactions > AT_A_TIME


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        0,
        pytest.param(AT_A_TIME, marks=pytest.mark.long),
        *(
            pytest.param(first, marks=pytest.mark.deep)
            for first in range(2 * AT_A_TIME, OF_EACH, AT_A_TIME)
        ),
    ],
)
@pytest.mark.parametrize("seed_of", [disk_seed, damage_seed])
def test_what_was_promised_is_kept_where_disks_fail_all_the_time(
    first: int, seed_of: Callable[[int], str]
) -> None:
    totals = Totals()
    for number in range(first, first + AT_A_TIME):
        outcome = run_seed(seed_of(number))
        if outcome.failure is not None:
            pytest.fail("\n".join(outcome.transcript))
        totals.add(outcome)
    assert totals.acknowledged > 10 * AT_A_TIME
    assert totals.faults > 10 * AT_A_TIME


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds",
    [WITH_SETS[0], pytest.param(WITH_SETS[1], marks=pytest.mark.long)],
    ids=str,
)
def test_the_order_of_sets_does_not_matter(seeds: tuple[int, ...]) -> None:
    """Another process hashes strings otherwise."""
    code = (
        "from bradbury.tests.simulation.world.simulated_runs import run_seed\n"
        f"print([run_seed(seed).digest for seed in {seeds}])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert digests == {f"{[run_seed(seed).digest for seed in seeds]}\n"}


def test_one_seed_runs_through() -> None:
    cluster = SimulatedCluster(1)
    cluster.run()
    assert cluster.acknowledged > 20

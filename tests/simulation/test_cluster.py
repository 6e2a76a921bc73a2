"""A replicated cluster under faults: is what was promised kept? 100 seeds, in
`make test-deep` 500 others; `make simulate` for more.

A failing seed is shown again by: python -m bradbury.tests.simulation.run --seed N
"""

import os
import subprocess
import sys

import pytest

from bradbury.tests.simulation.world.simulated_cluster import SimulatedCluster
from bradbury.tests.simulation.world.simulated_runs import Totals, run_seed

SEEDS = 600
IN_EVERY_RUN = 100
AT_A_TIME = 50
WITH_SETS = (7, 74, 105)
"""Two of them with transactions and their offsets."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.deep) if first >= IN_EVERY_RUN else first
        for first in range(0, SEEDS, AT_A_TIME)
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
    assert totals.reassignments > 3
    assert totals.generations > 10
    assert totals.offset_commits > 5 * AT_A_TIME


@pytest.mark.slow
def test_the_order_of_sets_does_not_matter() -> None:
    """Another process hashes strings otherwise."""
    code = (
        "from bradbury.tests.simulation.world.simulated_runs import run_seed\n"
        f"print([run_seed(seed).digest for seed in {WITH_SETS}])"
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
    assert digests == {f"{[run_seed(seed).digest for seed in WITH_SETS]}\n"}


def test_one_seed_runs_through() -> None:
    cluster = SimulatedCluster(1)
    cluster.run()
    assert cluster.acknowledged > 20

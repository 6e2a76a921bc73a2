"""Some seeds of the simulation, until one finds something: exit code 1, and what it found.

python -m bradbury.tests.mutation.seeds --count 40 [--groups]

--groups: a consumer group in each of them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from random import Random

from bradbury.tests.simulation.world.simulated_faults import Swarm
from bradbury.tests.simulation.world.simulated_runs import run_seed


def swarm_of(seed: int, *, has_groups: bool) -> Swarm:
    """The seed's own, but perhaps with a group."""
    swarm = Swarm.draw(Random(f"swarm {seed}"))
    if has_groups and not swarm.groups:
        swarm = replace(
            swarm,
            groups=1,
            group_members=3,
            static_members=seed % 3,
            kinds=(*swarm.kinds, "kill member", "pause member", "leave"),
        )
    return swarm


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--groups", action="store_true")
    given = parser.parse_args()
    for seed in range(given.count):
        outcome = run_seed(seed, swarm_of(seed, has_groups=given.groups), lines=0)
        if outcome.failure is not None:
            print(f"seed {seed}: {outcome.failure}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Some seeds of the simulation, until one finds something: exit code 1, and what it found.

python -m bradbury.tests.mutation.seeds --count 40 [--groups] [--transactions] [--disks]

--groups: a consumer group in each of them. --transactions: transactional producers in each.
Both: groups in one half of the seeds, transactions in the other. --disks: one half of the seeds are
mostly about disks.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from random import Random

from bradbury.tests.simulation.world import simulated_swarm
from bradbury.tests.simulation.world.simulated_runs import run_seed
from bradbury.tests.simulation.world.simulated_swarm import (
    MEMBER_KINDS,
    TRANSACTION_KINDS,
    Swarm,
    disk_seed,
)


def swarm_of(seed: int, *, has_groups: bool, has_transactions: bool) -> Swarm:
    """The swarm that the seed draws; with a group or transactions where these are asked for."""
    swarm = Swarm.draw(Random(f"swarm {seed}"))
    if has_groups and has_transactions:
        has_groups = seed % 2 == 0
        has_transactions = not has_groups
    if has_groups and not swarm.groups:
        return with_group(swarm, seed)
    if has_transactions and not swarm.transactional_ids:
        return with_transactions(swarm, seed)
    return swarm


def with_group(swarm: Swarm, seed: int) -> Swarm:
    """Without transactions: Swarm.draw gives no seed both."""
    return replace(
        swarm,
        groups=1,
        group_members=3,
        static_members=seed % 3,
        transactional_ids=0,
        twins=False,
        offsets_in_transactions=False,
        kinds=(
            *(kind for kind in swarm.kinds if kind not in TRANSACTION_KINDS),
            "kill member",
            "pause member",
            "leave",
        ),
    )


def with_transactions(swarm: Swarm, seed: int) -> Swarm:
    """Without groups: Swarm.draw gives no seed both."""
    return replace(
        swarm,
        groups=0,
        partitions=1,
        producers=2,
        careless_producers=0,
        is_reckless=False,
        duration_ms=4_000,
        transactional_ids=2,
        transaction_partitions=1 + seed % 2,
        twins=seed % 3 == 0,
        offsets_in_transactions=seed % 4 < 2,
        kinds=(
            *(kind for kind in swarm.kinds if kind not in MEMBER_KINDS),
            *TRANSACTION_KINDS,
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--disks", action="store_true")
    given = parser.parse_args()
    for number in range(given.count):
        seed: object = number
        if given.disks and number % 2:
            seed = disk_seed(number)
            swarm = simulated_swarm.swarm_of(seed)
        else:
            swarm = swarm_of(number, has_groups=given.groups, has_transactions=given.transactions)
        outcome = run_seed(seed, swarm, lines=0)
        if outcome.failure is not None:
            print(f"seed {seed}: {outcome.failure}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Rival controllers over voters that crash and a network that lies: is what was committed kept?"""

import pytest

from bradbury.cluster.voter import CommittedEntryLost
from bradbury.tests.support.quorum_world import FAULTS, LostRecord, QuorumWorld

SEEDS = 600
STEPS = 400


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_what_was_committed_is_never_lost_and_never_two_things(voters: int) -> None:
    committed = 0
    for seed in range(SEEDS // 3):
        world = QuorumWorld((seed, voters), voters=voters)
        world.run(STEPS)
        committed += len(world.committed)
    assert committed > SEEDS, "nothing was committed, so nothing was tried"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    for seed in range(3_000):
        try:
            QuorumWorld(seed, faults=[fault]).run(STEPS)
        except (LostRecord, CommittedEntryLost):
            return
    pytest.fail("no seed has found it")


def test_a_seed_gives_the_same_run_each_time() -> None:
    first, second = (QuorumWorld(11, voters=5) for _ in range(2))
    first.run(STEPS)
    second.run(STEPS)
    assert first.committed == second.committed != []

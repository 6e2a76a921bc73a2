"""Rival controllers over voters that crash, a network that lies: is what was committed kept?

Also while snapshots take the place of the log, and voters come and go.
"""

import pytest

from bradbury.cluster.quorum.voter import NO_SNAPSHOT, CommittedEntryLost
from bradbury.tests.simulation.quorum_world import FAULTS, VOTERS, LostRecord, QuorumWorld

SEEDS = 600
STEPS = 400


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_what_was_committed_is_never_lost_and_never_two_things(voters: int) -> None:
    committed = snapshots = changes = 0
    for seed in range(SEEDS // 3):
        world = QuorumWorld((seed, voters), voters=voters)
        world.run(2 * STEPS)
        committed += len(world.committed)
        changes += sum(VOTERS in what for _, what in world.committed)
        snapshots += sum(voter.snapshot != NO_SNAPSHOT for voter in world.voters.values())
    assert committed > SEEDS, "nothing was committed, so nothing was tried"
    assert snapshots > SEEDS / 10
    assert changes > SEEDS / 30


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    for seed in range(3_000):
        try:
            QuorumWorld(seed, faults=[fault], **FAULTS[fault]).run(STEPS)
        except (LostRecord, CommittedEntryLost):
            return
    pytest.fail("no seed has found it")


def test_a_seed_gives_the_same_run_each_time() -> None:
    first, second = (QuorumWorld(11, voters=5) for _ in range(2))
    first.run(STEPS)
    second.run(STEPS)
    assert first.committed == second.committed != []

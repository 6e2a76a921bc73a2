"""Rival controllers over voters that crash, a network that lies: is what was committed kept?

Also while snapshots take the place of the log, and voters come and go.
"""

import pytest

from bradbury.cluster.metadata.metadata_records import VotersRecord, decode_metadata_record
from bradbury.cluster.quorum.voter import NO_SNAPSHOT
from bradbury.protocol.records.records import iterate_records
from bradbury.tests.simulation.planted.fault_registry import planted
from bradbury.tests.simulation.planted.faults.planted_in_quorum import QUORUM_FAULTS
from bradbury.tests.simulation.planted.found_by import QUORUM_FOUND_BY
from bradbury.tests.simulation.quorum_world import FOUND, LostRecord, QuorumWorld

SEEDS = 150
MOST_SEEDS = 3_000
EVENTS = 400


def changes_in(world: QuorumWorld) -> int:
    """How often the voters were changed for good."""
    return sum(
        isinstance(decode_metadata_record(record.value or b""), VotersRecord)
        for batch in world.committed.values()
        for record in iterate_records(memoryview(batch))
    )


@pytest.mark.parametrize(
    "voters",
    [pytest.param(1, marks=pytest.mark.long), 3, pytest.param(5, marks=pytest.mark.long)],
)
def test_what_was_committed_is_never_lost_and_never_two_things(voters: int) -> None:
    committed = snapshots = changes = 0
    for seed in range(SEEDS // 3):
        world = QuorumWorld((seed, voters), voters=voters)
        world.run(2 * EVENTS)
        committed += world.end_offset
        changes += changes_in(world)
        snapshots += sum(node.voter.step.state.snapshot != NO_SNAPSHOT for node in world.nodes)
    assert committed > 5 * SEEDS, "nothing was committed, so nothing was tried"
    assert snapshots > SEEDS / 10
    assert changes > SEEDS / 10


@pytest.mark.slow
@pytest.mark.parametrize("fault", QUORUM_FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    for seed in (QUORUM_FOUND_BY.get(fault, 0), *range(MOST_SEEDS)):
        world = QuorumWorld(seed, **QUORUM_FAULTS[fault].seen_by)
        try:
            with planted(fault, QUORUM_FAULTS):
                world.run(EVENTS)
        except (LostRecord, *FOUND):
            QuorumWorld(seed, **QUORUM_FAULTS[fault].seen_by).run(EVENTS)
            return
    pytest.fail("no seed has found it")


def test_a_seed_gives_the_same_run_each_time() -> None:
    first, second = (QuorumWorld(11, voters=5) for _ in range(2))
    first.run(EVENTS)
    second.run(EVENTS)
    assert (first.clock.digest, first.committed) == (second.clock.digest, second.committed)
    assert first.end_offset > 0

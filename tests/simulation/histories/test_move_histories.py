"""Moves between log directories that something interrupts, told step by step."""

import pytest

from bradbury.tests.simulation.world.directories.simulated_directories import PATHS
from bradbury.tests.simulation.world.simulated_bench import PARTITION, Bench


def directory_of(bench: Bench, node_id: int) -> str:
    node = bench.nodes[node_id]
    return node.logs.all.of(bench.log(node_id)).path


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
def test_a_move_goes_on_in_the_next_life_of_the_node(power: bool) -> None:
    """The administrator has been answered, and does not ask again."""
    bench = Bench(directories=2)
    bench.decide(1, 1, (1, 2, 3))
    bench.run()  # where the log is put is noted on the disk first
    bench.append(1, 12)
    bench.run()
    node_id = 3
    written = bench.records(node_id)
    assert len(written) == 12
    logs = bench.nodes[node_id].logs
    before = directory_of(bench, node_id)
    (after,) = set(PATHS[:2]) - {before}
    logs.move(PARTITION, after)
    while not logs.all.at(after).future_logs:
        bench.run(1)
    assert directory_of(bench, node_id) == before
    bench.restart(node_id, power=power)
    bench.register(node_id)
    bench.tell(node_id)
    bench.run(2_000)
    assert directory_of(bench, node_id) == after
    assert bench.records(node_id) == written

"""How much of the shipped core the suite's seeds execute, by folder; for docs/simulation.md.

    pip install coverage          (in the environment of the tests)
    COVERAGE_CORE=sysmon python -m bradbury.tests.simulation.executed_lines [--seeds 600] [--missing]

Some minutes with Python 3.12 and its sys.monitoring; ten times as long without. Code that numba has
compiled is not seen.
"""

from __future__ import annotations

import argparse
import io
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "storage",
    "groups",
    "transactions",
    "coordinators",
    "cluster",
    "steps",
    "replication",
    "controller",
)
NOT_IN_SEEDS = {
    "cluster/security/": "who connects, and by which proof: there are no sockets here",
    "cluster/quotas/": "what clients may send and ask for: nobody measures it here",
    "cluster/client_metrics_config.py": "what clients say of themselves",
    "cluster/metadata/listener_address.py": "sockets",
    "cluster/metadata/departed_nodes.py": "what clients are told of nodes that are gone",
    "cluster/metadata/features.py": "what clients are told of versions",
    "cluster/metadata/cluster_health.py": "what `bradbury status` shows",
    "controller/node/producer_id_manager.py": "blocks of ids, which InitProducerId of a real broker asks for",
    "storage/cleaner/cleaner_kernels.py": "loops for numba, which compiles them",
    "storage/cleaner/cleaner_compiled.py": "the same",
    "storage/disk/file_system.py": "the operating system's files",
    "storage/disk/throttler.py": "it sleeps",
    "storage/log/batch_conversion.py": "message formats of before Kafka 0.11",
}
"""Modules that no seed can execute, as what they are about is not in the simulation: why."""
OF_DISKS = 300
OF_THE_QUORUM = 75
OF_COORDINATORS = 60
OF_RECOVERY = 40
OF_LOGS = 150
OF_CONTROL = 100
OF_GROUPS = 200
"""Of each state machine of groups and their offsets: members, disks and fail-overs, as hypothesis draws them."""
EVENTS = 800
STEPS = 1_000
ROUNDS = 8
REQUESTS = 150
JOBS = 2


def execute(number: int, seeds: range, folder: str) -> None:
    """In a process of its own."""
    import coverage

    measured = coverage.Coverage(
        data_file=f"{folder}/seeds.{number}",
        source=[str(ROOT / each) for each in FOLDERS],
        config_file=False,
    )
    measured.start()
    from bradbury.tests.simulation.control.control_world import ControlWorld
    from bradbury.tests.simulation.coordinator_world import CoordinatorWorld
    from bradbury.tests.simulation.logs.log_world import LogWorld
    from bradbury.tests.simulation.quorum_world import QuorumWorld
    from bradbury.tests.simulation.recovery_world import RecoveryWorld
    from bradbury.tests.simulation.world.simulated_runs import run_seed
    from bradbury.tests.simulation.world.simulated_swarm import disk_seed

    for seed in seeds:
        run_seed(seed)
    for seed in range(number, OF_DISKS, JOBS):
        run_seed(disk_seed(seed))
    for seed in range(number, OF_THE_QUORUM, JOBS):
        for voters in (1, 3, 5):
            QuorumWorld((seed, voters), voters=voters).run(EVENTS)
    for seed in range(number, OF_COORDINATORS, JOBS):
        for version in (0, 1, 2):
            CoordinatorWorld(seed, version=version).run(STEPS)
    for seed in range(number, OF_RECOVERY, JOBS):
        for voters in (1, 3):
            RecoveryWorld(seed, voters=voters).run(ROUNDS)
    for seed in range(number, OF_LOGS, JOBS):
        for compacts in (False, True):
            LogWorld(seed, compacts=compacts).run(ROUNDS)
    for seed in range(number, OF_CONTROL, JOBS):
        ControlWorld(seed).run(REQUESTS)
    from hypothesis import settings
    from hypothesis.stateful import run_state_machine_as_test

    from bradbury.tests.groups.offsets.test_transaction_properties import Transactions
    from bradbury.tests.groups.test_group_properties import Groups

    drawn = settings(max_examples=OF_GROUPS, derandomize=True, database=None, deadline=None)
    run_state_machine_as_test((Groups, Transactions)[number], settings=drawn)
    measured.stop()
    measured.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=600)
    parser.add_argument("--missing", action="store_true", help="which lines, by module")
    options = parser.parse_args()
    import coverage

    with TemporaryDirectory() as folder:
        with ProcessPoolExecutor(JOBS) as pool:
            shares = [range(number, options.seeds, JOBS) for number in range(JOBS)]
            list(pool.map(execute, range(JOBS), shares, repeat(folder)))
        found = coverage.Coverage(data_file=f"{folder}/all", config_file=False)
        found.combine([f"{folder}/seeds.{number}" for number in range(JOBS)])
        table = Table(
            "folder", "statements", "executed", "of what can be", "modules with 95 % and more"
        )
        for name in FOLDERS:
            statements = missing = good = modules = possible = 0
            missed = 0
            for path in sorted((ROOT / name).rglob("*.py")):
                _, lines, _, absent, shown = found.analysis2(str(path))
                if not lines:
                    continue
                statements, missing, modules = (
                    statements + len(lines),
                    missing + len(absent),
                    modules + 1,
                )
                good += len(absent) <= len(lines) * 0.05
                if not path.relative_to(ROOT).as_posix().startswith(tuple(NOT_IN_SEEDS)):
                    possible, missed = possible + len(lines), missed + len(absent)
                if options.missing and absent:
                    share = 100 - 100 * len(absent) / len(lines)
                    print(f"{path.relative_to(ROOT)}  {share:.0f} %  {shown}")
            if statements:
                share = 100 - 100 * missing / statements
                of_possible = 100 - 100 * missed / possible
                table.add_row(
                    name,
                    str(statements),
                    f"{share:.1f} %",
                    f"{of_possible:.1f} % of {possible}",
                    f"{good} of {modules}",
                )
        out = io.StringIO()
        Console(file=out, width=100).print(table)
        print(out.getvalue())


if __name__ == "__main__":
    main()

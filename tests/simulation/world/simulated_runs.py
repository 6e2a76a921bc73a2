"""Running seeds of the simulation: what became of one, and the totals of many."""

from __future__ import annotations

import logging
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any

from ..clients.simulated_log_checks import Violation
from .simulated_cluster import SimulatedCluster
from .simulated_swarm import Swarm
from .virtual_loop import end_all

# What brokers would log is not printed where nobody has asked for it.
logging.getLogger("bradbury").addHandler(logging.NullHandler())


@dataclass(slots=True)
class Outcome:
    """The outcome of one seed. `failure`: the invariant, or an exception's name; None if all held."""

    seed: object
    failure: str | None = None
    transcript: list[str] = field(default_factory=list)
    digest: int = 0
    steps: int = 0
    virtual_ms: int = 0
    acknowledged: int = 0
    read: int = 0
    elections: int = 0
    truncations: int = 0
    faults: int = 0
    damaged: int = 0
    reassignments: int = 0
    deletions: int = 0
    cleanings: int = 0
    healed: int = 0
    offset_commits: int = 0
    generations: int = 0
    transactions: int = 0


def run_seed(seed: object, swarm: Swarm | None = None, *, lines: int = 40) -> Outcome:
    """Runs it to its end or to its first violation. Raises nothing."""
    outcome = Outcome(seed)
    cluster: SimulatedCluster | None = None
    logging.disable(logging.CRITICAL)  # the transcript says more, and in virtual time
    try:
        cluster = SimulatedCluster(seed, swarm)
        cluster.run()
    except Violation as violation:
        outcome.failure = violation.invariant
        assert cluster is not None, "nothing has happened yet"
        outcome.transcript = [
            *cluster.oracle.transcript(violation.partition_id, lines),
            str(violation),
            f"{cluster.swarm}",
        ]
    except Exception as error:  # whatever it is, it is a finding
        outcome.failure = type(error).__name__
        before = [] if cluster is None else cluster.oracle.transcript(None, lines)
        outcome.transcript = [*before, traceback.format_exc()]
    finally:
        logging.disable(logging.NOTSET)
        end_all()
    if outcome.failure is not None:
        outcome.transcript.append(f"again: python -m bradbury.tests.simulation.run --seed '{seed}'")
    if cluster is not None:
        oracle = cluster.oracle
        outcome.digest, outcome.steps = cluster.clock.digest, cluster.clock.steps
        outcome.virtual_ms = cluster.clock.now_ms
        outcome.acknowledged = cluster.acknowledged
        outcome.read = sum(ledger.read for ledger in oracle.ledgers.values())
        outcome.elections, outcome.truncations = oracle.elections, oracle.truncations
        outcome.faults = cluster.faults.count
        outcome.reassignments = oracle.reassignments
        outcome.deletions = oracle.deletions
        outcome.cleanings = oracle.cleanings
        outcome.healed = oracle.healed
        outcome.offset_commits = cluster.group_oracle.commits
        outcome.generations = cluster.group_oracle.generations
        outcome.transactions = cluster.transaction_oracle.commits
        outcome.damaged = int(any(ledger.is_damaged for ledger in oracle.ledgers.values()))
    return outcome


@dataclass(slots=True)
class Totals:
    """Sums over seeds, as they are kept in a file between runs."""

    seeds: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    virtual_ms: int = 0
    acknowledged: int = 0
    read: int = 0
    elections: int = 0
    truncations: int = 0
    faults: int = 0
    damaged: int = 0
    reassignments: int = 0
    """Reassignments that were completed or cancelled."""
    deletions: int = 0
    """DeleteRecords that were answered."""
    cleanings: int = 0
    """Compactions of a log that came to their end."""
    healed: int = 0
    """Segments that were made again with what another replica had."""
    offset_commits: int = 0
    """Acknowledged, by partition."""
    generations: int = 0
    """Generations of groups that got as far as an assignment."""
    transactions: int = 0
    """Acknowledged commits."""
    mismatches: int = 0
    """Seeds whose second run was another one than the first."""

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        if outcome.failure is not None:
            self.failed[str(outcome.seed)] = outcome.failure
        for name in (
            "steps",
            "virtual_ms",
            "acknowledged",
            "read",
            "elections",
            "truncations",
            "faults",
            "damaged",
            "reassignments",
            "deletions",
            "cleanings",
            "healed",
            "offset_commits",
            "generations",
            "transactions",
        ):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

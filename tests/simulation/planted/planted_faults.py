"""Mistakes that somebody could make, planted one at a time: does the simulation find them?

Each is a function that puts a wrong piece in the place of a right one of the shipped code, and the
kind of cluster in which it would show. Nothing of this is in the product. `planted` undoes it.
"""

from dataclasses import replace
from random import Random

from ..world.simulated_swarm import MEMBER_KINDS, TRANSACTION_KINDS, Swarm
from .fault_registry import FAULTS, planted
from .faults import (
    planted_in_access,
    planted_in_compaction,
    planted_in_controllers,
    planted_in_conversions,
    planted_in_decisions,
    planted_in_departures,
    planted_in_directories,
    planted_in_group_transactions,
    planted_in_groups,
    planted_in_healing,
    planted_in_replicas,
    planted_in_transactions,
    planted_in_views,
)

__all__ = [
    "FAULTS",
    "KNOWN_HISTORIES",
    "MASKED",
    "planted",
    "planted_in_access",
    "planted_in_compaction",
    "planted_in_controllers",
    "planted_in_conversions",
    "planted_in_decisions",
    "planted_in_departures",
    "planted_in_directories",
    "planted_in_group_transactions",
    "planted_in_groups",
    "planted_in_healing",
    "planted_in_replicas",
    "planted_in_transactions",
    "planted_in_views",
    "swarm_for",
]

# Chance does not find these; tests/simulation/histories/test_known_histories.py does, with the fault planted.
KNOWN_HISTORIES = {
    "an old broker epoch may fetch": (
        "a fetch must arrive a whole restart late, and just while its node is let in again"
    ),
    "entries of former epochs are counted": "Raft's figure 8 takes five voters and five controllers",
}
# Nothing in tests/simulation finds this one.
MASKED = {
    "an older controllers news are taken": (
        "an older controller is ended by a majority of its voters within a heartbeat, or by the first "
        "poll of a node that knows a newer vote; not in 1,200 seeds without the latter"
    ),
    "a new epoch is answered before it is replicated": (
        "two producers get the same epoch in nine of twenty seeds, when the coordinator is cut off just "
        "before it appends; but the first end of a transaction raises it again (KIP-890), and nothing "
        "of the other's counts unless it writes in the few milliseconds before: not in 200 seeds"
    ),
    "what is sent in vain is sent forever": (
        "the scrub reads active segments, too, and is there first: every second here, once a "
        "week in life; tests/storage/log/test_log_damage.py"
    ),
    "a repair writes the cleaners files": (
        "both must be at work on one segment within milliseconds: one ordinary seed in a thousand "
        "had it; tests/storage/cleaner/test_cleaner_crash.py"
    ),
    "any answer is taken": (
        "a fetcher asks one question at a time, and the position changes in between only with a new "
        "leader epoch or one that was on its way to the disk, which an answer of the old one survives"
    ),
}


def swarm_for(name: str, seed: int) -> Swarm:
    """The seed's own, but for what the fault needs; without what makes others harder to see."""
    drawn = Swarm.draw(Random(f"swarm {seed}"))
    calm = {
        "groups": 0,
        "transactional_ids": 0,
        "twins": False,
        "producers": 3,
        "voter_changes": 0.0,
        "snapshots": 0.0,
        "directories": 1,
        "retention_ms": -1,
        "racks": 0,
        "throttled": False,
        "access": False,
        "compacts": False,
        "old_producers": 0,
        "drain_every_ms": 0,
    }
    swarm = replace(drawn, **{**calm, **FAULTS[name].seen_by})
    absent = () if swarm.groups else MEMBER_KINDS
    absent += () if swarm.transactional_ids else TRANSACTION_KINDS
    kinds = tuple(kind for kind in swarm.kinds if kind not in absent)
    return replace(swarm, kinds=kinds or ("kill",))

"""What one seed's cluster is like, and which kinds of faults it meets: a swarm of settings.

Each seed draws its own few kinds of faults and how often they come, as faults of one kind are often
found only where another kind is absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Self

from .simulated_network import Weather

KINDS = (
    "kill",
    "power",
    "disk",
    "stop",
    "pause",
    "cut",
    "group",
    "controller",
    "rival",
    "pause controller",
    "elect",
)
MEMBER_KINDS = ("kill member", "pause member", "leave", "twin")
TRANSACTION_KINDS = ("kill producer", "pause producer")
DIRECTORY_KINDS = ("disk error", "damage", "full disk", "move")

_DISKS = "disks"
_DAMAGE = "damage"
OF_DAMAGE = ("kill", "power", "cut", "stop", "topic", "delete records", "full disk", "controller")
OF_DISKS = (
    "kill",
    "stop",
    "pause",
    "cut",
    "reassign",
    "settings",
    "topic",
    "topic",
    "delete records",
    "disk error",
    "damage",
    "rot",
    "full disk",
    "full disk",
    "move",
    "move",
)
"""Kinds for seeds of disks; what stands twice comes twice as often."""

TRANSACTIONAL = 0.75
"""How many of the seeds that can have transactions have them, of those that Swarm.draw gave none."""

DAMAGING = frozenset({"damage", "rot"})
"""Kinds of faults after which a log may have damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """Times are in ms, what has no unit is a probability."""

    nodes: int = 3
    voters: int = 3
    partitions: int = 1
    replication_factor: int = 3
    min_insync: int = 2
    flushes: bool = False
    fsync_ms: int = 3
    segment_bytes: int = 1 << 20
    producers: int = 3
    careless_producers: int = 0
    readers: int = 2
    in_flight: int = 3
    pace_ms: int = 40
    session_ms: int = 600
    lag_ms: int = 400
    fetch_wait_ms: int = 150
    checkpoint_ms: int = 700
    retention_check_ms: int = 500
    controller_restart_ms: int = 200
    duration_ms: int = 6_000
    kinds: tuple[str, ...] = ()
    fault_every_ms: int = 400
    outage_ms: int = 600
    is_reckless: bool = False
    stale_controller: float = 0.0
    loss: float = 0.0
    repeat: float = 0.0
    delay_ms: int = 3
    late: float = 0.0
    ordered: bool = True
    on_expand: float = 0.0
    on_truncated: float = 0.0
    on_votes: float = 0.0
    on_committed: float = 0.0
    lose_alter_answer: float = 0.0
    voter_changes: float = 0.0
    snapshots: float = 0.0
    is_new: bool = False
    """The cluster's first controller has to form it."""
    on_adding: float = 0.0
    follower_reads: bool = False
    groups: int = 0
    group_members: int = 3
    static_members: int = 0
    offsets_partitions: int = 1
    transactional_ids: int = 0
    transaction_partitions: int = 1
    """Of __transaction_state."""
    twins: bool = False
    """Two producers have the same transactional id at once."""
    offsets_in_transactions: bool = False
    """Transactions commit the offset of a group as well."""
    on_decision: float = 0.0
    """How often one of a transaction's nodes dies just when a record of it is written."""
    stray_markers: float = 0.0
    """How often a request of markers is lost, or comes once more when its connection is long gone."""
    slow_verification: float = 0.0
    """How often a coordinator's answer about partitions takes longer than a producer waits."""
    directories: int = 1
    """Log directories of each node, each on a disk of its own."""
    retention_ms: int = -1
    deleted_after_ms: int = 1_500
    """Records are deleted when they are as old: every producer knows what has become of them."""
    racks: int = 0
    """In which the nodes are, and readers that ask for a replica near them."""
    throttled: bool = False
    """Replication is throttled to less than what is written, until the calm."""
    log_errors: float = 0.0
    """How often a coordinator's log refuses an append, says it failed, or cannot be read."""
    compacts: bool = False
    """The coordinators' partitions are compacted, in small segments."""
    access: bool = False
    """ACLs, users' credentials and tokens are changed."""
    old_producers: int = 0
    """Producers of message formats of before Kafka 0.11, whose records are converted."""
    old_codec: str = "producer"
    """compression.type of the topic that they write to."""
    drain_every_ms: int = 0
    """How often a machine is drained; 0: never."""
    drains_for_good: bool = False
    """What is drained does not come back: bradbury.drain.moves.replicas."""

    @classmethod
    def draw(cls, random: Random) -> Self:
        """Everything that a seed decides."""
        nodes = random.choice((3, 3, 3, 4, 5))
        min_insync = random.choice((1, 2, 2, 2))
        kinds = tuple(kind for kind in KINDS if random.random() < 0.45) or ("kill",)

        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        swarm = cls(
            nodes=nodes,
            voters=random.choice((3, 3, 5)) if nodes == 5 else 3,
            partitions=random.choice((1, 1, 2, 3)),
            min_insync=min_insync,
            flushes=random.random() < 0.25,
            fsync_ms=random.choice((1, 3, 10)),
            segment_bytes=random.choice((1 << 20, 1 << 20, 1_500)),
            producers=random.choice((3, 3, 4)),
            careless_producers=random.choice((0, 0, 1)),
            readers=2,
            in_flight=random.choice((1, 3, 5)),
            pace_ms=random.choice((25, 40, 60)),
            session_ms=random.choice((300, 600)),
            lag_ms=random.choice((200, 400)),
            fetch_wait_ms=random.choice((60, 150)),
            checkpoint_ms=random.choice((300, 900)),
            duration_ms=random.choice((4_000, 8_000)),
            kinds=kinds,
            fault_every_ms=random.choice((150, 300, 600)),
            outage_ms=random.choice((100, 500, 1_200)),
            is_reckless=random.random() < 0.08,
            stale_controller=sometimes(0.3, 0.4),
            loss=sometimes(0.3, 0.15),
            repeat=sometimes(0.3, 0.05),
            delay_ms=random.choice((2, 4, 15)),
            late=sometimes(0.3, 0.03),
            ordered=random.random() < 0.7,
            on_expand=sometimes(0.5, 0.5),
            on_truncated=sometimes(0.3, 0.3),
            on_votes=sometimes(0.3, 0.5),
            on_committed=sometimes(0.3, 0.01),
            lose_alter_answer=sometimes(0.3, 0.3),
        )
        groups = random.choice((0, 0, 0, 0, 1, 2))
        reassigns = random.random() < 0.35
        if groups:  # which cost as much as what is left out for them
            swarm = replace(
                swarm, partitions=1, producers=2, careless_producers=0, duration_ms=4_000
            )
        swarm = replace(
            swarm,
            follower_reads=random.random() < 0.3,
            on_adding=sometimes(0.5, 0.5) if reassigns else 0.0,
            groups=groups,
            group_members=random.choice((2, 3)),
            static_members=random.choice((0, 1, 2)),
            offsets_partitions=random.choice((1, 2)),
            kinds=swarm.kinds
            + (("reassign",) if reassigns else ())
            + tuple(kind for kind in MEMBER_KINDS if groups and random.random() < 0.5),
            is_new=random.random() < 0.1,
            snapshots=sometimes(0.5, 0.05),
            voter_changes=sometimes(0.3, 0.05),
            log_errors=sometimes(0.4, 0.1) if groups else 0.0,
        )
        directories = random.choice((1, 2))
        more = tuple(kind for kind in DIRECTORY_KINDS if random.random() < 0.35)
        if directories == 2 and random.random() < 0.6 and "move" not in more:
            more = (*more, "move")
        if directories == 1:
            more = tuple(kind for kind in more if kind != "move")
        swarm = replace(
            swarm,
            directories=directories,
            retention_ms=random.choice((-1, -1, -1, 1_500)),
            racks=random.choice((0, 0, 2)),
            throttled=random.random() < 0.1,
            kinds=swarm.kinds
            + more
            + tuple(kind for kind in ("delete records", "topic") if random.random() < 0.25),
        )
        if not groups and not swarm.is_reckless and random.random() < 0.35:
            swarm = swarm.with_transactions(random)
        swarm = replace(swarm, access=random.random() < 0.3)
        if (groups or swarm.transactional_ids) and random.random() < 0.6:
            swarm = replace(swarm, compacts=True, segment_bytes=random.choice((600, 1_500)))
        if random.random() < 0.25:
            swarm = replace(swarm, kinds=(*swarm.kinds, "settings"))
        if random.random() < 0.25 and not swarm.is_reckless:
            # Where the only one in sync has damage that is not committed, a partition stands still.
            segment_bytes = random.choice((600, 1_500))
            swarm = replace(swarm, segment_bytes=segment_bytes, kinds=(*swarm.kinds, "rot"))
        return swarm

    def with_transactions(self, random: Random) -> Self:
        """The same, with transactional ids, for which other clients are left out: it costs as much."""

        def sometimes(chance: float, most: float) -> float:
            return random.random() * most if random.random() < chance else 0.0

        return replace(
            self,
            partitions=1,
            producers=2,
            careless_producers=0,
            duration_ms=4_000,
            transactional_ids=random.choice((1, 2)),
            transaction_partitions=random.choice((1, 2)),
            twins=random.random() < 0.4,
            offsets_in_transactions=random.random() < 0.5,
            log_errors=max(self.log_errors, sometimes(0.3, 0.1)),
            kinds=self.kinds + tuple(kind for kind in TRANSACTION_KINDS if random.random() < 0.6),
            on_decision=sometimes(0.4, 0.1),
            stray_markers=sometimes(0.4, 0.3),
            slow_verification=sometimes(0.4, 0.3),
        )

    @classmethod
    def draw_disks(cls, random: Random) -> Self:
        """For a seed that is mostly about disks: two in each node, which fail and fill up all the
        time while replicas are made, moved between them and healed.
        """
        swarm = replace(
            cls.draw(random),
            directories=2,
            is_reckless=False,
            kinds=tuple(kind for kind in OF_DISKS if random.random() < 0.6) or ("full disk",),
            segment_bytes=random.choice((600, 1_500)),
            fault_every_ms=random.choice((60, 120, 250)),
            outage_ms=random.choice((200, 800, 1_500)),
            retention_ms=random.choice((-1, 1_500)),
            deleted_after_ms=2_500,
            duration_ms=4_000,
        )
        if random.random() < 0.3:
            return swarm
        return replace(
            swarm,
            groups=0,
            transactional_ids=0,
            offsets_in_transactions=False,
            compacts=False,
            access=False,
        )

    @classmethod
    def draw_damage(cls, random: Random) -> Self:
        """For a seed that is mostly about damage: batches rot all the time in small segments, which
        are compacted and deleted meanwhile, while processes die.
        """
        swarm = replace(
            cls.draw(random),
            is_reckless=False,
            kinds=("rot", "rot", *(kind for kind in OF_DAMAGE if random.random() < 0.4)),
            segment_bytes=600,
            fault_every_ms=random.choice((40, 60, 100)),
            outage_ms=random.choice((100, 300)),
            duration_ms=4_000,
            careless_producers=0,
            partitions=random.choice((1, 2)),
            directories=1,
            retention_ms=random.choice((-1, -1, 1_500)),
            compacts=True,
            access=False,
        )
        kind = random.random()
        if kind < 0.4:
            return replace(
                swarm, groups=0, transactional_ids=random.choice((1, 2)), transaction_partitions=1
            )
        if kind < 0.8:
            return replace(swarm, groups=2, transactional_ids=0, offsets_in_transactions=False)
        return replace(
            swarm, groups=0, transactional_ids=0, offsets_in_transactions=False, compacts=False
        )

    @property
    def has_group_coordinators(self) -> bool:
        return bool(self.groups) or self.offsets_in_transactions

    def weather(self) -> Weather:
        return Weather(
            loss=self.loss,
            repeat=self.repeat,
            delay_ms=self.delay_ms,
            late=self.late,
            ordered=self.ordered,
        )


def disk_seed(number: int) -> str:
    return f"{_DISKS} {number}"


def damage_seed(number: int) -> str:
    return f"{_DAMAGE} {number}"


def swarm_of(seed: object) -> Swarm:
    """A number draws from everything, a disk_seed and a damage_seed from what their names say."""
    random = Random(f"swarm {seed}")
    if str(seed).startswith(_DISKS):
        return _with_transactions(Swarm.draw_disks(random), seed)
    if str(seed).startswith(_DAMAGE):
        return _with_transactions(Swarm.draw_damage(random), seed)
    return _with_more(_with_transactions(Swarm.draw(random), seed), seed)


def _with_transactions(swarm: Swarm, seed: object) -> Swarm:
    """Three seeds of four that have none yet get transactions, also beside groups with members.

    Not a reckless one: it loses records of coordinators, and with them what was decided, as with
    unclean elections in Kafka; nothing that transactions promise can be asked of it.

    By a stream of its own: planted faults draw by Swarm.draw, and are found where they were.
    """
    random = Random(f"transactions {seed}")
    if swarm.transactional_ids or swarm.is_reckless or random.random() >= TRANSACTIONAL:
        return swarm
    partitions, careless_producers = swarm.partitions, swarm.careless_producers
    swarm = swarm.with_transactions(random)
    if swarm.groups:  # which cost as much as what is left out for them
        swarm = replace(
            swarm, producers=1, readers=1, groups=1, group_members=2, transactional_ids=1
        )
    else:
        swarm = replace(swarm, partitions=min(partitions, 2), careless_producers=careless_producers)
    if not swarm.compacts and random.random() < 0.6:
        swarm = replace(swarm, compacts=True, segment_bytes=random.choice((600, 1_500)))
    return swarm


def _with_more(swarm: Swarm, seed: object) -> Swarm:
    """What came later than the other settings: drawn from a stream of its own, so that most seeds
    are what they were.
    """
    random = Random(f"more {seed}")
    if random.random() < 0.2:
        old_codec = random.choice(("producer", "gzip", "uncompressed"))
        swarm = replace(swarm, old_producers=random.choice((1, 2)), old_codec=old_codec)
    if random.random() < 0.25:
        swarm = replace(
            swarm,
            drain_every_ms=random.choice((400, 1_000)),
            drains_for_good=random.random() < 0.7,
        )
        if swarm.drains_for_good:  # to whom replicas can move
            swarm = replace(swarm, nodes=max(swarm.nodes, random.choice((4, 5))))
    return swarm

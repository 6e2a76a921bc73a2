"""The coordinators of one node: a context for each partition of `__consumer_offsets` it leads.

At most one a partition, of the newest leader epoch. Contexts that a method closes have effects that
are still to be carried out.
Source: apache/kafka coordinator-common/.../CoordinatorRuntime.java.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ...protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from ..classic.group_state import GroupState
from ..group_config import GroupCoordinatorConfig
from ..group_counters import GroupCounters, MemberMemory
from .coordinator_context import ContextState, CoordinatorContext
from .coordinator_effects import CoordinatorLog

NO_GROUPS = Counter({state.value: 0 for state in GroupState})


class GroupNumbers(NamedTuple):
    """What the groups of a node are, for metrics; GroupCounters has what they did."""

    states: Counter[str] = NO_GROUPS
    """The number of groups in each state."""
    members: int = 0
    offsets: int = 0
    partitions: int = 0
    partitions_loading: int = 0
    memory_bytes: int = 0


class CoordinatorRuntime:
    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self.memory = MemberMemory(config.bradbury_group_members_max_bytes)
        self.counters = GroupCounters()
        self._config = config
        self._contexts: dict[int, CoordinatorContext] = {}

    def on_leader(
        self, partition: int, leader_epoch: int, log: CoordinatorLog, *, now_ms: int, wall_ms: int
    ) -> CoordinatorContext | None:
        """The node leads the partition in this epoch. Returns what loads now; None: it is known.

        A context of an older epoch is closed: another leader may have written in between.
        """
        known = self._contexts.get(partition)
        if known is not None:
            if leader_epoch <= known.leader_epoch:
                return None
            known.close()
        context = CoordinatorContext(
            partition, leader_epoch, log, self._config, self.memory, self.counters
        )
        self._contexts[partition] = context
        context.load(now_ms=now_ms, wall_ms=wall_ms)
        return context

    def on_resigned(self, partition: int) -> None:
        """The node does not lead the partition any more: whoever waits is sent away."""
        known = self._contexts.pop(partition, None)
        if known is not None:
            known.close()

    def context(self, partition: int) -> CoordinatorContext:
        """Raises NotCoordinator, CoordinatorLoadInProgress."""
        known = self._contexts.get(partition)
        if known is None:
            raise NotCoordinator(f"__consumer_offsets-{partition} is not led by this node")
        _check_loaded(known)
        return known

    def all_contexts(self) -> list[CoordinatorContext]:
        """Raises CoordinatorLoadInProgress: a list without the groups of one would be wrong."""
        for context in self._contexts.values():
            _check_loaded(context)
        return self.active

    @property
    def active(self) -> list[CoordinatorContext]:
        """Those that are loaded."""
        return [each for each in self._contexts.values() if each.state is ContextState.ACTIVE]

    def numbers(self) -> GroupNumbers:
        """Counts of what is loaded. Cost: 0.2 us for a group, 0.1 us for a topic of it."""
        active = self.active
        states = Counter(NO_GROUPS)
        members = 0
        for context in active:
            for group in context.coordinator.groups.values():
                states[group.metadata.state.value] += 1
                members += len(group.metadata.members)
        return GroupNumbers(
            states=states,
            members=members,
            offsets=sum(context.coordinator.offsets.count for context in active),
            partitions=len(active),
            partitions_loading=len(self._contexts) - len(active),
            memory_bytes=self.memory.used,
        )


def _check_loaded(context: CoordinatorContext) -> None:
    if context.state is not ContextState.ACTIVE:
        raise CoordinatorLoadInProgress(f"__consumer_offsets-{context.partition} is being read")

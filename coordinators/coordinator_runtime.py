"""Coordinators of one kind on one node: a context for each led partition of its topic.

At most one context per partition, of the newest leader epoch. The effects of a context that a
method has closed must still be carried out.
Source: apache/kafka coordinator-common/.../CoordinatorRuntime.java.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from ..protocol.errors import CoordinatorLoadInProgress, NotCoordinator
from .coordinator_context import ContextState, CoordinatorContext
from .coordinator_effects import CoordinatorLog
from .coordinator_rules import CoordinatorKind, CoordinatorRules

R = TypeVar("R", bound=CoordinatorRules)


class CoordinatorRuntime(Generic[R]):
    def __init__(self, kind: CoordinatorKind[R]) -> None:
        self._kind = kind
        self._contexts: dict[int, CoordinatorContext[R]] = {}

    def on_leader(
        self, partition: int, leader_epoch: int, log: CoordinatorLog, *, now_ms: int, wall_ms: int
    ) -> CoordinatorContext[R] | None:
        """Called when the node leads the partition in this epoch. Returns the context to load;
        None: it exists already.

        A context of an older epoch is closed: another leader may have written in between.
        """
        known = self._contexts.get(partition)
        if known is not None:
            if leader_epoch <= known.leader_epoch:
                return None
            known.close()
        context = CoordinatorContext(self._kind, partition, leader_epoch, log)
        self._contexts[partition] = context
        context.load(now_ms=now_ms, wall_ms=wall_ms)
        return context

    def on_resigned(self, partition: int) -> None:
        """Called when the node no longer leads the partition: waiting requests are refused."""
        known = self._contexts.pop(partition, None)
        if known is not None:
            known.close()

    def context(self, partition: int) -> CoordinatorContext[R]:
        """Context of a partition. Raises NotCoordinator, CoordinatorLoadInProgress."""
        known = self._contexts.get(partition)
        if known is None:
            raise NotCoordinator(f"{self._kind.topic}-{partition} is not led by this node")
        self._check_loaded(known)
        return known

    def all_contexts(self) -> list[CoordinatorContext[R]]:
        """All contexts. Raises CoordinatorLoadInProgress: an incomplete list would be wrong."""
        for context in self._contexts.values():
            self._check_loaded(context)
        return self.active

    @property
    def active(self) -> list[CoordinatorContext[R]]:
        """Contexts that are loaded."""
        return [each for each in self._contexts.values() if each.state is ContextState.ACTIVE]

    @property
    def loading_count(self) -> int:
        return len(self._contexts) - len(self.active)

    def _check_loaded(self, context: CoordinatorContext[R]) -> None:
        if context.state is not ContextState.ACTIVE:
            raise CoordinatorLoadInProgress(
                f"{self._kind.topic}-{context.partition} is being loaded"
            )

"""Effects of a coordinator's rules, performed by coordinator_context.

In order, and all of them: a list of effects is one decision. Rules may return their own effects,
which the context hands to its driver as they are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request with this id. Each request is answered exactly once.

    A KafkaError is raised in the caller of the request.
    """

    request_id: int
    response: Any


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call on_timer(key) in `after_ms`; replaces the timer of that key."""

    key: Any
    after_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    key: Hashable


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """Producer whose open transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int
    guard: Any = None
    """Guard that the verification of the transaction left for the append (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """Marker that ends a producer's transaction in one partition, requested by its coordinator."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records as one batch. Then on_committed(self), in log order, or on_failed(self).

    Before that on_late(self), at most once, returns the Append to continue with.

    `completion`: the rules' own data for these calls; None: nothing waits for the append. With a
    `marker` there are no records: a control batch is written.
    """

    records: tuple[Any, ...]
    completion: Any = None
    producer: TransactionalProducer | None = None
    """Producer of the records, which take effect when its transaction commits; None: not
    transactional.
    """
    marker: TransactionMarker | None = None


RulesEffect: TypeAlias = Respond | StartTimer | CancelTimer | Append | Any
